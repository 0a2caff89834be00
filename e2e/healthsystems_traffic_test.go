// SPDX-License-Identifier: BSD-2-Clause

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
)

// What a verdict does to traffic and to the task (spec/replica-health.txt,
// "Running"; spec/application-health.txt, "How the gateway uses it").
func TestHealthAndTraffic(t *testing.T) {
	t.Parallel()
	shared := loaded(t)
	for i, c := range []struct {
		name string
		f    func(t *testing.T, d *daemon, port int)
	}{
		{"two thresholds", twoThresholds},
		{"start limit", startLimit},
		{"unroute alone", unrouteAlone},
		{"shown alone", shownAlone},
		{"fail-open", failOpen},
		{"unready", unready},
		{"change of the check", changeOfTheCheck},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.f(t, shared.in(t), shared.port(i))
		})
	}
}

// reached are the host names that answer at a published port of a few tasks.
func reached(port int) map[string]bool {
	seen := map[string]bool{}
	for range 6 {
		if body, err := fetch(fmt.Sprintf("http://127.0.0.1:%d/", port)); err == nil {
			seen[body] = true
		}
	}
	return seen
}

// awaitReached waits until exactly these containers answer at a port.
func (d *daemon) awaitReached(what string, port int, ids ...string) {
	d.t.Helper()
	eventually(d.t, 30*time.Second, what, func() bool {
		seen := reached(port)
		for _, id := range ids {
			if !seen[id[:12]] {
				return false
			}
		}
		return len(seen) == len(ids)
	})
}

// slots are the containers of a service's tasks that run, by slot.
func (d *daemon) slots(service string, n int) map[int]string {
	d.t.Helper()
	found := map[int]string{}
	eventually(d.t, 30*time.Second, fmt.Sprintf("%d tasks of %s run", n, service), func() bool {
		clear(found)
		for _, x := range d.running(service) {
			found[x.Slot] = x.Status.ContainerStatus.ContainerID
		}
		return len(found) == n
	})
	return found
}

func (d *daemon) makeBad(id string) { d.t.Helper(); d.docker("exec", id, "touch", "/tmp/bad") }

func (d *daemon) makeGood(id string) { d.t.Helper(); d.docker("exec", id, "rm", "/tmp/bad") }

func publishes(port int) []string { return []string{"-p", fmt.Sprintf("%d:80", port)} }

// twoThresholds: at the first it leaves traffic and lives, at the second it is
// replaced.
func twoThresholds(t *testing.T, d *daemon, port int) {
	d.probed("two", "http=/health unroute-after=2 replace-after=8", append(publishes(port), "--restart-delay", "0s")...)
	first := d.slots("two", 1)[1]
	d.awaitReached("served", port, first)
	d.makeBad(first)
	d.awaitReached("out of traffic", port)
	if r := d.running("two"); len(r) != 1 || r[0].Status.ContainerStatus.ContainerID != first {
		// It had six probes more to live; a busy machine may have taken those.
		t.Logf("it was replaced before it was looked at: %+v", r)
	}
	x := d.awaitTask(60*time.Second, "two", "failed", failed)
	if !strings.Contains(x.Status.Err, "unhealthy: 8/8 probes failed") || !strings.Contains(x.Status.Err, "HTTP 503") {
		t.Errorf("failed with %q", x.Status.Err)
	}
	var order []string
	for line := range strings.Lines(d.whole()) {
		if !strings.Contains(line, x.ID) {
			continue
		}
		for _, msg := range []string{`msg="health changed"`, `msg="container is to be replaced"`} {
			if strings.Contains(line, msg) && strings.Contains(line, "unhealthy") {
				order = append(order, msg)
			}
		}
	}
	if len(order) != 2 || !strings.Contains(order[1], "replaced") {
		t.Errorf("the log has %q", order)
	}
	eventually(t, 30*time.Second, "replaced and served", func() bool {
		seen := reached(port)
		return len(seen) == 1 && !seen[first[:12]]
	})
}

// startLimit: failures of a start are not counted; it has a limit in all.
func startLimit(t *testing.T, d *daemon, _ int) {
	d.probed("slow", "http=/status?code=503 http.port=80 start-limit=4s unroute-after=1", "--restart-condition", "none")
	x := d.awaitTask(60*time.Second, "slow", "failed", failed)
	if !strings.Contains(x.Status.Err, "4s") || !strings.Contains(x.Status.Err, "HTTP 503") {
		t.Errorf("failed with %q", x.Status.Err)
	}
	c, ok := d.look(x.Status.ContainerStatus.ContainerID)
	if !ok {
		t.Fatal("its container is gone")
	}
	log := c.State.Health.Log
	if n := len(log); n < 2 || log[n-1].End.Sub(log[0].Start) < 2*time.Second {
		t.Errorf("given up after %d probes: %+v", n, log)
	}
}

// unrouteAlone: whatever it does, it is not replaced for its health.
func unrouteAlone(t *testing.T, d *daemon, port int) {
	d.probed("kept", "http=/health action=unroute", append(publishes(port), "--health-retries", "1")...)
	id := d.slots("kept", 1)[1]
	d.awaitReached("served", port, id)
	d.makeBad(id)
	d.awaitReached("out of traffic", port)
	d.await(60*time.Second, id, "failing for long", func(c container.InspectResponse) bool { return c.State.Health.FailingStreak >= 5 })
	d.makeGood(id)
	d.awaitReached("back", port, id)
	if n := len(d.tasks("kept")); n != 1 {
		t.Errorf("%d tasks", n)
	}
}

// shownAlone: health is shown, and has no say.
func shownAlone(t *testing.T, d *daemon, port int) {
	d.probed("shown", "http=/status?code=500 http.port=80 action=none", append(publishes(port), "--health-retries", "1")...)
	id := d.slots("shown", 1)[1]
	d.awaitHealth(30*time.Second, id, "unhealthy")
	d.awaitReached("served all the same", port, id)
	if out := d.docker("ps", "--filter", "id="+id, "--format", "{{.Status}}"); !strings.HasSuffix(out, "(unhealthy)") {
		t.Errorf("ps shows %q", out)
	}
}

// failOpen: where nobody passes all that run are sent traffic, and that is
// shown; one that is starting is not.
func failOpen(t *testing.T, d *daemon, port int) {
	d.probed("open", "http=/health replace-after=600", append(publishes(port), "--health-retries", "2", "--replicas", "2", "--label", "satl.traffic.fail-open=true")...)
	ids := d.slots("open", 2)
	d.awaitReached("both serve", port, ids[1], ids[2])
	d.makeBad(ids[1])
	d.awaitReached("the one that passes", port, ids[2])
	d.makeBad(ids[2])
	eventually(t, 30*time.Second, "failing open", func() bool { h := d.health("open"); return h.FailingOpen && h.Serving == 2 })
	d.awaitReached("both, as nobody passes", port, ids[1], ids[2])
	if addrs := d.resolve("open"); len(addrs) != 2 {
		t.Errorf("its name is answered with %v", addrs)
	}
	if out, _ := d.satl("health", "open"); !strings.Contains(out, "failing open") {
		t.Errorf("health does not say so:\n%s", out)
	}
	// One more that does not come to pass is not among them.
	d.docker("service", "scale", "-d", "open=3")
	third := d.await(30*time.Second, "open.3", "up", func(c container.InspectResponse) bool { return c.State.Running })
	if reached(port)[third.ID[:12]] && d.taskState("open", 3) == "starting" {
		t.Error("one that is starting is sent traffic")
	}
	d.awaitReached("the one that passes alone", port, third.ID)
	d.makeGood(ids[2])
	d.awaitReached("those that pass", port, ids[2], third.ID)
	if h := d.health("open"); h.FailingOpen {
		t.Error("it still says that it fails open")
	}
	// The one that is out of traffic is the first to go.
	d.docker("service", "scale", "-d", "open=2")
	if slots := d.slots("open", 2); slots[2] != ids[2] || slots[3] != third.ID {
		t.Errorf("left: %v", slots)
	}
}

func (d *daemon) taskState(service string, slot int) (state string) {
	d.t.Helper()
	for _, x := range d.tasks(service) {
		if x.Slot == slot {
			state = x.Status.State
		}
	}
	return state
}

// unready: an operator's word on a task, and on the node, closes a service that
// would fail open; its tasks are reached by their own addresses, and the word
// outlives the daemon that took it.
func unready(t *testing.T, _ *daemon, _ int) {
	d := loaded(t)
	port := d.port(0)
	d.probed("held", "http=/health", append(publishes(port), "--label", "satl.traffic.fail-open=true")...)
	id := d.slots("held", 1)[1]
	c, _ := d.look(id)
	direct := "http://" + address(t, c) + "/"
	node := d.docker("info", "--format", "{{.Swarm.NodeID}}")
	closed := func(what string) {
		t.Helper()
		d.awaitReached(what, port)
		if body, err := fetch(direct); err != nil || body != id[:12] {
			t.Errorf("%s: at its own address it says %q, %v", what, body, err)
		}
		if h := d.health("held"); h.FailingOpen || h.Serving != 0 || h.Tasks[0].Ready || h.Tasks[0].Verdict != "healthy" {
			t.Errorf("%s: %+v", what, h)
		}
	}
	for _, who := range []string{"held.1", node} {
		d.awaitReached("served", port, id)
		if out, code := d.satl("unready", who); code != 0 {
			t.Fatalf("unready %s: exit %d, %s", who, code, out)
		}
		closed("unready " + who)
		d.kill()
		d.start()
		d.awaitHealth(30*time.Second, id, "healthy")
		closed("unready " + who + ", another daemon")
		if out, code := d.satl("ready", who); code != 0 {
			t.Fatalf("ready %s: exit %d, %s", who, code, out)
		}
	}
	d.awaitReached("served in the end", port, id)
	if n := len(d.tasks("held")); n != 1 {
		t.Errorf("%d tasks", n)
	}
}

// changeOfTheCheck: another check is another version of the task. A rolling
// update has the old one serve until the new one passes; where the old one is
// stopped first nobody serves until then.
func changeOfTheCheck(t *testing.T, d *daemon, port int) {
	d.probed("check", "http=/health", append(publishes(port), "--health-retries", "30", "--update-order", "start-first", "--update-monitor", "1s")...)
	first := d.slots("check", 1)[1]
	d.awaitReached("served", port, first)
	update := func(path string, args ...string) {
		d.docker(append(append([]string{"service", "update", "-q", "--no-resolve-image", "--container-label-add", "satl.health.http=" + path}, args...), "check")...)
	}
	stop, gaps := make(chan struct{}), make(chan int)
	go func() {
		n := 0
		for {
			select {
			case <-stop:
				gaps <- n
				return
			default:
			}
			if _, err := fetch(fmt.Sprintf("http://127.0.0.1:%d/", port)); err != nil {
				n++
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()
	update("/health?again")
	close(stop)
	if n := <-gaps; n > 0 {
		t.Errorf("a rolling update of the check cost %d requests", n)
	}
	second := d.slots("check", 1)[1]
	if second == first {
		t.Fatal("another check did not redeploy the service")
	}
	d.awaitReached("the new one serves", port, second)
	// Recreate: the old one has ended before the new one is proved.
	update("/health?thrice", "--update-order", "stop-first", "--args", "/app -delay 4s", "-d")
	d.awaitReached("nobody", port)
	third := d.slots("check", 1)[1]
	d.awaitReached("the newest serves", port, third)
	if third == second {
		t.Error("it was not recreated")
	}
}
