// SPDX-License-Identifier: BSD-2-Clause

package orchestrator

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	gogotypes "github.com/gogo/protobuf/types"
	"github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/manager/state/store"

	"satld/healthcheck"
)

// The manager's side of cases/budget.md, by name.

func restart(attempts uint64, delay, window int) func(*api.ServiceSpec) {
	return func(spec *api.ServiceSpec) {
		spec.Task.Restart = &api.RestartPolicy{Condition: api.RestartOnAny, MaxAttempts: attempts, Delay: seconds(delay), Window: seconds(window)}
	}
}

// budget is slot 1's.
func (s *sim) budget() SlotBudget {
	return BudgetOf(s.service(), s.tasks(), time.Now())[0]
}

func (s *sim) last() *api.Task {
	all := s.tasks()
	return all[len(all)-1]
}

// TestBudget1: the window counts right, however it relates to the delay
// (cases/budget.md, budget-1).
func TestBudget1(t *testing.T) {
	for _, c := range []struct {
		name                    string
		attempts                uint64
		delay, window, lives    int
		made                    int // tasks within the hour; 0: more than 100
		says                    string
		used, total, max, spent uint64
	}{
		{"window not larger than attempts x delay", 3, 10, 10, 0, 0, "", 0, 0, 3, 0},
		{"window holds all", 3, 1, 60, 0, 4, "(restart budget exhausted: 3 attempts in 1m)", 3, 3, 3, 1},
		{"no window", 3, 1, 0, 0, 4, "(restart budget exhausted: 3 attempts)", 3, 3, 3, 1},
		{"one attempt", 1, 0, 0, 5, 2, "(restart budget exhausted: 1 attempt)", 1, 1, 1, 1},
		{"more than the history holds", 12, 0, 0, 1, 13, "(restart budget exhausted: 12 attempts)", 12, 12, 12, 1},
		{"a window and more than the history holds", 12, 0, 600, 1, 13, "(restart budget exhausted: 12 attempts in 10m)", 12, 12, 12, 1},
		{"a crash each 10 s", 3, 0, 5, 10, 0, "", 0, 0, 3, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			simulate(t, 1, func(s *sim) {
				s.setScript(failsAfter(time.Duration(c.lives)*time.Second + time.Millisecond))
				s.create(simSpec(1, restart(c.attempts, c.delay, c.window)))
				for range 12 {
					time.Sleep(5 * time.Minute)
					s.newLeader()
				}
				made := s.watch.made(1)
				if c.made == 0 {
					if made < 100 {
						t.Errorf("%d tasks made", made)
					}
					return
				}
				if made != c.made {
					t.Errorf("%d tasks made, want %d\n%s", made, c.made, s.dump())
				}
				b := s.budget()
				if !b.Exhausted || b.Max != c.max || b.Total != c.total || b.Used != c.used || b.TaskID != s.last().ID {
					t.Errorf("budget %+v", b)
				}
				if err := s.last().Status.Err; strings.Count(err, c.says) != 1 {
					t.Errorf("error %q", err)
				}
				s.odds()
			})
		})
	}
}

// TestTally: times of failures are carried for a window alone, and no more of
// them than it needs.
func TestTally(t *testing.T) {
	policy := func(attempts uint64, window int) policy {
		x := &api.Task{}
		x.Spec.Restart = &api.RestartPolicy{MaxAttempts: attempts, Window: seconds(window)}
		return policyOf(x)
	}
	if p := policy(5000, 0); p.max != 5000 {
		t.Errorf("without a window %d attempts", p.max)
	}
	p := policy(5000, 60)
	if p.max != MaxWindowed {
		t.Errorf("with a window %d attempts", p.max)
	}
	for _, without := range []struct{ attempts, window int }{{0, 60}, {3, 0}, {0, 0}} {
		if got := (tally{}).plus(policy(uint64(without.attempts), without.window), epoch); got.count != 1 || len(got.times) != 0 {
			t.Errorf("%+v: %+v", without, got)
		}
	}
	// A failure counts until it is as old as the window.
	one := (tally{}).plus(p, epoch)
	for age, used := range map[time.Duration]uint64{0: 1, time.Minute - 1: 1, time.Minute: 0} {
		if got := one.used(p, epoch.Add(age)); got != used {
			t.Errorf("after %v: %d used", age, got)
		}
		if got := one.plus(p, epoch.Add(age)); got.count != 2 || len(got.times) != 1+int(used) {
			t.Errorf("after %v: %+v", age, got)
		}
	}
	var many tally
	for i := range MaxWindowed + 1 {
		many = many.plus(p, epoch.Add(time.Duration(i)))
		if i < MaxWindowed && len(many.times) != i+1 {
			t.Fatalf("%d times after %d failures", len(many.times), i+1)
		}
	}
	if len(many.times) != MaxWindowed || many.times[0] != epoch.Add(1) || !many.exhausted(p, epoch.Add(MaxWindowed)) {
		t.Errorf("%d times, from %v", len(many.times), many.times[0])
	}
}

// TestExhaustedWithoutError: the mark stands once on a task that ended well,
// whose error is nothing but it, and the log warns of it once.
func TestExhaustedWithoutError(t *testing.T) {
	simulate(t, 1, func(s *sim) {
		s.setScript(func(x *api.Task) script {
			d := good(x)
			d.lives, d.complete = time.Second, true
			return d
		})
		s.create(simSpec(1, restart(1, 0, 0)))
		time.Sleep(time.Minute)
		s.newLeader()
		time.Sleep(time.Minute)
		if err := s.last().Status.Err; err != "(restart budget exhausted: 1 attempt)" {
			t.Errorf("error %q", err)
		}
		s.update(func(tx store.Tx) error { return store.DeleteService(tx, "web") })
		time.Sleep(time.Minute)
		if n := s.warnings.Load(); n != 1 {
			t.Errorf("%d warnings", n)
		}
		s.odds()
	})
}

// TestBudget2: a new spec version gives the budget back, a status does not
// (budget-2).
func TestBudget2(t *testing.T) {
	simulate(t, 1, func(s *sim) {
		s.create(simSpec(1, restart(1, 0, 0)))
		kill := func() {
			s.await(20*time.Second, "a task serves", func() bool { return len(s.serving()) == 1 })
			s.fail(s.serving()[0])
		}
		kill()
		kill()
		time.Sleep(time.Minute)
		if len(s.serving()) != 0 || !s.budget().Exhausted {
			t.Fatal(s.dump())
		}
		s.update(func(tx store.Tx) error { // as the agent does when its session begins anew
			x := store.GetTask(tx, s.last().ID)
			x.Status.Err, x.Status.AppliedAt = "task: non-zero exit (137)", timestamp(time.Now())
			return store.UpdateTask(tx, x)
		})
		time.Sleep(time.Minute)
		if s.watch.made(1) != 2 || !strings.Contains(s.last().Status.Err, "(restart budget exhausted: 1 attempt)") {
			t.Fatal(s.dump())
		}
		s.change(func(spec *api.ServiceSpec) { spec.Task.ForceUpdate++ })
		kill()
		kill()
		time.Sleep(time.Minute)
		if len(s.serving()) != 0 || s.watch.made(1) != 4 {
			t.Error(s.dump())
		}
		// So does one that no task is made of.
		s.change(func(spec *api.ServiceSpec) { spec.Annotations.Labels = map[string]string{"a": "b"} })
		s.await(20*time.Second, "a task serves", func() bool { return len(s.serving()) == 1 })
		s.odds()
	})
}

// TestBudget3: what a task did not do itself costs nothing (budget-3).
func TestBudget3(t *testing.T) {
	simulate(t, 2, func(s *sim) {
		s.create(simSpec(1, restart(2, 1, 0)))
		for range 5 {
			s.awaitServing("v1", 1)
			node := s.serving()[0].NodeID
			s.down(node)
			s.await(20*time.Second, "it serves elsewhere", func() bool {
				return len(s.serving()) == 1 && s.serving()[0].NodeID != node
			})
			s.up(node)
			time.Sleep(5 * time.Second)
		}
		for range 3 {
			node := s.serving()[0].NodeID
			s.availability(node, api.NodeAvailabilityDrain)
			s.await(20*time.Second, "it serves elsewhere", func() bool {
				return len(s.serving()) == 1 && s.serving()[0].NodeID != node
			})
			s.availability(node, api.NodeAvailabilityActive)
		}
		// The node's machine was started anew before it was missed.
		for range 3 {
			s.failWith(s.serving()[0], "task: non-zero exit (-1): "+healthcheck.Restarted)
			s.await(3*time.Second, "it serves again, without a delay", func() bool { return len(s.serving()) == 1 })
		}
		if b := s.budget(); b.Total != 0 {
			t.Errorf("budget %+v", b)
		}
		// What was used stays used.
		s.fail(s.serving()[0])
		s.await(20*time.Second, "it serves again", func() bool { return len(s.serving()) == 1 })
		node := s.serving()[0].NodeID
		s.down(node)
		s.await(20*time.Second, "it serves elsewhere", func() bool { return len(s.serving()) == 1 && s.serving()[0].NodeID != node })
		if b := s.budget(); b.Total != 1 || b.Used != 1 {
			t.Errorf("budget %+v", b)
		}
		s.odds()
	})
}

// TestBudget4: each unhealthy incarnation is replaced, until the budget is
// exhausted (budget-4).
func TestBudget4(t *testing.T) {
	simulate(t, 1, func(s *sim) {
		var at []time.Duration
		var begin time.Time
		s.setScript(func(x *api.Task) script {
			if begin.IsZero() {
				begin = time.Now()
			}
			at = append(at, time.Since(begin))
			return script{lives: 50 * time.Second, err: "unhealthy: 3 probes failed, last exit code 1: down"}
		})
		s.create(simSpec(1, restart(3, 0, 0)))
		time.Sleep(time.Hour)
		if len(at) != 4 {
			t.Fatalf("%d tasks", len(at))
		}
		for i, d := range at {
			want := time.Duration(i) * 50 * time.Second
			if d < want || d > want+2*time.Second {
				t.Errorf("task %d after %v", i, d)
			}
		}
		if !s.budget().Exhausted {
			t.Error(s.dump())
		}
	})
}

// TestBudget5: a crash loop leaves at most five dead tasks (budget-5).
func TestBudget5(t *testing.T) {
	simulate(t, 1, func(s *sim) {
		s.setScript(failsAfter(time.Millisecond))
		s.create(simSpec(1, restart(0, 0, 0)))
		s.await(2*time.Hour, "1000 failures", func() bool { return s.watch.made(1) > 1000 })
		time.Sleep(time.Second)
		if n := len(s.tasks()); n > 6 {
			t.Errorf("%d tasks are kept", n)
		}
		if n := len(label(s.last(), LabelTimes)); n > 0 {
			t.Errorf("%d bytes of times carried without need", n)
		}
		s.odds()
	})
}

// TestBudget6: a change of leader restarts nothing, and counts go on
// (budget-6).
func TestBudget6(t *testing.T) {
	simulate(t, 2, func(s *sim) {
		s.create(simSpec(10, restart(2, 1, 0)))
		s.awaitServing("v1", 10)
		before := ids(s.serving())
		for range 5 {
			s.newLeader()
			time.Sleep(10 * time.Second)
		}
		if after := ids(s.serving()); !slices.Equal(before, after) || s.watch.total() != 10 {
			t.Errorf("%d tasks made", s.watch.total())
		}
		for range 3 {
			time.Sleep(20 * time.Second)
			for _, x := range s.serving() {
				if x.Slot == 1 {
					s.fail(x)
				}
			}
			s.newLeader()
		}
		time.Sleep(20 * time.Second)
		if s.watch.made(1) != 3 || !s.budget().Exhausted || len(s.serving()) != 9 {
			t.Error(s.dump())
		}
		s.odds()
	})
}

// TestBudget7: with replace-parallelism one task at a time is replaced, and
// the next only when that one runs again (budget-7).
func TestBudget7(t *testing.T) {
	simulate(t, 1, func(s *sim) {
		s.create(simSpec(4, func(spec *api.ServiceSpec) {
			spec.Annotations.Labels = map[string]string{LabelParallelism: "1"}
		}))
		s.awaitServing("v1", 4)
		all := s.serving()
		before := ids(all)
		ask := func(x *api.Task) bool {
			may, err := New(s.store, s.simLogger()).MayReplace(t.Context(), x.ID) // each time on a new leader
			if err != nil {
				t.Fatal(err)
			}
			return may
		}
		// The dependency fails: all four ask, once a second.
		replaced := []string{}
		for range 40 {
			for _, x := range all {
				if !slices.Contains(replaced, x.ID) && ask(x) {
					replaced = append(replaced, x.ID)
					s.fail(x)
				}
			}
			time.Sleep(time.Second)
			s.await(time.Minute, "at most one is missing", func() bool { return len(s.serving()) >= 3 })
			if len(replaced) == 2 {
				break
			}
		}
		if len(replaced) != 2 {
			t.Fatalf("%d were replaced", len(replaced))
		}
		// It is back: the other two pass again and ask no more.
		s.awaitServing("v1", 4)
		same := 0
		for _, id := range ids(s.serving()) {
			if slices.Contains(before, id) {
				same++
			}
		}
		if same != 2 || s.watch.total() != 6 {
			t.Errorf("%d of the first tasks are left, %d made", same, s.watch.total())
		}
		s.odds()
	})
}

// TestSecondFailureInTheDelay: a task that fails in its preparation, before it
// is due, has one successor too, and no sooner than if it had been started: a
// service whose image cannot be had asks for it once in a delay.
func TestSecondFailureInTheDelay(t *testing.T) {
	simulate(t, 1, func(s *sim) {
		s.setScript(func(*api.Task) script { return script{prepare: 10 * time.Millisecond, reject: "No such image"} })
		s.create(simSpec(1, restart(0, 10, 0)))
		time.Sleep(10 * time.Minute)
		made := s.watch.made(1)
		if made < 55 || made > 62 {
			t.Errorf("%d tasks in 10 min, with 10 s between attempts", made)
		}
		s.odds()

		// The image's name is mended: nobody waits for the rest of a delay.
		s.setScript(good)
		begin := time.Now()
		s.image("v2")
		s.awaitServing("v2", 1)
		if took := time.Since(begin); took > 5*time.Second {
			t.Errorf("the update took %v", took)
		}
	})
}

// TestDelays: unset is five seconds, zero is at once, and a change of leader
// makes none longer.
func TestDelays(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*api.ServiceSpec)
		want   time.Duration
	}{
		{"unset", func(spec *api.ServiceSpec) { spec.Task.Restart.Delay = nil }, 5 * time.Second},
		{"no policy", func(spec *api.ServiceSpec) { spec.Task.Restart = nil }, 5 * time.Second},
		{"zero", restart(0, 0, 0), 0},
		{"a minute", restart(0, 60, 0), time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			simulate(t, 1, func(s *sim) {
				s.create(simSpec(1, c.change))
				s.awaitServing("v1", 1)
				time.Sleep(time.Minute)
				s.fail(s.serving()[0])
				begin := time.Now()
				s.stopOrchestrator()
				time.Sleep(c.want / 2)
				s.startOrchestrator()
				s.await(2*time.Minute, "its successor is wanted", func() bool { return s.last().DesiredState == api.TaskStateRunning && s.watch.made(1) == 2 })
				if took := time.Since(begin); took < c.want || took > c.want+200*time.Millisecond {
					t.Errorf("took %v, want %v", took, c.want)
				}
				s.odds()
			})
		})
	}
}

// TestConditions: who is restarted at all.
// TestClockSetBackInTheDelay: a restart that an earlier, faster clock promised
// does not wait until the clock is there again.
func TestClockSetBackInTheDelay(t *testing.T) {
	for _, c := range []struct {
		delay, due time.Duration
		starts     bool
	}{
		{5 * time.Second, 0, true},
		{5 * time.Second, 5 * time.Second, false},
		{5 * time.Second, 65 * time.Second, false}, // another leader's clock
		{5 * time.Second, 65*time.Second + 1, true},
		{5 * time.Second, time.Hour, true},
		{2 * time.Hour, time.Hour, false},
		{math.MaxInt64, math.MaxInt64, false},
	} {
		next := taskAt(1, "n1", api.TaskStateReady, 0)
		next.DesiredState = api.TaskStateReady
		next.Spec.Restart.Delay = gogotypes.DurationProto(c.delay)
		setLabel(next, LabelDue, formatTime(epoch.Add(c.due)))
		service := serviceOf(1)
		service.Spec.Task = next.Spec
		changes, wake := Plan(View{Service: service, Tasks: []*api.Task{next}, Nodes: upNodes("n1")}, epoch)
		if starts := len(changes) == 1 && changes[0].Update[0].DesiredState == api.TaskStateRunning; starts != c.starts || !starts && !wake.Equal(epoch.Add(c.due)) {
			t.Errorf("%+v: %+v, next look at %v", c, changes, wake)
		}
	}
}

func TestConditions(t *testing.T) {
	for _, c := range []struct {
		condition api.RestartPolicy_RestartCondition
		complete  bool
		again     bool
	}{
		{api.RestartOnAny, true, true},
		{api.RestartOnAny, false, true},
		{api.RestartOnFailure, true, false},
		{api.RestartOnFailure, false, true},
		{api.RestartOnNone, true, false},
		{api.RestartOnNone, false, false},
	} {
		simulate(t, 1, func(s *sim) {
			s.setScript(func(x *api.Task) script {
				d := good(x)
				d.lives, d.complete = 10*time.Second, c.complete
				return d
			})
			s.create(simSpec(1, func(spec *api.ServiceSpec) { spec.Task.Restart.Condition = c.condition }))
			time.Sleep(time.Minute)
			s.newLeader()
			time.Sleep(time.Minute)
			if again := s.watch.made(1) > 1; again != c.again {
				t.Errorf("%+v: %d tasks", c, s.watch.made(1))
			}
			if b := s.budget(); b.Exhausted || c.again != (b.Total > 0) {
				t.Errorf("%+v: budget %+v", c, b)
			}
			s.odds()
		})
	}
}
