// SPDX-License-Identifier: BSD-2-Clause

package executor

import (
	"errors"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"satld/healthcheck"
)

// DESIGN.md section 5: out of traffic, stop signal and grace, FAILED with the reason.
func TestUnhealthyIsWithdrawnThenStoppedThenFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		defer b.close()
		bad := switched(b)
		c := prepared(t, b, webTask(everySecond(3)))
		if err := c.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		bad.Store(true)
		begun := time.Now()
		err := c.Wait(t.Context())
		if !errors.Is(err, errUnhealthy) {
			t.Fatalf("Wait returned %v, want an unhealthy error although it exited 0", err)
		}
		if took := time.Since(begun); took != 3*time.Second {
			t.Errorf("FAILED after %v, want 3s", took)
		}
		for _, want := range []string{"unhealthy", "3/3", "7", "gone"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q does not name %q", err, want)
			}
		}
		if b.j.at("withdraw") < 0 || b.j.at("withdraw") > b.j.at("kill 15") {
			t.Errorf("not withdrawn before its stop signal: %q", b.j.all())
		}
	})
}

// Of changes that came together the last is acted on, as it is all there is to
// know; but no later pass saves a task that need not wait for its turn, and none
// that has yet to pass waits for one.
func TestDecisiveChange(t *testing.T) {
	pass := healthcheck.Transition{To: healthcheck.Healthy}
	unrouted := healthcheck.Transition{To: healthcheck.Unhealthy, Health: healthcheck.Health{Unrouted: true}}
	condemned := healthcheck.Transition{To: healthcheck.Unhealthy, Health: healthcheck.Health{Unrouted: true, Condemned: "unhealthy"}}
	waits, never, atOnce := Record{InTurn: true, Proved: true}, Record{InTurn: true}, Record{Proved: true}
	n := &Node{cfg: Config{Leader: &fakeLeader{}}}
	for i, c := range []struct {
		r    Record
		all  []healthcheck.Transition
		want int
	}{
		{atOnce, []healthcheck.Transition{pass, unrouted}, 1},
		{atOnce, []healthcheck.Transition{unrouted, pass}, 1},
		{atOnce, []healthcheck.Transition{unrouted, condemned, pass}, 1},
		{waits, []healthcheck.Transition{condemned, pass}, 1},
		{waits, []healthcheck.Transition{condemned, pass, condemned}, 2},
		{never, []healthcheck.Transition{condemned, pass}, 0},
		{never, []healthcheck.Transition{unrouted, condemned, pass}, 1},
		{never, []healthcheck.Transition{pass, condemned, pass}, 2}, // it has passed by then
	} {
		if got := n.decisive(c.r, c.all); !reflect.DeepEqual(got, c.all[c.want]) {
			t.Errorf("row %d: %+v, want change %d", i, got, c.want)
		}
	}
}

// A verdict stands: a pass that comes while the task is being withdrawn does
// not bring back what is about to be stopped.
func TestPassAfterTheVerdictIsTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		defer b.close()
		bad := switched(b)
		c := prepared(t, b, webTask(everySecond(3)))
		if err := c.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		bad.Store(true)
		time.Sleep(2500 * time.Millisecond)
		b.traffic.stuckUntil = time.Now().Add(time.Hour)
		time.Sleep(time.Second) // unhealthy for half a second, and not confirmed as withdrawn
		bad.Store(false)
		served := false
		stop := make(chan struct{})
		var watch sync.WaitGroup
		watch.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(time.Millisecond):
					served = served || b.traffic.serving(taskContainerID("task1"))
				}
			}
		})
		if err := c.Wait(t.Context()); !errors.Is(err, errUnhealthy) || !strings.Contains(err.Error(), "3/3") {
			t.Errorf("Wait returned %v, want what condemned it", err)
		}
		close(stop)
		watch.Wait()
		if served {
			t.Error("in traffic again before it was stopped")
		}
	})
}

// The same where the verdict and the pass both come while an earlier change is
// still being put through.
func TestPassBehindTheVerdictIsTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		defer b.close()
		bad := switched(b)
		b.traffic.putStuck = true // the first pass waits for its 5 s
		time.AfterFunc(1500*time.Millisecond, func() { bad.Store(true) })
		time.AfterFunc(3500*time.Millisecond, func() { bad.Store(false) })
		c := prepared(t, b, webTask(everySecond(2)))
		err := c.Start(t.Context())
		if err == nil {
			err = c.Wait(t.Context())
		}
		if !errors.Is(err, errUnhealthy) || !strings.Contains(err.Error(), "2/2") {
			t.Errorf("ended with %v, want what condemned it", err)
		}
	})
}

func TestUnhealthyThatIgnoresItsSignalIsKilledAfterItsGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		defer b.close()
		b.rt.ignoreTerm = true
		b.rt.probe = func(string) (int, string) { return 1, "" }
		c := prepared(t, b, webTask(everySecond(2)))
		begun := time.Now()
		err := c.Start(t.Context())
		if !errors.Is(err, errUnhealthy) {
			t.Fatalf("Start of a task that never becomes healthy returned %v", err)
		}
		if took := time.Since(begun); took != 4*time.Second {
			t.Errorf("FAILED after %v, want 2s of probes and 2s of grace", took)
		}
	})
}

// What is shown of a probed task whose monitor is gone: what it knew at its end
// or, of one that an earlier daemon condemned, what the record says.
func TestHealthWithoutAMonitor(t *testing.T) {
	b := newBench(t)
	defer b.close()
	task := webTask(everySecond(3))
	probed, err := taskRecord(task, task.Spec.GetContainer())
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		state     State
		unhealthy string
		unprobed  bool
		known     *healthcheck.Health
		want      string // "": nothing
	}{
		"not begun":                     {Created, "", false, nil, ""},
		"about to be probed":            {Running, "", false, nil, "starting"},
		"condemned by an earlier":       {Running, "unhealthy: x", false, nil, "unhealthy"},
		"and ended":                     {Exited, "unhealthy: x", false, nil, "unhealthy"},
		"ended":                         {Exited, "", false, nil, ""},
		"ended, and its monitor knew":   {Exited, "", false, &healthcheck.Health{Status: healthcheck.Healthy}, "healthy"},
		"its monitor knew more":         {Exited, "unhealthy: x", false, &healthcheck.Health{Status: healthcheck.Healthy}, "healthy"},
		"without a probe, whatever was": {Running, "unhealthy: x", true, nil, ""},
	} {
		r := probed
		r.State, r.Unhealthy = c.state, c.unhealthy
		if c.unprobed {
			r.TaskID = ""
		}
		ctr := newContainer(r)
		ctr.health = c.known
		h, got := b.node.health(ctr), ""
		if h != nil {
			got = h.Status.String()
		}
		if got != c.want || h != nil && c.known == nil && h.Log == nil {
			t.Errorf("%s: %+v, want %q", name, h, c.want)
		}
	}
}
