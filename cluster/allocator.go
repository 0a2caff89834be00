// SPDX-License-Identifier: BSD-2-Clause

package cluster

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	"github.com/docker/go-events"
	gogotypes "github.com/gogo/protobuf/types"
	"github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/manager/state"
	"github.com/moby/swarmkit/v2/manager/state/store"

	"satld/executor"
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
// services their published ports, overlay networks their subnets, nodes and
// tasks their addresses in these, and takes tasks from NEW to PENDING once they
// have all of it. Each pass starts from the store alone.
type allocator struct {
	store *store.MemoryStore
	pool  netip.Prefix // of overlay networks, of a cluster that does not say
	log   *slog.Logger
}

func newAllocator(s *store.MemoryStore, pool netip.Prefix, log *slog.Logger) *allocator {
	return &allocator{store: s, pool: pool, log: log}
}

// Run makes a pass at each change that concerns it, and every 5 s, until ctx
// is done.
func (a *allocator) Run(ctx context.Context) error {
	isNew := func(_, t *api.Task) bool { return t.Status.State == api.TaskStateNew }
	watch, cancel := state.Watch(a.store.WatchQueue(),
		api.EventCreateService{}, api.EventUpdateService{}, api.EventDeleteService{},
		api.EventCreateTask{}, api.EventCreateNode{}, api.EventCreateNetwork{}, api.EventDeleteNetwork{},
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
	tasks    []*api.Task
	networks []*api.Network
	nodes    []*api.Node
	pool     netip.Prefix
}

// allocPlan is what a pass changes.
type allocPlan struct {
	endpoints map[string]*api.Endpoint // by service ID
	networks  []*api.Network           // as they are to be, like the rest
	nodes     []*api.Node
	tasks     []*api.Task
	trouble   error // what there was no room for
}

// pass brings the store to where nothing is left to allocate.
func (a *allocator) pass(now time.Time) error {
	view, err := a.view()
	if err != nil {
		return err
	}
	plan := planAllocation(view, now)
	if len(plan.endpoints)+len(plan.networks)+len(plan.nodes)+len(plan.tasks) == 0 {
		return plan.trouble
	}
	return errors.Join(a.apply(view, plan), plan.trouble)
}

func (a *allocator) view() (v allocView, err error) {
	a.store.View(func(tx store.ReadTx) {
		var errs [5]error
		var clusters []*api.Cluster
		v.services, errs[0] = store.FindServices(tx, store.All)
		v.tasks, errs[1] = store.FindTasks(tx, store.All)
		v.networks, errs[2] = store.FindNetworks(tx, store.All)
		v.nodes, errs[3] = store.FindNodes(tx, store.All)
		clusters, errs[4] = store.FindClusters(tx, store.All)
		if err = errors.Join(errs[:]...); err == nil {
			v.pool, err = poolOf(clusters, a.pool)
		}
	})
	return v, err
}

// planAllocation is the allocator's decision.
func planAllocation(v allocView, now time.Time) allocPlan {
	ports := planPorts(v.services)
	overlays, trouble := planOverlays(v.networks, v.nodes, v.tasks, v.pool)
	plan := allocPlan{endpoints: ports.endpoints, networks: overlays.networks, nodes: overlays.nodes, trouble: trouble}
	networks := make(map[string]*api.Network, len(v.networks))
	for _, list := range [][]*api.Network{v.networks, overlays.networks} {
		for _, n := range list {
			networks[n.ID] = n
		}
	}
	services := make(map[string]*api.Service, len(v.services))
	for _, s := range v.services {
		services[s.ID] = s
	}
	for _, t := range v.tasks {
		if t.Status.State != api.TaskStateNew {
			continue
		}
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
			t.Networks = attachments(t, s, networks)
		}
		if full := takeAddresses(t, overlays.pools); full != "" {
			if reason := "no address is left in network " + full; t.Status.Err != reason {
				t.Status.Err = reason
				plan.tasks = append(plan.tasks, t)
			}
			continue
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

// takeAddresses gives a task its addresses in overlay networks; full is the
// name of one without any left.
func takeAddresses(t *api.Task, pools map[string]*addresses) (full string) {
	for _, at := range t.Networks {
		pool := pools[at.Network.ID]
		if pool == nil {
			continue
		}
		if p, has := executor.AttachedAt(at); has && pool.subnet.Contains(p.Addr()) {
			continue
		}
		addr, ok := pool.take()
		if !ok {
			return at.Network.Spec.Annotations.Name
		}
		at.Addresses = []string{addr.String()}
	}
	return ""
}

// publishes tells whether a task's service publishes a port on all nodes.
func publishes(t *api.Task) bool {
	if t.Endpoint == nil {
		return false
	}
	return slices.ContainsFunc(t.Endpoint.Ports, func(p *api.PortConfig) bool { return p.PublishMode == api.PublishModeIngress })
}

// attachments names the networks a task is in, those of its own spec before
// its service's, and the ingress network last if it publishes a port. Networks
// that are not in the store (the host's, for one) are the executor's matter,
// and so are the addresses of those that are no overlay.
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
	if publishes(t) {
		for _, n := range networks {
			if n.Spec.Ingress {
				out = append(out, &api.NetworkAttachment{Network: n.Copy()})
			}
		}
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
		for _, n := range plan.networks {
			if err := batch.Update(func(tx store.Tx) error {
				return unlessChanged(store.UpdateNetwork(tx, n))
			}); err != nil {
				return err
			}
		}
		for _, n := range plan.nodes {
			if err := batch.Update(func(tx store.Tx) error {
				// Its status changes all the time, and is not what is decided here.
				node := store.GetNode(tx, n.ID)
				if node == nil {
					return nil
				}
				node = node.Copy()
				node.Attachments = n.Attachments
				return store.UpdateNode(tx, node)
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
