// SPDX-License-Identifier: BSD-2-Clause

package orchestrator

import (
	"time"

	gogotypes "github.com/gogo/protobuf/types"
	"github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/manager/state/store"
)

// simSpec is a service of some replicas; change alters it.
func simSpec(replicas uint64, change func(*api.ServiceSpec)) api.ServiceSpec {
	spec := api.ServiceSpec{
		Annotations: api.Annotations{Name: "web"},
		Task: api.TaskSpec{
			Runtime: &api.TaskSpec_Container{Container: &api.ContainerSpec{Image: "v1"}},
			Restart: &api.RestartPolicy{Condition: api.RestartOnAny, Delay: gogotypes.DurationProto(time.Second)},
		},
		Mode: &api.ServiceSpec_Replicated{Replicated: &api.ReplicatedService{Replicas: replicas}},
		Update: &api.UpdateConfig{
			Parallelism: 1, Monitor: gogotypes.DurationProto(5 * time.Second), FailureAction: api.UpdateConfig_PAUSE,
		},
		Rollback: &api.UpdateConfig{Parallelism: 1, Monitor: gogotypes.DurationProto(2 * time.Second)},
	}
	if change != nil {
		change(&spec)
	}
	return spec
}

func (s *sim) create(spec api.ServiceSpec) {
	s.update(func(tx store.Tx) error {
		return store.CreateService(tx, &api.Service{ID: "web", Spec: *spec.Copy(), SpecVersion: &api.Version{}})
	})
}

// change updates the service as the control API does.
func (s *sim) change(change func(*api.ServiceSpec)) {
	s.update(func(tx store.Tx) error {
		svc := store.GetService(tx, "web")
		svc.PreviousSpec, svc.PreviousSpecVersion = svc.Spec.Copy(), svc.SpecVersion
		change(&svc.Spec)
		svc.SpecVersion = svc.Meta.Version.Copy()
		svc.UpdateStatus = nil
		return store.UpdateService(tx, svc)
	})
}

// image updates the service's image.
func (s *sim) image(name string) {
	s.change(func(spec *api.ServiceSpec) { spec.Task.GetContainer().Image = name })
}

// rollback asks for the previous spec as the control API does.
func (s *sim) rollback() (possible bool) {
	s.update(func(tx store.Tx) error {
		svc := store.GetService(tx, "web")
		if possible = svc.PreviousSpec != nil; !possible {
			return nil
		}
		spec, version := svc.Spec.Copy(), svc.SpecVersion
		svc.Spec, svc.SpecVersion = *svc.PreviousSpec.Copy(), svc.PreviousSpecVersion
		svc.PreviousSpec, svc.PreviousSpecVersion = spec, version
		svc.UpdateStatus = &api.UpdateStatus{
			State: api.UpdateStatus_ROLLBACK_STARTED, Message: "manually requested rollback", StartedAt: timestamp(time.Now()),
		}
		return store.UpdateService(tx, svc)
	})
	return possible
}

// node changes a node as the dispatcher and operators do.
func (s *sim) node(id string, change func(n *api.Node)) {
	s.update(func(tx store.Tx) error {
		n := store.GetNode(tx, id)
		change(n)
		return store.UpdateNode(tx, n)
	})
}

func (s *sim) down(id string) {
	s.node(id, func(n *api.Node) { n.Status.State = api.NodeStatus_DOWN })
}
func (s *sim) up(id string) {
	s.node(id, func(n *api.Node) { n.Status.State = api.NodeStatus_READY })
}
func (s *sim) availability(id string, a api.NodeSpec_Availability) {
	s.node(id, func(n *api.Node) { n.Spec.Availability = a })
}

// fail ends a task by itself, now.
func (s *sim) fail(x *api.Task) { s.t.Helper(); s.failWith(x, "task: non-zero exit (137)") }

func (s *sim) failWith(x *api.Task, text string) {
	s.t.Helper()
	s.update(func(tx store.Tx) error {
		t := store.GetTask(tx, x.ID)
		t.Status = api.TaskStatus{
			State: api.TaskStateFailed, Err: text, Message: "started",
			Timestamp: timestamp(time.Now()), AppliedAt: timestamp(time.Now()),
		}
		return store.UpdateTask(tx, t)
	})
}

// say has a task's node say something of it while it runs, as executor does of
// one that is out of traffic.
func (s *sim) say(x *api.Task, text string) {
	s.t.Helper()
	s.update(func(tx store.Tx) error {
		t := store.GetTask(tx, x.ID)
		t.Status.Err = text
		t.Status.Timestamp, t.Status.AppliedAt = timestamp(time.Now()), timestamp(time.Now())
		return store.UpdateTask(tx, t)
	})
}
