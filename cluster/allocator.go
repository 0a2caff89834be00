// SPDX-License-Identifier: BSD-2-Clause

package cluster

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/docker/go-events"
	gogotypes "github.com/gogo/protobuf/types"
	"github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/manager/state"
	"github.com/moby/swarmkit/v2/manager/state/store"

	"satld/raft"
)

const (
	// allocatedMessage is what SwarmKit's own allocator says.
	allocatedMessage = "pending task scheduling"
	// allocatorPeriod makes a missed event mere latency.
	allocatorPeriod = 5 * time.Second
	// allocatorRetry is the wait after a write that did not take place.
	allocatorRetry = 200 * time.Millisecond
)

// allocator is the step between the orchestrators and the scheduler: it gives
// services their published ports, and takes tasks from NEW to PENDING once
// their service has them. Each pass starts from the store alone.
type allocator struct {
	store *store.MemoryStore
	log   *slog.Logger
}

func newAllocator(s *store.MemoryStore, log *slog.Logger) *allocator {
	return &allocator{store: s, log: log}
}

// Run makes a pass at each change that concerns it, and every 5 s, until ctx
// is done.
func (a *allocator) Run(ctx context.Context) error {
	isNew := func(_, t *api.Task) bool { return t.Status.State == api.TaskStateNew }
	watch, cancel := state.Watch(a.store.WatchQueue(),
		api.EventCreateService{}, api.EventUpdateService{}, api.EventDeleteService{},
		api.EventCreateTask{},
		api.EventUpdateTask{Task: &api.Task{}, Checks: []api.TaskCheckFunc{isNew}},
	)
	defer cancel()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-watch:
			drain(watch)
		case <-timer.C:
		}
		wait := allocatorPeriod
		if err := a.pass(time.Now()); err != nil {
			wait = allocatorRetry
			if unlessChanged(err) != nil && !errors.As(err, new(*raft.WriteError)) {
				a.log.Error("ports and tasks could not be allocated", "error", err)
			}
		}
		timer.Reset(wait)
	}
}

func drain(watch <-chan events.Event) {
	for {
		select {
		case <-watch:
		default:
			return
		}
	}
}

// allocView is what a pass decides on.
type allocView struct {
	services []*api.Service
	tasks    []*api.Task // in state NEW
	networks map[string]*api.Network
}

// allocPlan is what a pass changes.
type allocPlan struct {
	endpoints map[string]*api.Endpoint // by service ID
	tasks     []*api.Task              // as they are to be
}

// pass brings the store to where nothing is left to allocate.
func (a *allocator) pass(now time.Time) error {
	view, err := a.view()
	if err != nil {
		return err
	}
	plan := planAllocation(view, now)
	if len(plan.endpoints) == 0 && len(plan.tasks) == 0 {
		return nil
	}
	return a.apply(view, plan)
}

func (a *allocator) view() (v allocView, err error) {
	a.store.View(func(tx store.ReadTx) {
		var e1, e2, e3 error
		var networks []*api.Network
		v.services, e1 = store.FindServices(tx, store.All)
		v.tasks, e2 = store.FindTasks(tx, store.ByTaskState(api.TaskStateNew))
		networks, e3 = store.FindNetworks(tx, store.All)
		v.networks = make(map[string]*api.Network, len(networks))
		for _, n := range networks {
			v.networks[n.ID] = n
		}
		err = errors.Join(e1, e2, e3)
	})
	return v, err
}

// planAllocation is the allocator's decision.
func planAllocation(v allocView, now time.Time) allocPlan {
	ports := planPorts(v.services)
	plan := allocPlan{endpoints: ports.endpoints}
	services := make(map[string]*api.Service, len(v.services))
	for _, s := range v.services {
		services[s.ID] = s
	}
	for _, t := range v.tasks {
		s := services[t.ServiceID]
		if t.ServiceID != "" && s == nil {
			continue // its service is gone; the orchestrator removes it
		}
		if reason, blocked := ports.blocked[t.ServiceID]; blocked {
			if t.Status.Err != reason {
				t = t.Copy()
				t.Status.Err = reason
				plan.tasks = append(plan.tasks, t)
			}
			continue
		}
		t = t.Copy()
		if s != nil {
			endpoint, changed := ports.endpoints[s.ID]
			if !changed {
				endpoint = s.Endpoint
			}
			if endpoint != nil {
				t.Endpoint = endpoint.Copy()
			}
		}
		if len(t.Networks) == 0 {
			t.Networks = attachments(t, s, v.networks)
		}
		t.Status = api.TaskStatus{
			State:     api.TaskStatePending,
			Message:   allocatedMessage,
			Timestamp: timestamp(now),
		}
		plan.tasks = append(plan.tasks, t)
	}
	return plan
}

// attachments names the networks a task is in, those of its own spec before
// its service's. Networks that are not in the store (the host's, for one) are
// the executor's matter; so are all addresses.
func attachments(t *api.Task, s *api.Service, networks map[string]*api.Network) []*api.NetworkAttachment {
	configs := t.Spec.Networks
	if len(configs) == 0 && s != nil {
		configs = s.Spec.Networks
	}
	var out []*api.NetworkAttachment
	for _, c := range configs {
		n := networks[c.Target]
		if n == nil {
			continue
		}
		out = append(out, &api.NetworkAttachment{
			Network:              n.Copy(),
			Aliases:              append([]string(nil), c.Aliases...),
			Addresses:            append([]string(nil), c.Addresses...),
			DriverAttachmentOpts: c.DriverAttachmentOpts,
		})
	}
	return out
}

// apply writes a plan. A task that changed since the view was taken is left
// alone: its change is an event, and the next pass decides anew.
func (a *allocator) apply(v allocView, plan allocPlan) error {
	return a.store.Batch(func(batch *store.Batch) error {
		for _, s := range v.services {
			endpoint, ok := plan.endpoints[s.ID]
			if !ok {
				continue
			}
			if err := batch.Update(func(tx store.Tx) error {
				s := s.Copy()
				s.Endpoint = endpoint
				// A service that changed may need other ports, and so may
				// the tasks below: all of it is decided anew.
				return store.UpdateService(tx, s)
			}); err != nil {
				return err
			}
		}
		for _, t := range plan.tasks {
			if err := batch.Update(func(tx store.Tx) error {
				return unlessChanged(store.UpdateTask(tx, t))
			}); err != nil {
				return err
			}
		}
		return nil
	})
}

// unlessChanged lets those errors pass that mean that an object changed or went
// away meanwhile.
func unlessChanged(err error) error {
	if errors.Is(err, store.ErrSequenceConflict) || errors.Is(err, store.ErrNotExist) {
		return nil
	}
	return err
}

func timestamp(t time.Time) *gogotypes.Timestamp {
	return &gogotypes.Timestamp{Seconds: t.Unix(), Nanos: int32(t.Nanosecond())}
}
