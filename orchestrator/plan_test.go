// SPDX-License-Identifier: BSD-2-Clause

package orchestrator

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	gogotypes "github.com/gogo/protobuf/types"
	"github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/manager/state/store"
	"pgregory.net/rapid"

	"satld/raft"
)

// with is the view after a change.
func (v View) with(c Change) View {
	out := v
	if c.Service != nil {
		out.Service = c.Service
	}
	out.Tasks = slices.DeleteFunc(slices.Clone(v.Tasks), func(t *api.Task) bool {
		return slices.ContainsFunc(c.Delete, func(o *api.Task) bool { return o.ID == t.ID })
	})
	for i, t := range out.Tasks {
		for _, o := range c.Update {
			if o.ID == t.ID {
				out.Tasks[i] = o
			}
		}
	}
	for _, t := range c.Create {
		t = t.Copy()
		t.Meta.CreatedAt = t.Status.Timestamp
		out.Tasks = append(out.Tasks, t)
	}
	return out
}

// drawView draws any state that a store may be found in, sensible or not.
func drawView(t *rapid.T) View {
	at := func(name string) *gogotypes.Timestamp {
		return timestamp(epoch.Add(-time.Duration(rapid.IntRange(0, 100).Draw(t, name)) * time.Second))
	}
	order := rapid.SampledFrom([]api.UpdateConfig_UpdateOrder{api.UpdateConfig_STOP_FIRST, api.UpdateConfig_START_FIRST})
	action := rapid.SampledFrom([]api.UpdateConfig_FailureAction{api.UpdateConfig_PAUSE, api.UpdateConfig_ROLLBACK, api.UpdateConfig_CONTINUE})
	spec := simSpec(uint64(rapid.IntRange(0, 4).Draw(t, "replicas")), func(spec *api.ServiceSpec) {
		for _, c := range []*api.UpdateConfig{spec.Update, spec.Rollback} {
			c.Order, c.FailureAction = order.Draw(t, "order"), action.Draw(t, "action")
			c.Parallelism = uint64(rapid.IntRange(0, 2).Draw(t, "parallelism"))
		}
		restart(uint64(rapid.IntRange(0, 2).Draw(t, "attempts")), rapid.IntRange(0, 9).Draw(t, "delay"), rapid.IntRange(0, 20).Draw(t, "window"))(spec)
		if rapid.IntRange(0, 3).Draw(t, "global") == 0 {
			global(spec)
		}
	})
	v := View{Nodes: upNodes("n1", "n2", "n3"), Service: &api.Service{ID: "web", Spec: spec, SpecVersion: &api.Version{Index: 7}}}
	v.Nodes["n2"].Status.State = rapid.SampledFrom([]api.NodeStatus_State{api.NodeStatus_READY, api.NodeStatus_DOWN, api.NodeStatus_UNKNOWN}).Draw(t, "n2")
	v.Nodes["n3"].Spec.Availability = rapid.SampledFrom([]api.NodeSpec_Availability{
		api.NodeAvailabilityActive, api.NodeAvailabilityDrain, api.NodeAvailabilityPause}).Draw(t, "n3")
	if state := rapid.IntRange(-1, 6).Draw(t, "status"); state >= 0 {
		v.Service.UpdateStatus = &api.UpdateStatus{State: api.UpdateStatus_UpdateState(state), StartedAt: at("started"), Message: "update"}
	}
	if rapid.Bool().Draw(t, "previous") {
		previous := spec.Copy()
		previous.Task.GetContainer().Image = "v0"
		v.Service.PreviousSpec, v.Service.PreviousSpecVersion = previous, &api.Version{Index: 3}
	}
	id := newSituation(v, epoch).roll.id
	states := []api.TaskState{
		api.TaskStateNew, api.TaskStatePending, api.TaskStateAssigned, api.TaskStatePreparing, api.TaskStateReady, api.TaskStateStarting,
		api.TaskStateRunning, api.TaskStateRunning, api.TaskStateCompleted, api.TaskStateShutdown, api.TaskStateFailed, api.TaskStateRejected, api.TaskStateOrphaned,
	}
	desired := []api.TaskState{api.TaskStateReady, api.TaskStateRunning, api.TaskStateRunning, api.TaskStateShutdown, api.TaskStateRemove}
	for i := range rapid.IntRange(0, 9).Draw(t, "tasks") {
		x := taskAt(uint64(rapid.IntRange(1, 5).Draw(t, "slot")), rapid.SampledFrom([]string{"n1", "n2", "n3", "gone"}).Draw(t, "node"),
			rapid.SampledFrom(states).Draw(t, "state"), 0)
		x.ID = fmt.Sprint("t", i)
		x.Spec = *spec.Task.Copy()
		x.Meta.CreatedAt, x.Status.Timestamp = at("created"), at("since")
		x.DesiredState = rapid.SampledFrom(desired).Draw(t, "desired")
		if isGlobal(v.Service) {
			x.Slot = 0
		} else if x.Status.State < api.TaskStateAssigned {
			x.NodeID = ""
		}
		if rapid.Bool().Draw(t, "old") {
			x.Spec.GetContainer().Image = "v0"
			x.SpecVersion.Index = 3
		}
		for _, l := range []struct{ key, value string }{
			{LabelRollout, id}, {LabelFailed, id}, {LabelProven, formatTime(epoch)}, {LabelCount, "1"},
			{LabelExhausted, "1 attempt"}, {LabelEnd, "complete"}, {LabelDue, formatTime(epoch.Add(time.Second))}, {LabelStopped, formatTime(epoch)},
		} {
			if rapid.IntRange(0, 4).Draw(t, l.key) == 0 {
				setLabel(x, l.key, l.value)
			}
		}
		v.Tasks = append(v.Tasks, x)
	}
	return v
}

// TestPlanComesToRest: whatever the store holds, few rounds of plans leave
// nothing to plan; none changes what it was given; and no budget is exceeded.
func TestPlanComesToRest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := drawView(t)
		made, had := map[slotKey]int{}, len(v.Tasks)
		var why []string
		for round := 0; ; round++ {
			before := View{Service: v.Service.Copy()}
			for _, x := range v.Tasks {
				before.Tasks = append(before.Tasks, x.Copy())
			}
			changes, next := Plan(v, epoch)
			if !reflect.DeepEqual(before.Service, v.Service) || !reflect.DeepEqual(before.Tasks, slices.Clone(v.Tasks)) {
				t.Fatal("the plan changed its view")
			}
			if len(changes) == 0 {
				if !next.IsZero() && !next.After(epoch) {
					t.Fatalf("the next look is due at %v already", next)
				}
				break
			}
			if round == maxRounds {
				t.Fatalf("no rest: %+v", changes)
			}
			for _, c := range changes {
				why = append(why, c.Why)
				for _, x := range c.Create {
					made[slotKey{x.Slot, x.NodeID}]++
					if p := policyOf(x); p.max > 0 && p.window == 0 && tallyOf(x).count > p.max {
						t.Fatalf("attempt %d of %d", tallyOf(x).count, p.max)
					}
				}
				v = v.with(c)
			}
		}
		for key, n := range made {
			if n > had+2 { // one for each it had, and what a rollout and its rollback need
				t.Fatalf("%d tasks were made in slot %v, which had %d: %q", n, key, had, why)
			}
		}
	})
}

// TestUnknownOutcome: a write that takes place after a new leader began leads
// to no second successor, and counts once (cases/store.md, store-2).
func TestUnknownOutcome(t *testing.T) {
	for _, change := range []bool{false, true} {
		simulate(t, 1, func(s *sim) {
			s.create(simSpec(1, restart(3, 0, 0)))
			s.awaitServing("v1", 1)
			s.prop.mu.Lock()
			unknown := 3
			s.prop.fault = func() int {
				if unknown--; unknown >= 0 {
					return 2
				}
				return 0
			}
			s.prop.mu.Unlock()
			s.fail(s.serving()[0])
			if change {
				s.newLeader()
			}
			time.Sleep(10 * time.Second)
			if made := s.watch.made(1); made != 2 || len(s.serving()) != 1 {
				t.Errorf("%d tasks made\n%s", made, s.dump())
			}
			if b := s.budget(); b.Used != 1 {
				t.Errorf("one failure counts as %+v", b)
			}
			s.odds()
		})
	}
}

// TestRefusedWrites are tried again until they take place (cases/store.md,
// store-2, without a later commit).
func TestRefusedWrites(t *testing.T) {
	simulate(t, 1, func(s *sim) {
		refuse := true
		s.prop.mu.Lock()
		s.prop.fault = func() int {
			if refuse {
				return 1
			}
			return 0
		}
		s.prop.mu.Unlock()
		err := s.store.Update(func(tx store.Tx) error {
			return store.CreateService(tx, &api.Service{ID: "web", Spec: simSpec(2, nil), SpecVersion: &api.Version{}})
		})
		if _, ok := err.(*raft.WriteError); !ok {
			t.Fatal(err)
		}
		s.prop.mu.Lock()
		refuse = false
		s.prop.mu.Unlock()
		s.create(simSpec(2, nil))
		s.prop.mu.Lock()
		refuse = true
		s.prop.mu.Unlock()
		time.Sleep(time.Minute)
		s.prop.mu.Lock()
		refuse = false
		s.prop.mu.Unlock()
		if took := s.awaitServing("v1", 2); took > 3*time.Second {
			t.Errorf("took %v", took)
		}
	})
}

// TestSince: whose clock is believed.
func TestSince(t *testing.T) {
	at := func(s int) *gogotypes.Timestamp {
		if s < 0 {
			return nil
		}
		return timestamp(epoch.Add(time.Duration(s) * time.Second))
	}
	for _, c := range []struct{ own, applied, want int }{
		{10, 11, 10},
		{10, 70, 10},   // heard late, or by a new leader again
		{10, 71, 71},   // a node whose clock is slow, or a report that is old
		{12, 11, 11},   // a node whose clock is fast
		{10, -1, 10},   // written by the leader itself
		{-1, 11, 11},   // no node said when
		{-1, -1, -100}, // nobody did
	} {
		got := since(&api.Task{Status: api.TaskStatus{Timestamp: at(c.own), AppliedAt: at(c.applied)}})
		if c.want == -100 && !got.IsZero() || c.want >= 0 && !got.Equal(epoch.Add(time.Duration(c.want)*time.Second)) {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// TestJobsAreLeftAlone: they are SwarmKit's.
func TestJobsAreLeftAlone(t *testing.T) {
	v := View{Service: serviceOf(3)}
	v.Service.Spec.Mode = &api.ServiceSpec_ReplicatedJob{ReplicatedJob: &api.ReplicatedJob{TotalCompletions: 3}}
	if changes, next := Plan(v, epoch); len(changes) > 0 || !next.IsZero() {
		t.Errorf("%+v at %v", changes, next)
	}
	if b := BudgetOf(v.Service, v.Tasks, epoch); b != nil {
		t.Errorf("budget %+v", b)
	}
}

// TestPlacementThatIsGone: a service without a placement, whose tasks had one.
func TestPlacementThatIsGone(t *testing.T) {
	v := View{Service: serviceOf(1), Nodes: upNodes("n1")}
	x := taskAt(1, "n1", api.TaskStateRunning, time.Hour)
	x.SpecVersion.Index = 3
	x.Spec.Placement = &api.Placement{Constraints: []string{"node.labels.disk==fast"}}
	v.Tasks = []*api.Task{x}
	if newSituation(v, epoch).dirty(x) {
		t.Error("a task on a node that is good enough is to be replaced")
	}
}

// TestStartLimit: the formula of the deadline, which no setting overflows.
func TestStartLimit(t *testing.T) {
	longest := gogotypes.DurationProto(1<<63 - 1)
	for _, c := range []struct {
		check *api.HealthConfig
		want  time.Duration
	}{
		{nil, StartLimit},
		{&api.HealthConfig{Test: []string{"NONE"}}, StartLimit},
		{&api.HealthConfig{Test: []string{"CMD", "x"}}, StartLimit + 3*time.Minute},
		{&api.HealthConfig{Test: []string{"CMD", "x"}, Interval: seconds(5), Timeout: seconds(3), Retries: 2, StartPeriod: seconds(40)}, StartLimit + 59*time.Second},
		// Its own verdict is later than StartPeriod and retries cycles: the waits
		// before it are longer than the interval, or a cycle is a long timeout.
		{&api.HealthConfig{Test: []string{"CMD", "x"}, Interval: seconds(5), Timeout: seconds(30), Retries: 3, StartInterval: seconds(60)}, StartLimit + 270*time.Second},
		{&api.HealthConfig{Test: []string{"CMD", "x"}, Interval: seconds(5), Timeout: seconds(120), Retries: 2, StartPeriod: seconds(10)}, StartLimit + (10+125+125+120)*time.Second},
	} {
		x := taskAt(1, "n1", api.TaskStateStarting, 0)
		x.Spec.GetContainer().Healthcheck = c.check
		if got := startLimit(x); got != c.want {
			t.Errorf("%v: %v, want %v", c.check, got, c.want)
		}
	}
	x := taskAt(1, "n1", api.TaskStateStarting, 0)
	x.Spec.GetContainer().Healthcheck = &api.HealthConfig{
		Test: []string{"CMD", "x"}, Interval: longest, Timeout: longest, StartPeriod: longest, Retries: 1<<31 - 1,
	}
	if got := startLimit(x); got <= 0 {
		t.Errorf("overflow: %v", got)
	}
}

// TestStopsRestOnTheSpec: what is decided on one spec of a service stops
// nothing once there is another, as where a rollback comes in between.
func TestStopsRestOnTheSpec(t *testing.T) {
	simulate(t, 1, func(s *sim) {
		s.create(simSpec(1, nil))
		s.awaitServing("v1", 1)
		s.stopOrchestrator()
		decided := s.view()
		s.image("v2")
		running := s.serving()[0]
		change := Change{Why: "of old", Update: []*api.Task{stop(running, time.Now())}}
		err := s.store.Update(func(tx store.Tx) error { return change.apply(tx, decided) })
		if !errors.Is(err, errChanged) || s.tasks()[0].DesiredState != api.TaskStateRunning {
			t.Errorf("%v: %s", err, s.dump())
		}
		s.startOrchestrator()
		s.awaitServing("v2", 1)
	})
}
