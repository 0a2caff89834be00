// SPDX-License-Identifier: BSD-2-Clause

package executor

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/moby/swarmkit/v2/api"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"satld/healthcheck"
)

// reported is what the leader was given of a task.
func (b *bench) reported(taskID string) (r Report, ok bool) {
	b.t.Helper()
	b.leader.mu.Lock()
	defer b.leader.mu.Unlock()
	data, ok := b.leader.reports[taskID]
	if ok {
		if err := json.Unmarshal(data, &r); err != nil {
			b.t.Fatal(err)
		}
	}
	return r, ok
}

func led(b *bench) { b.leader = &fakeLeader{} }

// spec/deploy-check.txt, "The evidence a failed check keeps".
func TestReportOfATaskThatNeverPassed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, led)
		defer b.close()
		switched(b).Store(true)
		for i := range 50 {
			b.rt.printed = append(b.rt.printed, fmt.Sprintf("line %d", i))
		}
		task := webTask(everySecond(3))
		task.Annotations.Labels = map[string]string{labelRestarts: "2"}
		if err := prepared(t, b, task).Start(t.Context()); !errors.Is(err, errUnhealthy) {
			t.Fatal(err)
		}
		synctest.Wait()
		r, ok := b.reported("task1")
		if !ok || r.State != "failed" || r.Step != stepGate || r.Name != "health_gate_failed" || r.Detail == "" || r.Gate == nil {
			t.Fatalf("%+v, %t", r, ok)
		}
		if g := r.Gate; len(g.ProbeSequence) != 1 || g.ProbeSequence[0] != (healthcheck.Run{Result: "exit 7", Count: 3}) || g.Last == nil || g.Last.Output != "gone" {
			t.Errorf("probes %+v, last %+v", g.ProbeSequence, g.Last)
		}
		if c := r.Gate.Compute; c == nil || c.State != "running" || c.Restarts != 2 || c.ExitCode != nil {
			t.Errorf("compute %+v", c)
		}
		if c := r.Gate.Console; c == nil || len(c.Lines) != 40 || c.Lines[39] != "line 49" || !c.Truncated {
			t.Errorf("console %+v", c)
		}
	})
}

func TestReportOfATaskThatExited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, led)
		defer b.close()
		switched(b).Store(true)
		c := prepared(t, b, webTask(everySecond(30)))
		time.AfterFunc(1500*time.Millisecond, func() { b.rt.end(taskContainerID("task1"), 9) })
		if err := c.Start(t.Context()); err == nil {
			t.Fatal("started")
		}
		synctest.Wait()
		r, _ := b.reported("task1")
		if r.Step != stepGate || r.Gate == nil || r.Gate.Compute.State != "exited" || *r.Gate.Compute.ExitCode != 9 || !strings.Contains(r.Detail, "exit code 9") {
			t.Errorf("%+v", r)
		}
	})
}

// Whether a failure is one of a deploy.
func TestWhatIsReported(t *testing.T) {
	rollout, proven := map[string]string{labelRollout: "now"}, map[string]string{labelRollout: "now", labelProven: "now"}
	for name, tc := range map[string]struct {
		labels map[string]string // of the task
		probe  *api.HealthConfig
		do     string // what becomes of it once it runs
		step   string // "" is no report
	}{
		"healthy once, then unhealthy":             {nil, everySecond(2), "unhealthy", ""},
		"the same within its rollout":              {rollout, everySecond(2), "unhealthy", stepGate},
		"the same after its rollout":               {proven, everySecond(2), "unhealthy", ""},
		"crashes":                                  {nil, nil, "crash", ""},
		"crashes within its rollout":               {rollout, nil, "crash", stepApply},
		"crashes after a pass, within its rollout": {rollout, everySecond(2), "crash", stepApply},
		"finishes within its rollout":              {rollout, nil, "finish", ""},
		"is stopped within its rollout":            {rollout, everySecond(2), "stop", ""},
		"is proven, then crashes":                  {rollout, nil, "prove", ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, led)
			defer b.close()
			bad := switched(b)
			task := webTask(tc.probe)
			task.Annotations.Labels = tc.labels
			c := startedTask(t, b, task)
			id := taskContainerID("task1")
			switch tc.do {
			case "unhealthy":
				bad.Store(true)
			case "crash":
				b.rt.end(id, 1)
			case "finish":
				b.rt.end(id, 0)
			case "stop":
				if err := c.Shutdown(t.Context()); err != nil {
					t.Fatal(err)
				}
			case "prove":
				task = task.Copy()
				task.Annotations.Labels = proven
				if err := c.Update(t.Context(), task); err != nil {
					t.Fatal(err)
				}
				b.rt.end(id, 1)
			}
			time.Sleep(10 * time.Second)
			if r, ok := b.reported("task1"); ok != (tc.step != "") || r.Step != tc.step {
				t.Errorf("%s: reported %t, step %q, want %q", name, ok, r.Step, tc.step)
			}
		})
	}
}

// A task that is not started, and one whose image is not to be had.
func TestReportOfATaskThatWasNotStarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, led)
		defer b.close()
		b.rt.failCreate = errors.New("exec: 10.1.2.3 says no")
		if err := prepared(t, b, webTask(nil)).Start(t.Context()); err == nil {
			t.Fatal("started")
		}
		task := webTask(nil)
		task.ID, task.Spec.GetContainer().Image = "task2", "missing:1"
		if err := controllerOf(t, b, task).Prepare(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "pull image missing:1: ") {
			t.Fatal(err) // the first words are all that `service ps` shows
		}
		synctest.Wait()
		if r, ok := b.reported("task1"); !ok || r.Step != stepApply || strings.Contains(r.Detail, "10.1.2.3") {
			t.Errorf("%+v, %t", r, ok)
		}
		if r, ok := b.reported("task2"); !ok || r.Step != stepImage || r.Gate != nil {
			t.Errorf("%+v, %t", r, ok)
		}
	})
}

// Nothing about a report holds up a stop, and none is lost to a leader that is
// away or a daemon that restarts.
func TestReportIsKeptInTheEnd(t *testing.T) {
	for _, restarted := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, led)
			defer func() { b.close() }()
			switched(b).Store(true)
			b.leader.set(false, errors.New("no leader"))
			b.rt.logsHang = true
			begun := time.Now()
			c := prepared(t, b, webTask(everySecond(2)))
			if err := c.Start(t.Context()); !errors.Is(err, errUnhealthy) {
				t.Fatal(err)
			}
			if took := time.Since(begun); took != 2*time.Second+consoleBound {
				t.Errorf("failed after %v", took)
			}
			if restarted {
				b.close()
				b.open()
			} else if err := c.Remove(t.Context()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Second)
			b.leader.set(false, nil)
			time.Sleep(5 * time.Second)
			if r, ok := b.reported("task1"); !ok || r.Gate == nil || r.Gate.Console.Note == "" {
				t.Errorf("restarted %t: %+v, %t", restarted, r, ok)
			}
		})
	}
}

// A leader that refuses for good is not asked again.
func TestRefusedReportIsGivenUp(t *testing.T) {
	for name, err := range map[string]error{
		"here": cerrdefs.ErrNotFound.WithMessage("no such task"), "through another node": status.Error(codes.NotFound, "no such task"),
	} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, led)
			defer b.close()
			switched(b).Store(true)
			b.leader.set(false, err)
			if err := prepared(t, b, webTask(everySecond(1))).Start(t.Context()); err == nil {
				t.Fatal("started")
			}
			time.Sleep(time.Minute)
			b.leader.set(false, nil)
			time.Sleep(time.Minute)
			if _, ok := b.reported("task1"); ok {
				t.Errorf("%s: offered again", name)
			}
		})
	}
}
