// SPDX-License-Identifier: BSD-2-Clause

package orchestrator

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/manager/state/store"
)

var epoch = time.Unix(1_700_000_000, 0)

// taskAt is a task for tables: its slot, node, state and age.
func taskAt(slot uint64, node string, state api.TaskState, age time.Duration) *api.Task {
	spec := simSpec(1, nil)
	t := &api.Task{
		ID: fmt.Sprintf("t%d%s", slot, node), ServiceID: "web", Slot: slot, NodeID: node, Spec: spec.Task,
		SpecVersion: &api.Version{Index: 7}, DesiredState: api.TaskStateRunning,
		Status: api.TaskStatus{State: state, Timestamp: timestamp(epoch.Add(-age))},
	}
	t.Meta.CreatedAt = timestamp(epoch.Add(-age))
	return t
}

// older makes it one of an older spec.
func older(t *api.Task) { t.Spec.GetContainer().Image, t.SpecVersion.Index = "v0", 3 }

func serviceOf(replicas uint64) *api.Service {
	return &api.Service{ID: "web", Spec: simSpec(replicas, nil), SpecVersion: &api.Version{Index: 7}}
}

func upNodes(names ...string) map[string]*api.Node {
	out := map[string]*api.Node{}
	for _, n := range names {
		out[n] = simNode(n)
	}
	return out
}

// TestScaleDownTakesTheWorst: failed, pending, starting, withdrawn, then the
// newest, with regard to nodes among equals.
func TestScaleDownTakesTheWorst(t *testing.T) {
	with := func(t *api.Task, change func(*api.Task)) *api.Task { change(t); return t }
	withdrawn := func(t *api.Task) { t.Status.Err = "withdrawn: unhealthy" }
	exhausted := func(t *api.Task) {
		t.DesiredState = api.TaskStateShutdown
		setLabel(t, LabelExhausted, "1 attempt")
	}
	again := func(t *api.Task) { t.DesiredState = api.TaskStateReady; setLabel(t, LabelDue, formatTime(epoch)) }
	run := api.TaskStateRunning
	for _, c := range []struct {
		name  string
		tasks []*api.Task
		want  []uint64 // slots in the order they go
	}{
		{"by state", []*api.Task{
			taskAt(1, "n1", run, time.Hour), with(taskAt(2, "n1", run, time.Hour), withdrawn), taskAt(3, "n1", api.TaskStateStarting, time.Hour),
			taskAt(4, "", api.TaskStatePending, time.Hour), with(taskAt(5, "n1", api.TaskStateFailed, time.Hour), exhausted),
		}, []uint64{5, 4, 3, 2, 1}},
		{"a restart before one that was never tried", []*api.Task{
			taskAt(1, "", api.TaskStatePending, time.Hour), with(taskAt(2, "", api.TaskStatePending, 2*time.Hour), again),
		}, []uint64{2, 1}},
		{"newest", []*api.Task{
			taskAt(1, "n1", run, time.Minute), taskAt(2, "n1", run, time.Hour), taskAt(3, "n1", run, time.Second),
		}, []uint64{3, 1, 2}},
		{"nodes stay even", []*api.Task{
			taskAt(1, "n1", run, 5*time.Hour), taskAt(2, "n1", run, 4*time.Hour), taskAt(3, "n1", run, 3*time.Hour), taskAt(4, "n2", run, time.Minute),
		}, []uint64{3, 2, 4, 1}},
		{"an older spec first", []*api.Task{
			taskAt(1, "n1", run, time.Minute), with(taskAt(2, "n1", run, time.Hour), older),
		}, []uint64{2, 1}},
	} {
		for n := range c.tasks {
			v := View{Service: serviceOf(uint64(n)), Tasks: c.tasks, Nodes: upNodes("n1", "n2")}
			var got []uint64
			for key := range newSituation(v, epoch).extra {
				got = append(got, key.number)
			}
			slices.Sort(got)
			want := slices.Clone(c.want[:len(c.tasks)-n])
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("%s, down to %d: slots %v go, want %v", c.name, n, got, want)
			}
		}
	}
}

// TestScale: tasks come and go with the number, the rest stays.
func TestScale(t *testing.T) {
	simulate(t, 3, func(s *sim) {
		s.create(simSpec(3, nil))
		s.awaitServing("v1", 3)
		for _, n := range []uint64{6, 2, 0, 4} {
			before := ids(s.serving())
			s.change(func(spec *api.ServiceSpec) { spec.GetReplicated().Replicas = n })
			s.awaitServing("v1", int(n))
			time.Sleep(10 * time.Second)
			after := ids(s.serving())
			kept := slices.DeleteFunc(slices.Clone(before), func(id string) bool { return !slices.Contains(after, id) })
			if len(kept) != min(len(before), len(after)) {
				t.Errorf("%d to %d: %d were kept", len(before), len(after), len(kept))
			}
			if all := len(s.tasks()); all != int(n) {
				t.Errorf("%d tasks are left of %d", all, n)
			}
		}
		s.odds()
	})
}

func global(spec *api.ServiceSpec) {
	spec.Mode = &api.ServiceSpec_Global{Global: &api.GlobalService{}}
}

// nodesOf are the nodes that serving tasks are on, sorted.
func (s *sim) nodesOf() (out []string) {
	for _, t := range s.serving() {
		out = append(out, t.NodeID)
	}
	slices.Sort(out)
	return out
}

// TestGlobal: one task on each node that is to have one.
func TestGlobal(t *testing.T) {
	simulate(t, 3, func(s *sim) {
		at := func(nodes ...string) {
			t.Helper()
			s.await(time.Minute, fmt.Sprint("it serves on ", nodes), func() bool { return slices.Equal(s.nodesOf(), nodes) })
		}
		s.create(simSpec(0, func(spec *api.ServiceSpec) { global(spec); restart(1, 0, 0)(spec) }))
		at("n1", "n2", "n3")
		s.availability("n1", api.NodeAvailabilityDrain)
		at("n2", "n3")
		s.availability("n1", api.NodeAvailabilityActive)
		at("n1", "n2", "n3")
		s.down("n2")
		at("n1", "n3")
		s.up("n2")
		at("n1", "n2", "n3")
		s.update(func(tx store.Tx) error { return store.CreateNode(tx, simNode("n4")) })
		at("n1", "n2", "n3", "n4")
		s.update(func(tx store.Tx) error { return store.DeleteNode(tx, "n4") })
		s.await(time.Minute, "no task names the node that is gone", func() bool {
			return !slices.ContainsFunc(s.tasks(), func(x *api.Task) bool { return x.NodeID == "n4" })
		})
		// A node's label decides.
		s.node("n3", func(n *api.Node) { n.Spec.Annotations.Labels = map[string]string{"disk": "fast"} })
		s.change(func(spec *api.ServiceSpec) {
			spec.Task.Placement = &api.Placement{Constraints: []string{"node.labels.disk==fast"}}
		})
		at("n3")
		s.change(func(spec *api.ServiceSpec) { spec.Task.Placement = nil })
		at("n1", "n2", "n3")
		// A paused node keeps what it has and gets nothing.
		s.availability("n1", api.NodeAvailabilityPause)
		before := s.serving()
		s.image("v2")
		s.awaitServing("v2", 2)
		time.Sleep(20 * time.Second)
		for _, x := range before {
			if x.NodeID == "n1" && !slices.Contains(ids(s.serving()), x.ID) {
				t.Error("the task on the paused node was replaced")
			}
		}
		s.availability("n1", api.NodeAvailabilityActive)
		s.awaitServing("v2", 3)
		// The budget is each node's own.
		for range 2 {
			s.await(time.Minute, "three serve", func() bool { return len(s.serving()) == 3 })
			for _, x := range s.serving() {
				if x.NodeID == "n2" {
					s.fail(x)
				}
			}
			s.newLeader()
			time.Sleep(time.Second)
		}
		time.Sleep(time.Minute)
		at("n1", "n3")
		s.odds()
	})
}

// TestRemoval: the tasks of a service that is gone go too, also those whose
// node cannot say so.
func TestRemoval(t *testing.T) {
	simulate(t, 2, func(s *sim) {
		s.create(simSpec(4, nil))
		s.awaitServing("v1", 4)
		s.down("n2")
		s.update(func(tx store.Tx) error { return store.DeleteService(tx, "web") })
		s.await(10*time.Second, "no task is left", func() bool { return len(s.tasks()) == 0 })
	})
}

// TestRemovalBetweenLeaders: so do those of a service that went while nobody
// led.
func TestRemovalBetweenLeaders(t *testing.T) {
	simulate(t, 2, func(s *sim) {
		s.create(simSpec(4, nil))
		s.awaitServing("v1", 4)
		s.stopOrchestrator()
		s.update(func(tx store.Tx) error { return store.DeleteService(tx, "web") })
		s.startOrchestrator()
		s.await(10*time.Second, "no task is left", func() bool { return len(s.tasks()) == 0 })
	})
}

// TestEnforcer: a task that its node is not for any more costs no attempt.
func TestEnforcer(t *testing.T) {
	simulate(t, 2, func(s *sim) {
		for _, n := range []string{"n1", "n2"} {
			s.node(n, func(n *api.Node) { n.Spec.Annotations.Labels = map[string]string{"web": "yes"} })
		}
		s.create(simSpec(2, func(spec *api.ServiceSpec) {
			spec.Task.Placement = &api.Placement{Constraints: []string{"node.labels.web==yes"}}
			restart(1, 0, 0)(spec)
		}))
		s.awaitServing("v1", 2)
		s.node("n1", func(n *api.Node) { n.Spec.Annotations.Labels = nil })
		s.await(time.Minute, "both serve on the other", func() bool { return slices.Equal(s.nodesOf(), []string{"n2", "n2"}) })
		for _, b := range BudgetOf(s.service(), s.tasks(), time.Now()) {
			if b.Total != 0 {
				t.Errorf("budget %+v", b)
			}
		}
		s.odds()
	})
}

// TestManyReplicas: a pass fills so many slots and no more; the next one, which
// each task that was made asks for, goes on where it ended.
func TestManyReplicas(t *testing.T) {
	v := View{Service: serviceOf(2*mostFilled + 50), Nodes: upNodes("n1")}
	for _, want := range []int{mostFilled, mostFilled, 50, 0} {
		changes := newSituation(v, epoch).planReplicas()
		if len(changes) != want {
			t.Errorf("%d changes in one pass over %d tasks, want %d", len(changes), len(v.Tasks), want)
		}
		for _, c := range changes {
			v.Tasks = append(v.Tasks, c.Create...)
		}
	}
}

// TestFillOfARollout: what fills a slot whose version has not proved itself is
// watched by the rollout that is under way.
func TestFillOfARollout(t *testing.T) {
	for _, c := range []struct {
		name   string
		state  api.UpdateStatus_UpdateState
		labels []string // of the slot's last task
		want   bool
	}{
		{"unproven", api.UpdateStatus_UPDATING, []string{LabelRollout}, true},
		{"unproven, rolled back", api.UpdateStatus_ROLLBACK_STARTED, []string{LabelRollout}, true},
		{"proven", api.UpdateStatus_UPDATING, []string{LabelRollout, LabelProven}, false},
		{"of no rollout", api.UpdateStatus_UPDATING, nil, false},
		{"the rollout is over", api.UpdateStatus_COMPLETED, []string{LabelRollout}, false},
	} {
		x := taskAt(1, "n1", api.TaskStateShutdown, time.Hour)
		x.DesiredState = api.TaskStateShutdown
		for _, l := range c.labels {
			setLabel(x, l, "before")
		}
		v := View{Service: serviceOf(1), Tasks: []*api.Task{x}, Nodes: upNodes("n1")}
		v.Service.UpdateStatus = &api.UpdateStatus{State: c.state, StartedAt: timestamp(epoch)}
		s := newSituation(v, epoch)
		changes := s.planReplicas()
		want := ""
		if c.want {
			want = s.roll.id
		}
		if len(changes) != 1 || label(changes[0].Create[0], LabelRollout) != want {
			t.Errorf("%s: %+v", c.name, changes)
		}
		// One that only a removed task is left of has no version.
		v.Tasks = []*api.Task{remove(x, epoch)}
		if next := newSituation(v, epoch).planReplicas()[0].Create[0]; label(next, LabelRollout) != "" {
			t.Errorf("%s, removed: %+v", c.name, next)
		}
	}
}
