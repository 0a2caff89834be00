// SPDX-License-Identifier: BSD-2-Clause

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	hraft "github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"github.com/moby/swarmkit/v2/api"
	"go.etcd.io/bbolt"

	"satld/internal/slowday"
)

// A probe that prints 300 MB costs the daemon neither memory nor its answers.
func TestGiantProbeOutput(t *testing.T) {
	d := loaded(t)
	ctl := controls(t)
	d.create("web", shell("[ -e /ctl/flood ] || exit 0; yes 2>/dev/null | head -c 300000000; exit 1", timing(time.Second, 3*time.Minute, 1000)), control(ctl))
	d.awaitHealth(20*time.Second, "web", "healthy")
	for range 50 { // the daemon's own working set
		d.resolve("web")
		d.look("web")
	}
	pid := d.cmd.Process.Pid
	forgetPeak(t, pid)
	before := memory(t, pid, "VmRSS")
	touch(t, ctl, "flood")
	var took []time.Duration
	c, _ := d.look("web")
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for flood := time.Now(); c.State.Health.FailingStreak < 1; <-tick.C {
		if slowday.Over(flood, time.Minute) {
			t.Fatalf("the flood does not end: %+v", c.State.Health)
		}
		begun := time.Now()
		d.resolve("web")
		took = append(took, time.Since(begun))
		if len(took)%10 == 0 {
			c, _ = d.look("web")
		}
	}
	grown := memory(t, pid, "VmHWM") - before
	slices.Sort(took)
	p99 := took[len(took)*99/100]
	t.Logf("daemon grew by %d KiB over %d KiB; %d questions, p99 %v, longest %v", grown>>10, before>>10, len(took), p99, took[len(took)-1])
	if grown > 10<<20 {
		t.Errorf("the daemon grew by %d KiB", grown>>10)
	}
	if p99 > slowday.Of(500*time.Millisecond) {
		t.Errorf("p99 of DNS during the probe is %v", p99)
	}
	if n := len(c.State.Health.Log); n > 5 {
		t.Errorf("%d results are kept", n)
	}
	last := c.State.Health.Log[len(c.State.Health.Log)-1]
	if len(last.Output) != 4096 || last.ExitCode != 1 {
		t.Errorf("result %d with %d bytes: %.80q", last.ExitCode, len(last.Output), last.Output)
	}
}

// Many probed containers: none fails, nothing is written to the store, no more
// probes run at a time than allowed, and a restart of the daemon is no storm
// (cases/store.md, store-1, among others).
func TestManyProbes(t *testing.T) {
	const tasks, slots = 20, 8
	d := loaded(t)
	ctl := controls(t)
	// Each probe leaves a mark while it runs.
	line := `[ ! -e /ctl/slow ] && exit 0; sleep 1`
	d.create("web", shell(line, timing(time.Second, 5*time.Second, 1), starting(0, 5*time.Second)), control(ctl), replicas(tasks))
	eventually(t, 90*time.Second, "all run", func() bool { return len(d.running("web")) == tasks })

	// Steady: not one failure, not one change of verdict but the first, and
	// not one write to the raft log.
	ids := func() (list []string) {
		for _, x := range d.running("web") {
			list = append(list, x.Status.ContainerStatus.ContainerID)
		}
		return list
	}()
	db := filepath.Join(d.state, "raft", "raft.db")
	if matches, _ := filepath.Glob(filepath.Join(d.state, "*", "raft.db")); len(matches) == 1 {
		db = matches[0]
	}
	// The reports of RUNNING are in the store by now; give their batches time.
	eventually(t, 20*time.Second, "store at rest", func() bool {
		before := written(t, db)
		time.Sleep(2 * time.Second)
		return written(t, db) == before
	})
	begun, used := time.Now(), cpu(t, d.cmd.Process.Pid)
	const steady = 15 * time.Second
	time.Sleep(steady)
	ended := time.Now()
	used = cpu(t, d.cmd.Process.Pid) - used
	t.Logf("%d probes a second: the daemon itself used %.1f %% of a core", tasks, 100*used.Seconds()/steady.Seconds())
	for _, id := range ids {
		c, _ := d.look(id)
		for _, r := range c.State.Health.Log {
			if r.ExitCode != 0 {
				t.Errorf("%s: %d %q", c.Name, r.ExitCode, r.Output)
			}
		}
		if c.State.Health.Status != "healthy" || len(c.State.Health.Log) != 5 {
			t.Errorf("%s: %+v", c.Name, c.State.Health)
		}
	}
	if n := strings.Count(d.whole(), `msg="health changed"`); n != tasks {
		t.Errorf("%d changes of verdict, want %d", n, tasks)
	}

	// All due at once and each taking a second: bounded, never two of one
	// container, and none waiting in line twice.
	touch(t, ctl, "slow")
	time.Sleep(1500 * time.Millisecond)
	most := 0
	for until := time.Now().Add(8 * time.Second); time.Now().Before(until); {
		all := helpers(d.cmd.Process.Pid)
		most = max(most, len(all))
		time.Sleep(20 * time.Millisecond)
	}
	untouch(t, ctl, "slow")
	if most > slots || most < slots/2 {
		t.Errorf("%d probes at a time, want at most %d", most, slots)
	}
	for _, id := range ids {
		c, _ := d.look(id)
		log := c.State.Health.Log
		for i := 1; i < len(log); i++ {
			if wait := log[i].Start.Sub(log[i-1].End); wait < time.Second-10*time.Millisecond {
				t.Errorf("%s: a probe %v after the last: a missed one was queued", c.Name, wait)
			}
		}
	}

	// The daemon's end and start: the first probes are spread over one wait,
	// here 5 s.
	d.kill()
	tasksWritten := 0
	for _, w := range entries(t, db) {
		if w.at.After(begun) && w.at.Before(ended) {
			t.Logf("written %v after the begin of probing: %s", w.at.Sub(begun), w.what)
			if strings.Contains(w.what, "task") || strings.Contains(w.what, "service") {
				t.Error("probing wrote to the store")
			}
		} else if strings.Contains(w.what, "task") {
			tasksWritten++
		}
	}
	if tasksWritten == 0 {
		t.Error("no task is found in the raft log: this test sees nothing")
	}
	d.start()
	var firsts []time.Time
	for _, id := range ids {
		c := d.awaitProbes(5*time.Second+2*e(), id, 1)
		firsts = append(firsts, c.State.Health.Log[0].Start)
	}
	slices.SortFunc(firsts, time.Time.Compare)
	buckets := map[int]int{}
	for _, at := range firsts {
		buckets[int(at.Sub(firsts[0])/time.Second)]++
	}
	t.Logf("first probes after the restart, by second: %v", buckets)
	for second, n := range buckets {
		if n > 2*tasks/5 {
			t.Errorf("%d of %d first probes in second %d", n, tasks, second)
		}
	}
	if spread := firsts[tasks-1].Sub(firsts[0]); spread < 3*time.Second {
		t.Errorf("first probes within %v", spread)
	}
	if len(d.running("web")) != tasks {
		t.Errorf("%d of %d tasks run", len(d.running("web")), tasks)
	}
}

// written is the time and size of the last write to a file.
func written(t *testing.T, path string) string {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(info.ModTime().UnixNano(), " ", info.Size())
}

// entry is one of the raft log of a daemon that does not run.
type entry struct {
	at    time.Time
	what  string
	tasks []*api.Task // written in it
}

// entries reads a raft log.
func entries(t *testing.T, path string) (list []entry) {
	t.Helper()
	db, err := raftboltdb.New(raftboltdb.Options{Path: path, BoltOptions: &bbolt.Options{Timeout: 5 * time.Second, ReadOnly: true}, MsgpackUseNewTimeFormat: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	first, err := db.FirstIndex()
	if err != nil {
		t.Fatal(err)
	}
	last, err := db.LastIndex()
	if err != nil {
		t.Fatal(err)
	}
	for i := first; i <= last; i++ {
		var l hraft.Log
		if err := db.GetLog(i, &l); err != nil {
			t.Fatal(err)
		}
		e := entry{at: l.AppendedAt, what: l.Type.String()}
		var req api.InternalRaftRequest
		if l.Type == hraft.LogCommand && req.Unmarshal(l.Data) == nil {
			for _, a := range req.Action {
				e.what += fmt.Sprintf(" %v %T", a.Action, a.Target)
				if x := a.GetTask(); x != nil {
					e.tasks = append(e.tasks, x)
				}
			}
		}
		e.what = strings.ToLower(e.what)
		list = append(list, e)
	}
	return list
}

// whole is all that the daemon has logged.
func (d *daemon) whole() string {
	d.t.Helper()
	data, err := os.ReadFile(d.log.Name())
	if err != nil {
		d.t.Fatal(err)
	}
	return string(data)
}
