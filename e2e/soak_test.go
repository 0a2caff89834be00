// SPDX-License-Identifier: BSD-2-Clause

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"satld/internal/loadgen"
)

var (
	kills = flag.Int("kills", 2, "leaders killed by TestSoak")
	lost  = flag.Int("lost", 1, "nodes lost by TestLostNode, one after the other")
	// rate is low where tests share a machine: what is slow there is the client.
	rate = flag.Int("rate", 10, "requests a second to each manager, each over a new connection, of TestSoak and TestLostNode")
)

// under is the load on the published port of each manager, from the client's
// place, and when each manager was down.
type under struct {
	s       *site
	stop    context.CancelFunc
	wg      sync.WaitGroup
	reports []loadgen.Report
	down    [][]span
}

type span struct{ from, to time.Time }

func (s span) has(t time.Time) bool { return !t.Before(s.from) && (s.to.IsZero() || !t.After(s.to)) }

func (s *site) under(port int, timeout time.Duration) *under {
	ctx, cancel := context.WithCancel(context.Background())
	u := &under{s: s, stop: cancel, reports: make([]loadgen.Report, len(s.nodes)), down: make([][]span, len(s.nodes))}
	for i := range s.nodes {
		u.wg.Go(func() {
			u.reports[i] = loadgen.Run(ctx, loadgen.Config{Addr: fmt.Sprintf("%s:%d", s.addr(i), port), Rate: *rate, Timeout: timeout,
				Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
					return dialIn(ctx, s.client(), network, addr)
				}})
		})
	}
	s.t.Cleanup(func() { cancel(); u.wg.Wait() })
	return u
}

// end stops the load and splits what failed: at managers that were up, and at
// those that were down. Where the clients themselves got too little of the
// machine for one request in ten to be sent in time, what failed says nothing of
// satld, and nothing is told of it.
func (u *under) end() (up, down []loadgen.Failure) {
	u.s.t.Helper()
	u.stop()
	u.wg.Wait()
	requests, late := 0, 0
	for i, r := range u.reports {
		u.s.t.Logf("node %d: %s", i, r)
		requests, late = requests+r.Requests, late+r.Late
		for _, f := range r.Failures {
			if slices.ContainsFunc(u.down[i], func(s span) bool { return s.has(f.At) }) {
				down = append(down, f)
			} else {
				up = append(up, f)
			}
		}
	}
	if late*10 > requests {
		u.s.t.Logf("THE MACHINE IS STARVED: %d of %d requests were sent too late; the %d that failed are not counted", late, requests, len(up)+len(down))
		return nil, nil
	}
	return up, down
}

// places are the containers of a service, on all nodes but one: which processes
// they are, by ID. A container that was started anew is another process.
func (s *site) places(service string, but int) map[string]int {
	s.t.Helper()
	out := map[string]int{}
	for i, d := range s.nodes {
		if i == but {
			continue
		}
		for _, id := range strings.Fields(d.docker("ps", "-q", "--no-trunc", "--filter", "name="+service+".")) {
			c, ok := d.look(id)
			if !ok {
				s.t.Fatalf("container %s is gone", id)
			}
			out[id] = c.State.Pid
		}
	}
	return out
}

// soakService has a task on each of three managers. Its probes have time: the
// second that a published service gets by default is short on a machine that
// runs three nodes, and a task that is replaced for it is none of theirs.
func (s *site) soakService() {
	s.t.Helper()
	s.join(1, "manager")
	s.join(2, "manager")
	s.nodes[0].docker("service", "create", "-q", "--name", "web", "--replicas", "3", "-p", "8080:80",
		"--health-cmd", "/app -probe http://127.0.0.1/health", "--health-interval", "1s", "--health-timeout", "30s", "app:1", "/app")
	for i := range s.nodes {
		addr := s.addr(i) + ":8080"
		eventually(s.t, 20*time.Second, fmt.Sprintf("all tasks answer on node %d", i), func() bool {
			seen := s.answers(addr, 6)
			return len(seen) == 3 && !strings.Contains(fmt.Sprint(seen), "error")
		})
	}
}

// One leader after the other is killed and started again under load: another
// leads within 5 s, no request fails at a manager that is up, and no container
// is touched. What the killed one's daemon had set up in the kernel stays: its
// address goes on answering too.
func TestSoak(t *testing.T) {
	t.Parallel()
	s := newSite(t, 3)
	s.soakService()
	before := s.places("web", -1)
	if len(before) != 3 {
		t.Fatalf("containers %v", before)
	}
	load := s.under(8080, 10*time.Second)
	var elections []time.Duration
	for range *kills {
		leader := s.leader(-1)
		killed := time.Now()
		s.nodes[leader].kill()
		s.leader(leader)
		elections = append(elections, time.Since(killed))
		s.nodes[leader].start()
		load.down[leader] = append(load.down[leader], span{killed, time.Now()})
		eventually(t, time.Minute, "all managers reachable", func() bool { return s.reachable() == 3 })
	}
	up, down := load.end()
	slices.Sort(elections)
	t.Logf("%d kills: a new leader after %v at best, %v at the median, %v at worst; failed at managers that were up: %d, at those that were down: %d",
		*kills, elections[0].Round(time.Millisecond), elections[len(elections)/2].Round(time.Millisecond),
		elections[len(elections)-1].Round(time.Millisecond), len(up), len(down))
	if worst := elections[len(elections)-1]; worst > *electionBound {
		t.Errorf("a new leader after %v", worst)
	}
	if failed := append(up, down...); len(failed) > 0 {
		t.Errorf("%d requests failed, the first at %v: %v", len(failed), failed[0].At, failed[0].Err)
	}
	if after := s.places("web", -1); !maps.Equal(before, after) {
		t.Errorf("containers %v, then %v", before, after)
	}
	if list := s.nodes[0].tasks("web"); len(list) != 3 {
		t.Errorf("%d tasks, want the first 3: %+v", len(list), list)
	}
}

// reachable counts the managers that the leader reaches.
func (s *site) reachable() (n int) {
	leader := s.leader(-1)
	out, _, err := s.nodes[leader].try("node", "ls", "--format", "{{.Status}} {{.ManagerStatus}}")
	if err != nil {
		return 0
	}
	return strings.Count(out, "Ready Reachable") + strings.Count(out, "Ready Leader")
}

// lose takes a whole machine away: off the wire, and every process of it dead.
func (s *site) lose(i int) {
	s.t.Helper()
	d := s.nodes[i]
	var pids []int
	for _, id := range strings.Fields(d.docker("ps", "-q", "--no-trunc")) {
		if c, ok := d.look(id); ok {
			pids = append(pids, c.State.Pid)
		}
	}
	s.cut(i, true)
	d.kill()
	for _, p := range processesOf(d.dir) {
		pids = append(pids, p)
	}
	for _, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			s.t.Fatalf("kill %d: %v", pid, err)
		}
	}
}

// processesOf are the processes with a word in their command line.
func processesOf(word string) (pids []int) {
	found, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, p := range found {
		if data, err := os.ReadFile(p); err == nil && bytes.Contains(data, []byte(word)) {
			if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(p))); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// A lost machine costs the managers that are left what they send to its tasks
// until it has missed two polls, each begun 5 s after the one before and given
// up after 2 s (spec/application-health.txt, "How the gateway uses it"): a third
// of the requests for 7 to 12 s, and none after. Its tasks are replaced, and
// when it is back all is as before.
func TestLostNode(t *testing.T) {
	t.Parallel()
	const interval, timeout = 5 * time.Second, 2 * time.Second
	s := newSite(t, 3)
	s.soakService()
	// Down sooner than after 15 s, or 30 s where a new leader has not met it.
	s.nodes[0].docker("swarm", "update", "--dispatcher-heartbeat", "2500ms")
	for range *lost {
		gone := s.leader(-1)
		id, kept := node(t, s.nodes[gone]), s.places("web", gone)
		load := s.under(8080, 5*time.Second)
		eventually(t, time.Minute, "all managers reachable", func() bool { return s.reachable() == 3 })
		cut := time.Now()
		s.lose(gone)
		load.down[gone] = []span{{from: cut.Add(-time.Second)}}
		s.leader(gone)
		elected := time.Since(cut)
		other := s.nodes[(gone+1)%3]
		eventually(t, 2*time.Minute, "its task replaced", func() bool {
			list, err := other.tryTasks("web")
			list = slices.DeleteFunc(list, func(x task) bool { return notRunning(x) || x.NodeID == id })
			return err == nil && len(list) == 3
		})
		t.Logf("node %d lost: another leads after %v, its task is replaced after %v", gone, elected.Round(time.Millisecond), time.Since(cut).Round(time.Millisecond))
		if elected > *electionBound {
			t.Errorf("a new leader after %v", elected)
		}
		up, _ := load.end()
		first, last := time.Duration(0), time.Duration(0)
		for _, f := range up {
			first, last = min(first, f.At.Sub(cut)), max(last, f.At.Sub(cut))
		}
		// Two managers are left, and of the three tasks one is gone.
		const worst = 2*interval + timeout
		most := int(worst.Seconds()) * *rate * 2 / 3
		t.Logf("failed at the managers left: %d, the last of them sent %v after the loss; by the rule at most %d, until %v",
			len(up), last.Round(time.Millisecond), most, worst)
		// What was on its way when the machine went is of the moments before.
		if first < -5*time.Second || last > worst+3*time.Second || len(up) > most*3/2 {
			t.Errorf("failed too early (%v), too long or too often", first)
		}
		now := s.places("web", gone)
		for container, pid := range kept {
			if now[container] != pid {
				t.Errorf("container %s of the managers left is gone\n%s\n%s", container[:12],
					other.docker("service", "ps", "--no-trunc", "web"), other.docker("node", "ls"))
			}
		}
		s.cut(gone, false)
		s.nodes[gone].start()
		eventually(t, 2*time.Minute, "the machine is back", func() bool {
			list, err := s.nodes[gone].tryTasks("web")
			return err == nil && len(slices.DeleteFunc(list, notRunning)) == 3 && s.reachable() == 3
		})
	}
}

// A service that fails again and again uses up its budget while leaders die:
// no attempt is lost and none is made twice.
func TestBudgetOverLeaderKills(t *testing.T) {
	t.Parallel()
	const attempts = 6
	s := newSite(t, 3)
	s.join(1, "manager")
	s.join(2, "manager")
	runs := filepath.Join(s.nodes[0].dir, "runs")
	if err := os.Mkdir(runs, 0o777); err != nil {
		t.Fatal(err)
	}
	s.nodes[0].docker("service", "create", "-d", "-q", "--name", "failing", "--restart-max-attempts", strconv.Itoa(attempts), "--restart-delay", "300ms",
		"--restart-condition", "on-failure", "--mount", "type=bind,src="+runs+",dst=/runs", "app:1", "sh", "-c", "touch /runs/$(hostname); sleep 1.5; exit 1")
	made := func() int {
		list, err := os.ReadDir(runs)
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	for kill := range 2 {
		eventually(t, 2*time.Minute, "some attempts", func() bool { return made() >= 2*(kill+1) })
		leader := s.leader(-1)
		s.nodes[leader].kill()
		next := s.leader(leader)
		// Each task but the first is an attempt, and counts before it runs.
		before, used := 0, 0
		eventually(t, time.Minute, "budget told", func() (ok bool) {
			before = made()
			used, ok = s.nodes[next].budget("failing")
			return ok
		})
		if after := made(); before > used+1 || used > after {
			t.Errorf("%d attempts used after kill %d, and %d to %d tasks ran", used, kill, before, after)
		}
		s.nodes[leader].start()
	}
	d := s.nodes[s.leader(-1)]
	eventually(t, 2*time.Minute, "the budget used up", func() bool {
		list, err := d.tryTasks("failing")
		used, ok := d.budget("failing")
		return err == nil && ok && used == attempts && !slices.ContainsFunc(list, func(x task) bool {
			return x.DesiredState == "running" || x.DesiredState == "ready"
		})
	})
	if n := made(); n != 1+attempts {
		t.Errorf("%d tasks were made, want the first and %d more", n, attempts)
	}
}

// budget is how many restarts of its only slot a service has used.
func (d *daemon) budget(service string) (used int, ok bool) {
	data, err := d.get("/satl/v1/services/" + service)
	if err != nil {
		return 0, false
	}
	var more struct {
		Budget struct{ Slots []struct{ Used int } }
	}
	if err := json.Unmarshal(data, &more); err != nil || len(more.Budget.Slots) != 1 {
		d.t.Errorf("budget of %s: %s (%v)", service, data, err)
		return 0, false
	}
	return more.Budget.Slots[0].Used, true
}
