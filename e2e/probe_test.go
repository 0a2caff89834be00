// SPDX-License-Identifier: BSD-2-Clause

package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/swarm"

	"satld/internal/slowday"
)

// The cases of the list "probe", and where each is shown:
//
//	probe-1   TestProbes/outlives its timeout, TestProbes/ignores SIGTERM
//	probe-2   TestProbes/leaves children
//	probe-3   TestProbeIsKilledWithItsHelper; pid files are ocijail's: jail, with stand-ins
//	probe-4   TestGiantProbeOutput
//	probe-5   TestManyProbes; the slow runtime: healthcheck.TestSlowRuntime
//	          (a probe here is not started through the runtime)
//	probe-6   TestManyProbes; the cost is measured under bench/
//	probe-7   TestHTTPProbes/redirects
//	probe-8   TestHTTPProbes/large, endless; what is read: healthcheck.TestHTTPBodies
//	probe-9   TestProbes/as the container's user
//	probe-10  TestProbes/no shell
//	probe-11  TestProbes/calls on a probed container, TestProbes/calls while a probe hangs
//	probe-12  TestProbes/paused; jails have no freezer: the FreeBSD tests

// e is what a busy machine may add to a time.
func e() time.Duration { return slowday.Of(4 * time.Second) }

func TestProbes(t *testing.T) {
	t.Parallel()
	shared := loaded(t)
	for name, f := range map[string]func(*testing.T, *daemon){
		"outlives its timeout":      func(t *testing.T, d *daemon) { outlives(t, d, "late", cmd("sleep", "3600"), "") },
		"ignores SIGTERM":           ignoresTerm,
		"leaves children":           leavesChildren,
		"as the container's user":   asUser,
		"no shell":                  noShell,
		"calls on a probed one":     callsOnProbed,
		"calls while a probe hangs": callsWhileHung,
		"paused":                    paused,
		"the last five, of 4096":    lastFive,
		"kinds without a probe":     withoutProbe,
		"image's HEALTHCHECK":       notInherited,
		"shown":                     shown,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, shared.in(t))
		})
	}
}

// ignoresTerm: SIGKILL is the first signal, so ignoring SIGTERM helps nothing.
func ignoresTerm(t *testing.T, d *daemon) {
	outlives(t, d, "stubborn", shell(`trap "echo TERM" TERM; echo begun; while :; do sleep 3600; done`), "begun")
}

// outlives: a probe that hangs is killed at its timeout, each time; never two
// of them live; what it had printed is kept.
func outlives(t *testing.T, d *daemon, name string, hc *container.HealthConfig, printed string) {
	const timeout = time.Second
	timing(time.Second, timeout, 1000)(hc)
	d.create(name, hc)
	c := d.await(20*time.Second, name, "running", func(c container.InspectResponse) bool { return c.State.Running })
	first, last := map[int]time.Time{}, map[int]time.Time{}
	var results []*container.HealthcheckResult
	for deadline := time.Now().Add(40 * time.Second); len(results) < 4; {
		if time.Now().After(deadline) {
			t.Fatalf("%d probes in 40s", len(results))
		}
		now := time.Now()
		live := 0
		all := inside(c.State.Pid)
		for _, p := range all {
			// A probe is what the helper started: its parent is none of them.
			if slices.ContainsFunc(all, func(q proc) bool { return q.pid == p.ppid }) || p.zombie() {
				continue
			}
			live++
			if first[p.pid].IsZero() {
				first[p.pid] = now
			}
			last[p.pid] = now
		}
		if live > 1 {
			t.Fatalf("%d probes live at a time: %v", live, all)
		}
		c, _ = d.look(name)
		results = c.State.Health.Log
		time.Sleep(10 * time.Millisecond)
	}
	if len(first) < 3 {
		t.Errorf("only %d probes were seen to run", len(first))
	}
	for pid := range first {
		if lived := last[pid].Sub(first[pid]); lived > timeout+e() {
			t.Errorf("probe %d lived for %v", pid, lived)
		}
	}
	for _, r := range results {
		if r.ExitCode != -1 || !strings.HasPrefix(r.Output, "Health check exceeded timeout (1s)") || !strings.Contains(r.Output, printed) || strings.Contains(r.Output, "TERM") {
			t.Errorf("result %d %q", r.ExitCode, r.Output)
		}
		if took := r.End.Sub(r.Start); took < timeout {
			t.Errorf("judged after %v, before its timeout", took)
		}
	}
}

// leavesChildren: whatever a probe starts is gone with it: children, children
// of pipes, those in a session of their own, those that ignore SIGTERM; no
// zombie stays although the main process never waits for any.
func leavesChildren(t *testing.T, d *daemon) {
	ctl := controls(t)
	for i, line := range []string{
		"sleep 600 & sleep 600",
		"sleep 600 | cat",
		`(trap "" TERM; sleep 600) & setsid sleep 600 & sleep 600`,
	} {
		name := fmt.Sprintf("children%d", i)
		// After its pass the next probe is an hour away: what is there then was left.
		d.create(name, shell(`[ -e /ctl/pass ] && { sleep 600 & exit 0; }; `+line, timing(time.Hour, time.Second, 1000), starting(0, 300*time.Millisecond)), control(ctl))
	}
	for i := range 3 {
		d.awaitProbes(60*time.Second, fmt.Sprintf("children%d", i), 5)
	}
	touch(t, ctl, "pass")
	for i := range 3 {
		name := fmt.Sprintf("children%d", i)
		c := d.awaitHealth(20*time.Second, name, "healthy")
		if r := c.State.Health.Log[0]; r.ExitCode != -1 {
			t.Errorf("%s: %d %q", name, r.ExitCode, r.Output)
		}
		for range 20 {
			if left := inside(c.State.Pid); len(left) > 0 {
				t.Fatalf("%s: left by its probes: %v", name, left)
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
}

// asUser: the container's environment, working directory, user and groups.
func asUser(t *testing.T, d *daemon) {
	d.create("user", shell(`pwd; id -u; id -g; echo "$FOO $V"`), func(s *swarm.ServiceSpec) {
		c := s.TaskTemplate.ContainerSpec
		c.Image, c.Dir, c.User, c.Env = "app:2", "/tmp", "1000:1000", []string{"FOO=bar"}
		c.Command = []string{"sleep", "1000"}
	})
	c := d.awaitHealth(20*time.Second, "user", "healthy")
	if got := c.State.Health.Log[0].Output; got != "/tmp\n1000\n1000\nbar 2\n" {
		t.Errorf("the probe is in %q", got)
	}
}

// noShell: CMD needs none; CMD-SHELL without one is a failed probe that names it.
func noShell(t *testing.T, d *daemon) {
	archive, err := staticImage()
	if err != nil {
		t.Fatal(err)
	}
	d.docker("load", "-q", "-i", archive)
	d.create("direct", cmd("/app", "-probe", "http://127.0.0.1/health"), image("static:1"))
	d.create("shelled", shell("/app -probe http://127.0.0.1/health"), image("static:1"))
	d.awaitHealth(20*time.Second, "direct", "healthy")
	c := d.awaitProbes(30*time.Second, "shelled", 3)
	for _, r := range c.State.Health.Log {
		if r.ExitCode != -1 || !strings.Contains(r.Output, "/bin/sh") || !strings.Contains(r.Output, "no such file") {
			t.Errorf("without a shell: %d %q", r.ExitCode, r.Output)
		}
	}
	if h := c.State.Health; h.Status != "starting" || h.FailingStreak < 3 {
		t.Errorf("without a shell: %s, streak %d", h.Status, h.FailingStreak)
	}
}

// quick calls the API and fails the test when that takes longer than limit.
func (d *daemon) quick(limit time.Duration, method, path string, body any) (int, []byte) {
	d.t.Helper()
	begun := time.Now()
	status, answer := d.call(method, path, body)
	if took := time.Since(begun); took > slowday.Of(limit) {
		d.t.Errorf("%s %s took %v", method, path, took)
	}
	return status, answer
}

// callsOnProbed: stop, inspect and rm of probed containers, over and over.
func callsOnProbed(t *testing.T, d *daemon) {
	d.create("hello", shell("echo hello", timing(100*time.Millisecond, time.Second, 1)), replicas(2), restarts(0))
	for range 4 {
		var names []string
		for slot := 1; slot <= 2; slot++ {
			c := d.awaitProbes(30*time.Second, fmt.Sprintf("hello.%d", slot), 2)
			names = append(names, c.ID)
		}
		done := make(chan struct{}, 2)
		for _, id := range names {
			go func() {
				defer func() { done <- struct{}{} }()
				// The application ends at its signal; the grace is 1 s.
				if status, answer := d.quick(time.Second+2*time.Second+e(), "POST", "/containers/"+id+"/stop", nil); status != http.StatusNoContent {
					t.Errorf("stop: %d %s", status, answer)
				}
			}()
		}
		for stopping := 2; stopping > 0; {
			for _, id := range names {
				if status, _ := d.quick(time.Second, "GET", "/containers/"+id+"/json", nil); status != http.StatusOK && status != http.StatusNotFound {
					t.Errorf("inspect: %d", status)
				}
			}
			select {
			case <-done:
				stopping--
			default:
			}
		}
		if status, answer := d.quick(2*time.Second+e(), "DELETE", "/containers/"+names[0]+"?force=1", nil); status != http.StatusNoContent && status != http.StatusNotFound && status != http.StatusConflict {
			t.Errorf("rm: %d %s", status, answer)
		}
	}
	d.remove("hello")
}

// callsWhileHung: with a probe in flight that hangs for good, everything else
// works, and rm -f takes the probe with it.
func callsWhileHung(t *testing.T, d *daemon) {
	hc := shell("sleep 3599", timing(100*time.Millisecond, 600*time.Second, 1))
	for _, name := range []string{"hung", "hung2"} {
		d.create(name, hc)
	}
	for _, name := range []string{"hung", "hung2"} {
		var c container.InspectResponse
		eventually(t, 20*time.Second, "probe of "+name, func() bool {
			var ok bool
			c, ok = d.look(name)
			return ok && c.State.Running && len(inside(c.State.Pid)) > 0
		})
		pid := hostPid(t, c.State.Pid, func(p proc) bool { return p.args == "sleep 3599" })
		for range 10 {
			d.quick(time.Second, "GET", "/containers/"+name+"/json", nil)
		}
		if out := d.docker("exec", c.ID, "echo", "fine"); out != "fine" {
			t.Errorf("exec printed %q", out)
		}
		d.quick(time.Second, "GET", "/containers/json", nil)
		if name == "hung" {
			d.quick(time.Second+2*time.Second+e(), "POST", "/containers/"+c.ID+"/stop", nil)
		} else if status, answer := d.quick(2*time.Second+e(), "DELETE", "/containers/"+c.ID+"?force=1", nil); status != http.StatusNoContent {
			t.Errorf("rm -f: %d %s", status, answer)
		}
		if lives(pid) || lives(c.State.Pid) {
			t.Errorf("%s: its probe or its main process outlived it", name)
		}
	}
}

// paused: no probe is begun, the one in flight is abandoned, the health stays
// as it was, and the next comes within an interval of unpause.
func paused(t *testing.T, d *daemon) {
	ctl := controls(t)
	d.create("frozen", shell("[ ! -e /ctl/hang ] || sleep 3601", timing(time.Second, 5*time.Second, 1)), control(ctl))
	c := d.awaitHealth(20*time.Second, "frozen", "healthy")
	touch(t, ctl, "hang")
	eventually(t, 10*time.Second, "probe in flight", func() bool { return len(inside(c.State.Pid)) > 0 })
	before, _ := d.look("frozen")
	d.must("POST", "/containers/frozen/pause", nil, nil)
	untouch(t, ctl, "hang")
	for range 60 { // longer than the probe's timeout
		if p := inside(c.State.Pid); len(p) > 0 {
			t.Fatalf("probed while paused: %v", p)
		}
		time.Sleep(100 * time.Millisecond)
	}
	now, _ := d.look("frozen")
	if !now.State.Paused || now.State.Health.Status != "healthy" || now.State.Health.FailingStreak != 0 || len(now.State.Health.Log) != len(before.State.Health.Log) {
		t.Errorf("paused: %+v, was %+v", now.State.Health, before.State.Health)
	}
	resumed := time.Now()
	d.must("POST", "/containers/frozen/unpause", nil, nil)
	now = d.await(time.Second+2*e(), "frozen", "probed again", func(c container.InspectResponse) bool {
		return c.State.Health.Log[len(c.State.Health.Log)-1].Start.After(resumed)
	})
	if r := now.State.Health.Log[len(now.State.Health.Log)-1]; r.Start.Sub(resumed) > time.Second+e() || r.ExitCode != 0 {
		t.Errorf("first probe %v after unpause: %d %q", r.Start.Sub(resumed), r.ExitCode, r.Output)
	}
	if slices.ContainsFunc(now.State.Health.Log, func(r *container.HealthcheckResult) bool { return r.ExitCode != 0 }) {
		t.Errorf("the abandoned probe was counted: %+v", now.State.Health.Log)
	}
}

// lastFive: five results, 4096 bytes of each, both streams, valid UTF-8.
func lastFive(t *testing.T, d *daemon) {
	ctl := controls(t)
	d.create("wordy", shell(`n=$(cat /ctl/n 2>/dev/null || echo 0); n=$((n+1)); echo $n > /ctl/n; echo run $n; echo oops >&2; printf '\377\n'; yes 0123456789 | head -c 10000; [ $n -lt 8 ]`,
		timing(200*time.Millisecond, 5*time.Second, 1000)), control(ctl))
	c := d.await(30*time.Second, "wordy", "probed 8 times", func(c container.InspectResponse) bool {
		return c.State.Health != nil && c.State.Health.FailingStreak >= 1
	})
	log := c.State.Health.Log
	if len(log) != 5 {
		t.Fatalf("%d results are kept", len(log))
	}
	for i, r := range log {
		if i > 0 && !r.Start.After(log[i-1].Start) {
			t.Errorf("results are not in order: %v after %v", r.Start, log[i-1].Start)
		}
		if len(r.Output) > 4096 || len(r.Output) < 4090 || !strings.HasPrefix(r.Output, "run ") || !strings.Contains(r.Output, "oops\n\uFFFD\n0123456789\n") {
			t.Errorf("output of %d bytes: %.40q", len(r.Output), r.Output)
		}
	}
	if last := log[4]; log[3].ExitCode != 0 && !strings.HasPrefix(last.Output, "run 8\n") {
		t.Errorf("last result %d %.20q", last.ExitCode, last.Output)
	}
}

// withoutProbe: NONE, Docker's marker of inheritance and unknown kinds run no
// probe; the task is RUNNING at its start and has no health to show.
func withoutProbe(t *testing.T, d *daemon) {
	for _, c := range []struct {
		name    string
		test    []string
		warning string
	}{
		{"none", []string{"NONE"}, ""},
		{"inherit", []string{""}, "no probe is run"},
		{"unknown", []string{"FOO", "exit 1"}, `unknown healthcheck type "FOO"`},
	} {
		warnings := strings.Join(d.create(c.name, probe(c.test)), "; ")
		if c.warning == "" && warnings != "" || !strings.Contains(warnings, c.warning) {
			t.Errorf("%s: warned of %q", c.name, warnings)
		}
		d.awaitTask(20*time.Second, c.name, "running", func(x task) bool { return x.Status.State == "running" })
		if found, _ := d.look(c.name); found.State.Health != nil {
			t.Errorf("%s: health %+v", c.name, found.State.Health)
		}
	}
}

// notInherited: the image's HEALTHCHECK, which would fail, is not run.
func notInherited(t *testing.T, d *daemon) {
	archive, err := staticImage()
	if err != nil {
		t.Fatal(err)
	}
	d.docker("load", "-q", "-i", archive)
	d.create("plain", nil, image("checked:1"))
	d.awaitTask(20*time.Second, "plain", "running", func(x task) bool { return x.Status.State == "running" })
	if c, _ := d.look("plain"); c.State.Health != nil {
		t.Errorf("health %+v", c.State.Health)
	}
}

// shown: STATUS of ps, names, events, and the log lines of a task.
func shown(t *testing.T, d *daemon) {
	ctl, begun := controls(t), time.Now()
	d.create("web", shell("[ -e /ctl/ok ]", timing(time.Second, time.Second, 2)), control(ctl))
	c := d.await(20*time.Second, "web", "up", func(c container.InspectResponse) bool { return c.State.Running })
	x := d.awaitTask(10*time.Second, "web", "starting", func(x task) bool { return x.Status.State == "starting" })
	if out := d.docker("ps", "--filter", "name=web.1", "--format", "{{.Status}}"); !strings.HasPrefix(out, "Up ") || !strings.HasSuffix(out, " (health: starting)") {
		t.Errorf("ps shows %q", out)
	}
	for _, name := range []string{"web", "web.1", "web.1." + x.ID, c.ID, c.ID[:12]} {
		if got, ok := d.look(name); !ok || got.ID != c.ID || got.Name != "/web.1."+x.ID {
			t.Errorf("%s is %v %q", name, ok, got.Name)
		}
	}
	touch(t, ctl, "ok")
	d.awaitHealth(10*time.Second, "web", "healthy")
	if out := d.docker("ps", "--filter", "name=web.1", "--format", "{{.Status}}"); !strings.HasSuffix(out, " (healthy)") {
		t.Errorf("ps shows %q", out)
	}
	untouch(t, ctl, "ok")
	d.awaitTask(20*time.Second, "web", "failed", failed)
	var actions []string
	for _, m := range d.happened(begun, `{"container":["`+c.ID+`"]}`) {
		actions = append(actions, string(m.Action))
		if m.Actor.Attributes["name"] != "web.1."+x.ID || m.Actor.Attributes["com.docker.swarm.task.id"] != x.ID {
			t.Errorf("event %s of %v", m.Action, m.Actor.Attributes)
		}
	}
	if got := strings.Join(actions, ", "); !strings.HasPrefix(got, "create, start, health_status: healthy, health_status: unhealthy, kill, die") {
		t.Errorf("events: %s", got)
	}
	for line := range strings.Lines(d.whole()) {
		about := strings.Contains(line, x.ID) || strings.Contains(line, c.ID[:12])
		request := strings.Contains(line, "/containers/") || strings.Contains(line, "/tasks")
		if about && !request && !strings.Contains(line, "task_id="+x.ID) {
			t.Errorf("a log line of a task without task_id=: %s", line)
		}
	}
}

// A helper killed from outside takes the probe's command with it, and so does
// the daemon: nothing of a probe outlives who waits for it.
func TestProbeIsKilledWithItsHelper(t *testing.T) {
	t.Parallel()
	d := loaded(t)
	d.create("web", shell("sleep 3602 & sleep 3602", timing(time.Second, time.Minute, 1000)))
	c := d.await(20*time.Second, "web", "up", func(c container.InspectResponse) bool { return c.State.Running })
	sleeps := func() bool {
		n := 0
		for _, p := range inside(c.State.Pid) {
			if p.args == "sleep 3602" {
				n++
			}
		}
		return n == 2
	}
	eventually(t, 20*time.Second, "probe in flight", sleeps)
	all := helpers(d.cmd.Process.Pid)
	if len(all) != 1 {
		t.Fatalf("helpers: %v", all)
	}
	signal(t, all[0].pid, syscall.SIGKILL)
	c = d.awaitProbes(time.Second+e(), "web", 1)
	if r := c.State.Health.Log[0]; r.ExitCode == 0 {
		t.Errorf("a probe that was killed: %d %q", r.ExitCode, r.Output)
	}
	// Who should have waited for them was killed, so they may be zombies.
	alive := func() []proc { return slices.DeleteFunc(inside(c.State.Pid), proc.zombie) }
	if left := alive(); len(left) > 0 {
		t.Errorf("judged and still there: %v", left)
	}
	eventually(t, 20*time.Second, "next probe", sleeps)
	d.kill()
	eventually(t, time.Second+e(), "probe of a daemon that was killed is gone", func() bool { return len(alive()) == 0 })
	if !lives(c.State.Pid) {
		t.Error("so is the task")
	}
	d.start()
	eventually(t, 20*time.Second, "probed by the new daemon", sleeps)
}
