// SPDX-License-Identifier: BSD-2-Clause

package executor

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/moby/swarmkit/v2/agent/exec"
	"github.com/moby/swarmkit/v2/api"
)

// running is a task of service web with these service labels, started.
func running(t *testing.T, b *bench, health *api.HealthConfig, labels map[string]string) (*api.Task, exec.Controller) {
	t.Helper()
	task := webTask(health)
	task.ServiceAnnotations.Labels = labels
	c := prepared(t, b, task)
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return task, c
}

func drainOf(d string) map[string]string { return map[string]string{labelDrain: d} }

// after is the journal from a line on.
func (j *journal) after(n int) []string { return j.all()[n:] }

// cases/update.md, update-6: withdrawn and confirmed, drained, then signalled.
func TestDrainIsBetweenWithdrawalAndSignal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, func(b *bench) { b.nets = &fakeNetworks{j: b.j} })
		defer b.close()
		_, c := running(t, b, nil, drainOf("5s"))
		b.traffic.stuckUntil = time.Now().Add(1500 * time.Millisecond)
		before := len(b.j.all())
		begun := time.Now()
		stopped := make(chan error)
		go func() { stopped <- c.Shutdown(t.Context()) }()
		time.Sleep(6400 * time.Millisecond) // 1.5 s until confirmed, 5 s of drain
		id := taskContainerID("task1")
		if got := b.j.after(before); slices.Contains(got, "kill 15") || slices.Contains(got, "remove") {
			t.Errorf("not drained: %q", got)
		}
		if m := b.traffic.member(id); m.Serving || !m.Process {
			t.Errorf("while draining: %+v", m)
		}
		if err := <-stopped; err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begun); took != 6500*time.Millisecond {
			t.Errorf("stopped after %v, want 1.5s and 5s", took)
		}
		synctest.Wait()
		got := b.j.after(before)
		at := -1
		for _, step := range []string{"withdraw", "kill 15", "remove", "delete", "detach " + id} {
			next := slices.Index(got, step)
			if next <= at {
				t.Errorf("%q: %s comes too early or not at all", got, step)
			}
			at = next
		}
	})
}

func TestUnhealthyTaskIsNotDrained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		defer b.close()
		bad := switched(b)
		_, c := running(t, b, everySecond(2), drainOf("1m"))
		bad.Store(true)
		begun := time.Now()
		if err := c.Wait(t.Context()); err == nil {
			t.Error("an unhealthy task did not fail")
		}
		if took := time.Since(begun); took != 2*time.Second {
			t.Errorf("failed after %v, want its two probes and nothing else", took)
		}
	})
}

// The end of the process ends the drain, and so does somebody who cannot wait.
func TestDrainIsCutShort(t *testing.T) {
	for _, how := range []string{"exit", "kill"} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			defer b.close()
			_, c := running(t, b, nil, drainOf("10m"))
			begun := time.Now()
			cut := make(chan struct{})
			go func() {
				defer close(cut)
				time.Sleep(time.Second)
				if how == "exit" {
					b.rt.end(taskContainerID("task1"), 0)
				} else if err := c.Terminate(t.Context()); err != nil {
					t.Error(err)
				}
			}()
			if err := c.Shutdown(t.Context()); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(begun); took != time.Second {
				t.Errorf("%s: ended after %v", how, took)
			}
			<-cut
			if b.j.at("kill 15") >= 0 {
				t.Errorf("%s: %q", how, b.j.all())
			}
		})
	}
}

// A stop that is asked for again, by an agent whose task changed meanwhile or
// by the next daemon, goes on where it was: one drain, one signal, one grace.
func TestStopGoesOnWhereItWas(t *testing.T) {
	for _, restarted := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			b.rt.ignoreTerm = true
			task, c := running(t, b, nil, drainOf("4s")) // and 2 s of grace
			begun := time.Now()
			for range 6 {
				ctx, cancel := context.WithTimeout(t.Context(), 900*time.Millisecond)
				if err := c.Shutdown(ctx); err == nil {
					t.Fatalf("stopped after %v", time.Since(begun))
				}
				cancel()
				if restarted {
					b.close()
					b.open()
					c = controllerOf(t, b, task)
				}
			}
			defer b.close()
			if err := c.Shutdown(t.Context()); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(begun); took < 6*time.Second || took > 6100*time.Millisecond {
				t.Errorf("restarted %t: stopped after %v, want 4s of drain and 2s of grace", restarted, took)
			}
			terms := 0
			for _, l := range b.j.all() {
				if l == "kill 15" {
					terms++
				}
			}
			if terms != 1 {
				t.Errorf("restarted %t: %d stop signals: %q", restarted, terms, b.j.all())
			}
		})
	}
}

// A second stop may hasten the first and never draws it out.
func TestSecondStopHastens(t *testing.T) {
	for _, tc := range []struct {
		first, second int
		want          time.Duration
	}{
		{60, 3, 4 * time.Second}, {3, 60, 3 * time.Second}, {-1, 5, 6 * time.Second}, {5, -1, 5 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			defer b.close()
			b.rt.ignoreTerm = true
			id := created(t, b, nil)
			if err := b.node.Start(t.Context(), id); err != nil {
				t.Fatal(err)
			}
			begun := time.Now()
			both := make(chan error, 2)
			go func() { both <- b.node.Stop(t.Context(), id, &tc.first, "") }()
			time.Sleep(time.Second)
			go func() { both <- b.node.Stop(t.Context(), id, &tc.second, "") }()
			for range 2 {
				if err := <-both; err != nil {
					t.Error(err)
				}
			}
			if took := time.Since(begun); took != tc.want {
				t.Errorf("-t %d, then -t %d after 1s: ended after %v, want %v", tc.first, tc.second, took, tc.want)
			}
		})
	}
}

// docker stop -t -1 waits for ever, over a restart of the daemon too.
func TestEndlessGraceSurvivesTheDaemon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.rt.ignoreTerm = true
		id := created(t, b, nil)
		if err := b.node.Start(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		ever := -1
		stopped := make(chan error, 1)
		go func() { stopped <- b.node.Stop(t.Context(), id, &ever, "") }()
		time.Sleep(time.Minute)
		b.close()
		if err := <-stopped; err == nil {
			t.Error("the stop is said to be done")
		}
		b.open()
		defer b.close()
		time.Sleep(time.Hour)
		if b.j.at("kill 9") >= 0 {
			t.Errorf("killed after all: %q", b.j.all())
		}
		b.rt.end(id, 3)
		synctest.Wait()
		if s, err := b.node.Get(id); err != nil || s.State != Exited || s.ExitCode != 3 {
			t.Errorf("%v %d, %v", s.State, s.ExitCode, err)
		}
	})
}

// A client that goes away has begun a stop that is finished.
func TestStopOutlivesItsClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		defer b.close()
		_, c := running(t, b, nil, drainOf("3s"))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := b.node.Stop(ctx, "web.1", nil, ""); err == nil {
			t.Fatal("stopped within the drain")
		}
		if err := c.Wait(t.Context()); err != nil {
			t.Errorf("Wait: %v", err)
		}
	})
}

// The agent asks once for the removal of a task that is no longer this node's:
// neither the end of its question, as when the node joins another cluster, nor
// that of the daemon leaves the container behind.
func TestRemovalOutlivesItsAgent(t *testing.T) {
	for _, c := range []struct {
		name      string
		restarted bool
		at        time.Duration // when the agent, or the daemon, ends
	}{
		{"agent, in the drain", false, time.Second}, {"agent, in the grace", false, 4 * time.Second},
		{"daemon, in the drain", true, time.Second}, {"daemon, in the grace", true, 4 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				defer func() { b.close() }()
				b.rt.ignoreTerm = true
				_, ctl := running(t, b, nil, drainOf("3s"))
				ctx, cancel := context.WithTimeout(t.Context(), c.at)
				defer cancel()
				if err := ctl.Remove(ctx); !errors.Is(err, context.DeadlineExceeded) {
					t.Fatalf("removed before its grace was over: %v", err)
				}
				if c.restarted {
					b.close()
					b.open()
				}
				time.Sleep(10 * time.Second)
				if left := b.node.List(); len(left) != 0 {
					t.Errorf("left behind, %v", left[0].State)
				}
				if b.j.at("kill 9") < 0 {
					t.Errorf("not ended: %q", b.j.all())
				}
			})
		})
	}
}

// A packet filter that stays broken does not keep a task that has ended from
// being reported.
func TestEndIsNotWedgedByABrokenPacketFilter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		defer b.close()
		_, c := running(t, b, nil, nil)
		b.traffic.removeStuck = true
		b.rt.end(taskContainerID("task1"), 4)
		begun := time.Now()
		if err := c.Wait(t.Context()); err == nil || !strings.Contains(err.Error(), "(4)") {
			t.Errorf("Wait: %v", err)
		}
		if took := time.Since(begun); took > withdrawBound {
			t.Errorf("reported after %v", took)
		}
	})
}

// What is told to a node of a task that has ended does not bring it back.
func TestEndedTaskStaysForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		defer b.close()
		task, c := running(t, b, nil, nil)
		id := taskContainerID("task1")
		b.traffic.removeStuck = true // so that its end takes 5 s
		b.rt.end(id, 0)
		time.Sleep(time.Second)
		if err := c.Update(t.Context(), instructed(task, "false")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		last := b.j.all()[len(b.j.all())-1]
		if strings.HasPrefix(last, "put") || b.j.at("withdraw") >= 0 {
			t.Errorf("told of a task that has ended: %q", b.j.all())
		}
	})
}

// A task that never served has nothing to drain.
func TestStartingTaskIsNotDrained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		defer b.close()
		switched(b).Store(true)
		task := webTask(everySecond(100))
		task.ServiceAnnotations.Labels = drainOf("1m")
		c := prepared(t, b, task)
		ended := make(chan error)
		go func() { ended <- c.Start(t.Context()) }()
		time.Sleep(3 * time.Second)
		begun := time.Now()
		if err := c.Shutdown(t.Context()); err != nil || time.Since(begun) != 0 {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
		<-ended
	})
}

// TestStopAfterClockSetBack: what is left of a stop that an earlier daemon began
// is never more than it was to take.
func TestStopAfterClockSetBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct{ by, grace, want time.Duration }{
			{4 * time.Second, 10 * time.Second, 4 * time.Second},
			{time.Hour, 10 * time.Second, 10 * time.Second},
			{-time.Hour, 10 * time.Second, 0},
			{time.Hour, -1, time.Hour}, // it has no end
		} {
			r := Record{Config: new(container.Config), HostConfig: new(container.HostConfig), Stopping: true, StopGrace: c.grace, StopBy: time.Now().Add(c.by)}
			if got := r.recordedStop().grace; got != c.want {
				t.Errorf("%+v: %v", c, got)
			}
		}
		if got := left(time.Now().Add(time.Hour), 5*time.Second); got != 5*time.Second {
			t.Errorf("of a drain: %v", got)
		}
	})
}
