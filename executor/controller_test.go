// SPDX-License-Identifier: BSD-2-Clause

package executor

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/moby/swarmkit/v2/agent/exec"
	"github.com/moby/swarmkit/v2/api"
)

func controllerOf(t *testing.T, b *bench, task *api.Task) exec.Controller {
	t.Helper()
	c, err := b.node.Controller(task)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func mustGet(t *testing.T, b *bench, name string) Snapshot {
	t.Helper()
	s, err := b.node.Get(name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func prepared(t *testing.T, b *bench, task *api.Task) exec.Controller {
	t.Helper()
	c := controllerOf(t, b, task)
	if err := c.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c
}

// spec/healthchecks.txt, "The first difference: health gates RUNNING".
func TestStartReturnsAtTheFirstPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		defer b.close()
		bad := switched(b)
		bad.Store(true)
		c := prepared(t, b, webTask(everySecond(10)))
		begun := time.Now()
		time.AfterFunc(3500*time.Millisecond, func() { bad.Store(false) })
		if err := c.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begun); took != 4*time.Second {
			t.Errorf("RUNNING after %v, want 4s: the first probe that passed", took)
		}
		// The settings in effect are shown: the wait while never yet healthy too.
		if hc := mustGet(t, b, "web").Config.Healthcheck; hc.StartInterval != time.Second || hc.Retries != 10 || hc.Timeout != time.Second {
			t.Errorf("shown %+v", hc)
		}
		if want := []string{"create", "start", "put serving=false", "put serving=true"}; !slices.Equal(b.j.all(), want) {
			t.Errorf("got %q, want %q", b.j.all(), want)
		}
	})
}

func TestStartWithoutProbeReturnsAtOnceAndServes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		defer b.close()
		c := prepared(t, b, webTask(nil))
		begun := time.Now()
		if err := c.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if time.Since(begun) != 0 || !b.traffic.serving(taskContainerID("task1")) {
			t.Errorf("after %v, serving %t", time.Since(begun), b.traffic.serving(taskContainerID("task1")))
		}
		if s, err := b.node.Get("web"); err != nil || s.Health != nil {
			t.Errorf("the image's HEALTHCHECK was inherited: %+v, %v", s.Health, err)
		}
	})
}

// cases/pool.md, pool-4: not killed before the withdrawal was applied.
func TestStopWaitsForTheWithdrawal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		defer b.close()
		c := prepared(t, b, webTask(nil))
		if err := c.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		b.traffic.stuckUntil = time.Now().Add(1500 * time.Millisecond)
		begun := time.Now()
		if err := c.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begun); took != 1500*time.Millisecond+PublishedDrain || b.j.at("withdraw") > b.j.at("kill 15") {
			t.Errorf("stopped after %v: %q", took, b.j.all())
		}
	})
}

func TestStopIsNotWedgedByABrokenPacketFilter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		defer b.close()
		c := prepared(t, b, webTask(nil))
		if err := c.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		b.traffic.stuckUntil = time.Now().Add(time.Hour)
		begun := time.Now()
		if err := c.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begun); took != withdrawBound+PublishedDrain {
			t.Errorf("stopped after %v, want %v", took, withdrawBound+PublishedDrain)
		}
	})
}

// spec/healthchecks.txt, "Health is node-local": adopted undisturbed, starting
// again, streak 0; cases/verdict.md, verdict-6 A.
func TestAdoptedTaskKeepsServing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		c := prepared(t, b, webTask(everySecond(3)))
		if err := c.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		b.close()
		before := len(b.j.all())
		b.open()
		defer b.close()
		id := taskContainerID("task1")
		if !b.traffic.serving(id) {
			t.Error("a proven task lost its traffic over a restart of the daemon")
		}
		s, err := b.node.Get("web.1")
		if err != nil || s.Health == nil || s.Health.Status.String() != "starting" || s.Health.FailingStreak != 0 || len(s.Health.Log) != 0 {
			t.Errorf("health after the restart: %+v, %v", s.Health, err)
		}
		time.Sleep(2 * time.Second)
		if s, _ := b.node.Get("web.1"); s.Health.Status.String() != "healthy" {
			t.Errorf("not probed afresh: %v", s.Health.Status)
		}
		if again := controllerOf(t, b, webTask(everySecond(3))); again.Prepare(t.Context()) != exec.ErrTaskPrepared {
			t.Error("an adopted task was prepared again")
		}
		for _, line := range b.j.all()[before:] {
			if line == "create" || line == "start" || strings.HasPrefix(line, "kill") || line == "delete" {
				t.Errorf("the adopted task was disturbed: %s", line)
			}
		}
		b.rt.end(id, 3)
		if err := controllerOf(t, b, webTask(nil)).Wait(t.Context()); err == nil || !strings.Contains(err.Error(), "non-zero exit (3)") {
			t.Errorf("Wait of an adopted task: %v", err)
		}
	})
}

// cases/verdict.md, verdict-6 B: an unhealthy task never enters again, and its
// stop goes on where the daemon ended.
func TestUnhealthyTaskIsStoppedByTheNextDaemon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.rt.ignoreTerm = true
		bad := switched(b)
		task := webTask(everySecond(1))
		c := prepared(t, b, task)
		if err := c.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		bad.Store(true)
		time.Sleep(1500 * time.Millisecond) // the verdict fell, the grace runs
		b.close()
		b.open()
		defer b.close()
		if b.traffic.serving(taskContainerID("task1")) {
			t.Error("a withdrawn task serves again after a restart")
		}
		if err := controllerOf(t, b, task).Wait(t.Context()); !errors.Is(err, errUnhealthy) {
			t.Errorf("Wait returned %v", err)
		}
	})
}

// verdict-6 C: a starting task goes on starting, and its start is not repeated.
func TestStartingTaskGoesOnStarting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		bad := switched(b)
		bad.Store(true)
		task := webTask(everySecond(100))
		c := prepared(t, b, task)
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		if err := c.Start(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("Start returned %v", err)
		}
		cancel()
		b.close()
		b.open()
		defer b.close()
		if b.traffic.serving(taskContainerID("task1")) {
			t.Error("a starting task serves after a restart of the daemon")
		}
		bad.Store(false)
		if err := controllerOf(t, b, task).Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		starts := 0
		for _, l := range b.j.all() {
			if l == "start" {
				starts++
			}
		}
		if starts != 1 {
			t.Errorf("started %d times", starts)
		}
	})
}

func TestShutdownBeforeStartKeepsItFromStarting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		defer b.close()
		c := prepared(t, b, webTask(nil))
		if err := c.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := c.Remove(t.Context()); err != nil {
			t.Fatal(err)
		}
		if b.j.at("start") >= 0 || len(b.node.List()) != 0 {
			t.Errorf("journal %q, %d containers left", b.j.all(), len(b.node.List()))
		}
	})
}

func TestPrepareRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		defer b.close()
		task := webTask(nil)
		task.Spec.GetContainer().Image = "missing:1"
		if err := controllerOf(t, b, task).Prepare(t.Context()); err == nil || !strings.Contains(err.Error(), "missing:1") {
			t.Errorf("missing image: %v", err)
		}
		task = webTask(nil)
		task.Spec.GetContainer().Secrets = []*api.SecretReference{{SecretID: "s"}}
		if err := controllerOf(t, b, task).Prepare(t.Context()); err == nil {
			t.Error("a secret that is no file was accepted and ignored")
		}
		if len(b.node.List()) != 0 {
			t.Error("a refused task left a container")
		}
	})
}

func TestFailedStartLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		defer b.close()
		b.rt.failCreate = errors.New("exec: \"/app\": no such file")
		c := prepared(t, b, webTask(nil))
		if err := c.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "no such file") {
			t.Fatalf("Start returned %v", err)
		}
		if b.j.at("delete") < 0 {
			t.Errorf("journal %q", b.j.all())
		}
	})
}

func TestPausedTaskIsNotProbed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		defer b.close()
		var probes atomic.Int64
		b.rt.probe = func(string) (int, string) { probes.Add(1); return 0, "" }
		c := prepared(t, b, webTask(everySecond(3)))
		if err := c.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := b.node.Pause(t.Context(), "web.1"); err != nil {
			t.Fatal(err)
		}
		before := probes.Load()
		time.Sleep(10 * time.Second)
		if probes.Load() != before {
			t.Errorf("%d probes while paused", probes.Load()-before)
		}
		if err := b.node.Unpause(t.Context(), "web.1"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(1100 * time.Millisecond)
		if probes.Load() == before {
			t.Error("not probed within an interval of unpause")
		}
	})
}

// A stop that the daemon's end cut short is finished by the next daemon, with
// what is left of its grace.
func TestStopIsFinishedByTheNextDaemon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.rt.ignoreTerm = true
		task := webTask(everySecond(3))
		c := prepared(t, b, task)
		if err := c.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		dies, die := context.WithCancel(t.Context())
		go func() { _ = c.Shutdown(dies) }()
		time.Sleep(PublishedDrain + 500*time.Millisecond) // the signal was sent
		die()
		b.close()
		time.Sleep(500 * time.Millisecond)
		b.open()
		defer b.close()
		if err := controllerOf(t, b, task).Wait(t.Context()); err == nil || !strings.Contains(err.Error(), "137") {
			t.Errorf("Wait returned %v, want the exit of a killed task", err)
		}
		if took := time.Since(begun); took != PublishedDrain+2*time.Second {
			t.Errorf("ended %v after the stop began, want drain and grace of 2s", took)
		}
	})
}

// A start that a crash cut short leaves nothing, and can be made again.
func TestCutShortStartIsTakenDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		id := created(t, b, nil)
		b.close()
		before := len(b.j.all())
		b.open()
		defer b.close()
		synctest.Wait()
		if lines := b.j.all()[before:]; !slices.Contains(lines, "delete") {
			t.Errorf("not taken down: %q", lines)
		}
		if err := b.node.Start(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	})
}

// A description that differs from the last one makes the agent begin a new
// session and write to the store.
func TestDescriptionIsTheSameEachTime(t *testing.T) {
	n := &Node{}
	first, err := n.Describe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for range 50 {
		again, err := n.Describe(t.Context())
		if err != nil || !reflect.DeepEqual(first, again) {
			t.Fatalf("%v, then %v, %v", first, again, err)
		}
	}
}
