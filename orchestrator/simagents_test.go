// SPDX-License-Identifier: BSD-2-Clause

package orchestrator

import (
	"context"
	"slices"
	"time"

	"github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/manager/state"
	"github.com/moby/swarmkit/v2/manager/state/store"
)

// allocate is what takes tasks from NEW to PENDING.
func (s *sim) allocate(ctx context.Context) {
	watch, cancel := state.Watch(s.store.WatchQueue(), api.EventCreateTask{})
	defer cancel()
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-watch:
		case <-tick.C:
		}
		var fresh []*api.Task
		s.store.View(func(tx store.ReadTx) { fresh, _ = store.FindTasks(tx, store.ByTaskState(api.TaskStateNew)) })
		for _, t := range fresh {
			s.tryUpdate(func(tx store.Tx) error {
				t := store.GetTask(tx, t.ID)
				if t == nil || t.Status.State != api.TaskStateNew {
					return nil
				}
				if svc := store.GetService(tx, t.ServiceID); svc != nil && svc.Spec.Endpoint != nil {
					t.Endpoint = &api.Endpoint{Spec: svc.Spec.Endpoint.Copy(), Ports: svc.Spec.Endpoint.Copy().Ports}
				}
				t.Status = api.TaskStatus{State: api.TaskStatePending, Timestamp: timestamp(time.Now()), Message: "pending task scheduling"}
				return store.UpdateTask(tx, t)
			})
		}
	}
}

// agents are the agents of all nodes and the dispatcher between.
func (s *sim) agents(ctx context.Context) {
	watch, cancel := state.Watch(s.store.WatchQueue(), api.EventUpdateTask{}, api.EventUpdateNode{})
	defer cancel()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-watch:
			for more := true; more; {
				select {
				case <-watch:
				default:
					more = false
				}
			}
		case <-timer.C:
		}
		timer.Reset(s.stepAll())
	}
}

// stepAll moves all tasks on that are due, and tells when the next one is.
func (s *sim) stepAll() time.Duration {
	var tasks []*api.Task
	up := map[string]bool{}
	s.store.View(func(tx store.ReadTx) {
		tasks, _ = store.FindTasks(tx, store.All)
		nodes, _ := store.FindNodes(tx, store.All)
		for _, n := range nodes {
			up[n.ID] = n.Status.State == api.NodeStatus_READY
		}
	})
	slices.SortFunc(tasks, func(a, b *api.Task) int { return newestFirst(b, a) })
	next := time.Hour
	for _, t := range tasks {
		if !up[t.NodeID] || t.Status.State < api.TaskStateAssigned || ended(t) {
			continue
		}
		if d := s.step(t); d < next {
			next = d
		}
	}
	return max(next, time.Millisecond)
}

// step moves one task on if it is due; else it tells how long that takes.
func (s *sim) step(t *api.Task) time.Duration {
	now := time.Now()
	s.mu.Lock()
	b, ok := s.begun[t.ID]
	if !ok {
		b = begun{script: s.script(t), at: now}
	}
	if t.DesiredState > api.TaskStateRunning && b.told.IsZero() {
		b.told = now
	}
	s.begun[t.ID] = b
	s.mu.Unlock()

	status := t.Status.Copy()
	status.Err = ""
	var due time.Time
	fail := func(state api.TaskState, text string) {
		status.State, status.Err = state, text
		status.RuntimeStatus = &api.TaskStatus_Container{Container: &api.ContainerStatus{ExitCode: b.script.code}}
	}
	switch {
	case !b.told.IsZero():
		due = b.told
		if t.Status.State >= api.TaskStateStarting {
			due = due.Add(b.script.stop)
		}
		status.State, status.Message = api.TaskStateShutdown, "shutdown"
	case t.Status.State < api.TaskStatePreparing:
		due = now
		status.State, status.Message = api.TaskStatePreparing, "preparing"
	case t.Status.State == api.TaskStatePreparing:
		due = b.at.Add(b.script.prepare)
		status.State, status.Message = api.TaskStateReady, "prepared"
		if b.script.reject != "" {
			fail(api.TaskStateRejected, b.script.reject)
		}
	case t.Status.State == api.TaskStateReady:
		if t.DesiredState < api.TaskStateRunning {
			return time.Hour
		}
		due = now
		status.State, status.Message = api.TaskStateStarting, "starting"
	case t.Status.State == api.TaskStateStarting && b.script.start >= 0:
		due = b.at.Add(b.script.start)
		status.State, status.Message = api.TaskStateRunning, "started"
	case b.script.lives == 0:
		return time.Hour
	default:
		due = b.at.Add(b.script.lives)
		if b.script.complete {
			status.State, status.Message = api.TaskStateCompleted, "finished"
		} else {
			fail(api.TaskStateFailed, b.script.err)
		}
	}
	if wait := due.Sub(now); wait > 0 {
		return wait
	}
	status.Timestamp, status.AppliedAt = timestamp(now), timestamp(now)
	written := s.tryUpdate(func(tx store.Tx) error {
		t := store.GetTask(tx, t.ID)
		if t == nil || t.Status.State >= status.State {
			return nil
		}
		t.Status = *status
		return store.UpdateTask(tx, t)
	})
	if !written {
		return 50 * time.Millisecond
	}
	s.mu.Lock()
	b.at = now
	s.begun[t.ID] = b
	s.mu.Unlock()
	return time.Millisecond
}

func (s *sim) setScript(f func(*api.Task) script) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.script = f
}
