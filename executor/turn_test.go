// SPDX-License-Identifier: BSD-2-Clause

package executor

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/moby/swarmkit/v2/agent/exec"
	"github.com/moby/swarmkit/v2/api"
)

var inTurn = map[string]string{labelParallelism: "1"}

// switched is a probe that passes until told otherwise.
func switched(b *bench) *atomic.Bool {
	bad := new(atomic.Bool)
	b.rt.probe = func(string) (int, string) {
		if bad.Load() {
			return 7, "gone"
		}
		return 0, ""
	}
	return bad
}

// said is what Wait reports of a running task, as the agent would: it is a
// temporary error, whose text becomes Status.Err.
func said(t *testing.T, c exec.Controller) string {
	t.Helper()
	err := c.Wait(t.Context())
	if err == nil || !exec.IsTemporary(err) {
		t.Fatalf("Wait returned %v, want something to say of a running task", err)
	}
	synctest.Wait() // what is said is said before it is confirmed
	return err.Error()
}

// cases/budget.md, budget-7: out of traffic at once, stopped when the leader
// says so, asked each second.
func TestUnhealthyWaitsForItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, func(b *bench) { b.leader = &fakeLeader{} })
		defer b.close()
		bad := switched(b)
		_, c := running(t, b, everySecond(3), inTurn)
		id := taskContainerID("task1")
		bad.Store(true)
		begun := time.Now()
		if text := said(t, c); !strings.HasPrefix(text, "withdrawn: unhealthy: 3/3 probes failed, last exit code 7: gone") || !strings.Contains(text, "turn") {
			t.Errorf("said %q", text)
		}
		if took := time.Since(begun); took != 3*time.Second || b.traffic.serving(id) {
			t.Errorf("withdrawn after %v, serving %t", took, b.traffic.serving(id))
		}
		time.Sleep(10*time.Second + time.Millisecond)
		if n := b.leader.times(); n != 11 {
			t.Errorf("asked %d times in 10 s", n)
		}
		if s := mustGet(t, b, "web"); s.State != Running || s.Health.FailingStreak != 13 {
			t.Errorf("state %v, streak %d: not probed while it waits", s.State, s.Health.FailingStreak)
		}
		b.leader.set(false, errors.New("no leader"))
		time.Sleep(5 * time.Second)
		if b.j.at("kill 15") >= 0 {
			t.Error("stopped though nobody agreed")
		}
		b.leader.set(true, nil)
		if err := c.Wait(t.Context()); !errors.Is(err, errUnhealthy) || exec.IsTemporary(err) {
			t.Errorf("Wait returned %v", err)
		}
		asked := b.leader.times()
		time.Sleep(10 * time.Second)
		if b.leader.times() != asked {
			t.Error("asked for a task that has ended")
		}
	})
}

// It returns to traffic if it passes again before its turn, and nobody is
// asked any more.
func TestRecoveryBeforeItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, func(b *bench) { b.leader = &fakeLeader{} })
		defer b.close()
		bad := switched(b)
		task, c := running(t, b, everySecond(3), inTurn)
		id := taskContainerID("task1")
		for range 3 {
			bad.Store(true)
			if said(t, c) == "" || b.traffic.serving(id) {
				t.Fatal("not withdrawn")
			}
			time.Sleep(2500 * time.Millisecond)
			bad.Store(false)
			if text := said(t, c); text != "" || !b.traffic.serving(id) {
				t.Fatalf("after a pass: said %q, serving %t", text, b.traffic.serving(id))
			}
			if r := b.record(id); r.Unhealthy != "" || r.Stopping || r.Withdrawn {
				t.Errorf("recorded %+v", r)
			}
			time.Sleep(time.Second + time.Millisecond)
			asked := b.leader.times()
			time.Sleep(10 * time.Second)
			if b.leader.times() != asked {
				t.Error("asked for a task that passes")
			}
		}
		// What was said is taken back also where a daemon restarted in between.
		task.Status = api.TaskStatus{State: api.TaskStateRunning, Err: "withdrawn: long ago"}
		if text := said(t, controllerOf(t, b, task)); text != "" {
			t.Errorf("said %q", text)
		}
		b.rt.end(id, 0)
		if err := c.Wait(t.Context()); err != nil {
			t.Errorf("a task that recovered and exits 0: %v", err)
		}
	})
}

// Without the label, without a leader, and before it ever passed, a task is
// stopped at once and nobody is asked.
func TestNobodyIsAsked(t *testing.T) {
	for name, tc := range map[string]struct {
		labels map[string]string
		leader *fakeLeader
		never  bool // it never passes
	}{
		"no label":     {nil, &fakeLeader{}, false},
		"no leader":    {inTurn, nil, false},
		"never passed": {inTurn, &fakeLeader{}, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, func(b *bench) { b.leader = tc.leader })
			defer b.close()
			bad := switched(b)
			bad.Store(tc.never)
			task := webTask(everySecond(2))
			task.ServiceAnnotations.Labels = tc.labels
			c := prepared(t, b, task)
			begun := time.Now()
			err := c.Start(t.Context())
			if !tc.never && err == nil {
				begun = time.Now()
				bad.Store(true)
				err = c.Wait(t.Context())
			}
			if took := time.Since(begun); !errors.Is(err, errUnhealthy) || took != 2*time.Second {
				t.Errorf("%s: %v after %v", name, err, took)
			}
			if tc.leader != nil && tc.leader.times() != 0 {
				t.Errorf("%s: the leader was asked", name)
			}
		})
	}
}

// A leader that does not answer wedges nothing.
func TestHangingLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, func(b *bench) { b.leader = &fakeLeader{hangs: true} })
		defer b.close()
		bad := switched(b)
		_, c := running(t, b, everySecond(1), inTurn)
		bad.Store(true)
		said(t, c)
		time.Sleep(30*time.Second + time.Millisecond)
		if n := b.leader.times(); n != 11 {
			t.Errorf("asked %d times in 30 s, want one each 3 s", n)
		}
		bad.Store(false)
		if said(t, c) != "" || !b.traffic.serving(taskContainerID("task1")) {
			t.Error("a task that passes is kept out by a leader that hangs")
		}
		bad.Store(true)
		said(t, c)
		if err := c.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A task that passes and fails again while the leader thinks asks no more often.
func TestOneAsksAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, func(b *bench) { b.leader = &fakeLeader{hangs: true} })
		defer b.close()
		bad := switched(b)
		_, c := running(t, b, everySecond(1), inTurn)
		bad.Store(true)
		said(t, c)
		for range 3 {
			bad.Store(false)
			said(t, c)
			bad.Store(true)
			said(t, c)
		}
		asked := b.leader.times()
		time.Sleep(30*time.Second + time.Millisecond)
		if n := b.leader.times() - asked; n > 10 {
			t.Errorf("asked %d times in 30 s, want one each 3 s", n)
		}
	})
}

// A waiting task stays out over a restart of the daemon until it passes, and
// asks again.
func TestWaitingTaskIsAdopted(t *testing.T) {
	for _, recovers := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, func(b *bench) { b.leader = &fakeLeader{} })
			defer func() { b.close() }()
			bad := switched(b)
			task, c := running(t, b, everySecond(2), inTurn)
			id := taskContainerID("task1")
			bad.Store(true)
			text := said(t, c)
			b.close()
			asked := b.leader.times()
			b.open()
			task.Status = api.TaskStatus{State: api.TaskStateRunning, Err: text}
			c = controllerOf(t, b, task)
			time.Sleep(10 * time.Second)
			if b.traffic.serving(id) || b.leader.times() < asked+10 || b.j.at("kill 15") >= 0 {
				t.Errorf("serving %t, asked %d times more, %q", b.traffic.serving(id), b.leader.times()-asked, b.j.all())
			}
			if recovers {
				bad.Store(false)
				if said(t, c) != "" || !b.traffic.serving(id) {
					t.Error("does not return to traffic")
				}
				return
			}
			b.leader.set(true, nil)
			if err := c.Wait(t.Context()); !errors.Is(err, errUnhealthy) {
				t.Errorf("Wait returned %v", err)
			}
		})
	}
}

// A planned stop of a task that waits does not ask, drain or wait.
func TestPlannedStopOfAWaitingTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, func(b *bench) { b.leader = &fakeLeader{} })
		defer b.close()
		bad := switched(b)
		_, c := running(t, b, everySecond(2), map[string]string{labelParallelism: "2", labelDrain: "1m"})
		bad.Store(true)
		said(t, c)
		begun := time.Now()
		if err := c.Shutdown(t.Context()); err != nil || time.Since(begun) != 0 {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
	})
}

// cases/pool.md, pool-8: who runs and is out for its health alone may be
// fallen back on; starting, draining and stopping tasks may not.
func TestFallback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, func(b *bench) { b.leader = &fakeLeader{} })
		defer b.close()
		bad := switched(b)
		bad.Store(true)
		task := webTask(everySecond(3))
		task.ServiceAnnotations.Labels = map[string]string{labelParallelism: "1", labelFailOpen: "true", labelDrain: "5s"}
		c := prepared(t, b, task)
		id := taskContainerID("task1")
		time.AfterFunc(1500*time.Millisecond, func() {
			if m := b.traffic.member(id); m.Unhealthy || m.Serving || !m.FailOpen {
				t.Errorf("starting: %+v", m)
			}
			bad.Store(false)
		})
		if err := c.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		bad.Store(true)
		said(t, c)
		if m := b.traffic.member(id); !m.Unhealthy || m.Serving {
			t.Errorf("waiting: %+v", m)
		}
		bad.Store(false)
		said(t, c)
		if m := b.traffic.member(id); m.Unhealthy || !m.Serving {
			t.Errorf("recovered: %+v", m)
		}
		go func() { _ = c.Shutdown(t.Context()) }()
		time.Sleep(time.Second)
		if m := b.traffic.member(id); m.Unhealthy || m.Serving || !m.Process {
			t.Errorf("draining: %+v", m)
		}
		time.Sleep(10 * time.Second)
	})
}

// SwarmKit's agent takes what Wait says for the Err of a RUNNING task, and
// takes it back; the end is still FAILED.
func TestWhatTheAgentReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, func(b *bench) { b.leader = &fakeLeader{} })
		defer b.close()
		bad := switched(b)
		task, c := running(t, b, everySecond(2), inTurn)
		task.DesiredState = api.TaskStateRunning
		task.Status = api.TaskStatus{State: api.TaskStateRunning, Message: "started"}
		do := func() error {
			status, err := exec.Do(t.Context(), task, c)
			task.Status = *status
			return err
		}
		bad.Store(true)
		if err := do(); err != exec.ErrTaskRetry || task.Status.State != api.TaskStateRunning || !strings.HasPrefix(task.Status.Err, "withdrawn: unhealthy") {
			t.Errorf("withdrawn: %v %+v", err, task.Status)
		}
		bad.Store(false)
		if err := do(); err != exec.ErrTaskRetry || task.Status.State != api.TaskStateRunning || task.Status.Err != "" {
			t.Errorf("back: %v %+v", err, task.Status)
		}
		bad.Store(true)
		if err := do(); err != exec.ErrTaskRetry || task.Status.Err == "" {
			t.Errorf("withdrawn again: %v %+v", err, task.Status)
		}
		b.leader.set(true, nil)
		if err := do(); err != nil || task.Status.State != api.TaskStateFailed || !strings.HasPrefix(task.Status.Err, "unhealthy") {
			t.Errorf("replaced: %v %+v", err, task.Status)
		}
	})
}

// A turn that comes when the task passes again is not taken.
func TestTurnThatComesTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, func(b *bench) { b.leader = &fakeLeader{may: true, takes: 1500 * time.Millisecond} })
		defer b.close()
		bad := switched(b)
		_, c := running(t, b, everySecond(2), inTurn)
		bad.Store(true)
		said(t, c)
		bad.Store(false) // it passes within the second, while the leader thinks
		if said(t, c) != "" {
			t.Error("not back in traffic")
		}
		time.Sleep(10 * time.Second)
		if !b.traffic.serving(taskContainerID("task1")) || b.j.at("kill 15") >= 0 || b.leader.times() != 1 {
			t.Errorf("asked %d times: %q", b.leader.times(), b.j.all())
		}
	})
}

// Nor does it spoil the next: a task that fails again asks again, once a second
// whoever asked before, and is replaced in its turn.
func TestNextTurnAfterOneThatCameTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, func(b *bench) { b.leader = &fakeLeader{may: true, takes: 1500 * time.Millisecond} })
		defer b.close()
		bad := switched(b)
		_, c := running(t, b, everySecond(2), inTurn)
		bad.Store(true)
		said(t, c)
		bad.Store(false)
		said(t, c)
		time.Sleep(5 * time.Second)
		b.leader.set(false, nil)
		for range 2 { // it passes and fails again between two questions
			bad.Store(true)
			said(t, c)
			bad.Store(false)
			said(t, c)
		}
		bad.Store(true)
		said(t, c)
		asked := b.leader.times()
		time.Sleep(25*time.Second + time.Millisecond)
		if n := b.leader.times() - asked; n < 9 || n > 11 { // each takes 1.5 s and is followed by one second
			t.Errorf("asked %d times in 25 s", n)
		}
		b.leader.set(true, nil)
		if err := c.Wait(t.Context()); !errors.Is(err, errUnhealthy) {
			t.Errorf("Wait returned %v", err)
		}
	})
}

// A Wait that the agent left behind says nothing of a task that is shut down.
func TestForgottenWaitSaysNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		defer b.close()
		b.rt.ignoreTerm = true // so that it ends with 137
		_, c := running(t, b, nil, nil)
		ctx, cancel := context.WithCancel(t.Context())
		left := make(chan error, 1)
		go func() { left <- c.Wait(ctx) }()
		synctest.Wait()
		if err := c.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		select {
		case err := <-left:
			t.Errorf("it says %v", err)
		default:
		}
		cancel()
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Errorf("it says %v", err)
		}
	})
}
