// SPDX-License-Identifier: BSD-2-Clause

package orchestrator

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/manager/constraint"
	swarm "github.com/moby/swarmkit/v2/manager/orchestrator"
	"github.com/moby/swarmkit/v2/manager/state/store"
)

// View is what the store holds of one service. Its objects are not changed.
type View struct {
	Service *api.Service // nil: it was removed
	Tasks   []*api.Task
	Nodes   map[string]*api.Node // all nodes for a global service, else those of Tasks
	Cluster *api.Cluster         // for defaults of new tasks; may be nil
}

// viewOf reads one service.
func viewOf(tx store.ReadTx, serviceID string) (View, error) {
	v := View{Service: store.GetService(tx, serviceID), Nodes: map[string]*api.Node{}}
	var e1, e2, e3 error
	v.Tasks, e1 = store.FindTasks(tx, store.ByServiceID(serviceID))
	if v.Service != nil && isGlobal(v.Service) {
		var nodes []*api.Node
		nodes, e2 = store.FindNodes(tx, store.All)
		for _, n := range nodes {
			v.Nodes[n.ID] = n
		}
	} else {
		for _, t := range v.Tasks {
			if _, ok := v.Nodes[t.NodeID]; ok || t.NodeID == "" {
				continue
			}
			if n := store.GetNode(tx, t.NodeID); n != nil {
				v.Nodes[n.ID] = n
			}
		}
	}
	v.Cluster, e3 = theCluster(tx)
	return v, errors.Join(e1, e2, e3)
}

// allViews reads all services, and under IDs of services that are gone the
// tasks that are left of them.
func allViews(tx store.ReadTx) (map[string]View, error) {
	services, e1 := store.FindServices(tx, store.All)
	tasks, e2 := store.FindTasks(tx, store.All)
	nodes, e3 := store.FindNodes(tx, store.All)
	cluster, e4 := theCluster(tx)
	if err := errors.Join(e1, e2, e3, e4); err != nil {
		return nil, err
	}
	byID := make(map[string]*api.Node, len(nodes))
	for _, n := range nodes {
		byID[n.ID] = n
	}
	views := make(map[string]View, len(services))
	for _, s := range services {
		views[s.ID] = View{Service: s, Nodes: byID, Cluster: cluster}
	}
	for _, t := range tasks {
		if t.ServiceID == "" {
			continue
		}
		v, ok := views[t.ServiceID]
		if !ok {
			v = View{Nodes: byID, Cluster: cluster}
		}
		v.Tasks = append(v.Tasks, t)
		views[t.ServiceID] = v
	}
	return views, nil
}

func theCluster(tx store.ReadTx) (*api.Cluster, error) {
	clusters, err := store.FindClusters(tx, store.ByName(store.DefaultClusterName))
	if err != nil || len(clusters) == 0 {
		return nil, err
	}
	return clusters[0], nil
}

func isGlobal(s *api.Service) bool { return swarm.IsGlobalService(s) }

// ours tells whether this package looks after a service: jobs are SwarmKit's.
func ours(s *api.Service) bool { return isGlobal(s) || swarm.IsReplicatedService(s) }

// slotKey names a slot: a number, or the node of a global service's task.
type slotKey struct {
	number uint64
	node   string
}

func (k slotKey) compare(o slotKey) int {
	return cmp.Or(cmp.Compare(k.number, o.number), strings.Compare(k.node, o.node))
}

// slot is one place of a service, filled by one task at a time, or by two
// while a rollout starts the new one first.
type slot struct {
	key   slotKey
	tasks []*api.Task // newest first, without those that are to be removed
	gone  []*api.Task // those that are to be removed
}

// live are the tasks that are wanted, whether or not they run.
func (s *slot) live() (out []*api.Task) {
	for _, t := range s.tasks {
		if t.DesiredState <= api.TaskStateRunning {
			out = append(out, t)
		}
	}
	return out
}

// last is the newest task, nil for a slot that only removed tasks are left of.
func (s *slot) last() *api.Task {
	if len(s.tasks) == 0 {
		return nil
	}
	return s.tasks[0]
}

// situation is a view and what follows from it at one time.
type situation struct {
	View
	now   time.Time
	slots []*slot // by key
	roll  rollout
	dirts map[string]bool // by task ID; see dirty
	extra map[slotKey]bool
	next  time.Time // when to look again; zero: when the store changes
}

func newSituation(v View, now time.Time) *situation {
	s := &situation{View: v, now: now, dirts: map[string]bool{}}
	byKey := map[slotKey]*slot{}
	global := isGlobal(v.Service)
	for _, t := range v.Tasks {
		key := slotKey{number: t.Slot}
		if global {
			key = slotKey{node: t.NodeID}
		}
		if byKey[key] == nil {
			byKey[key] = &slot{key: key}
			s.slots = append(s.slots, byKey[key])
		}
		sl := byKey[key]
		if t.DesiredState >= api.TaskStateRemove {
			sl.gone = append(sl.gone, t)
		} else {
			sl.tasks = append(sl.tasks, t)
		}
	}
	slices.SortFunc(s.slots, func(a, b *slot) int { return a.key.compare(b.key) })
	for _, sl := range s.slots {
		slices.SortFunc(sl.tasks, newestFirst)
	}
	s.roll = rolloutOf(v.Service)
	s.extra = s.surplus()
	return s
}

// wake asks for another look at a time in the future.
func (s *situation) wake(at time.Time) {
	if at.After(s.now) && (s.next.IsZero() || at.Before(s.next)) {
		s.next = at
	}
}

// dirty tells whether a task is of an older spec in a way that matters.
// SwarmKit's comparison takes a change of what a task is not made of (replicas,
// update settings) for none; so does it a change of placement that its node
// satisfies.
func (s *situation) dirty(t *api.Task) bool {
	d, ok := s.dirts[t.ID]
	if !ok {
		service := s.Service
		if service.Spec.Task.Placement == nil && t.Spec.Placement != nil {
			// The comparison cannot cope with a placement that is gone.
			with := *service
			with.Spec.Task.Placement = &api.Placement{}
			service = &with
		}
		d = swarm.IsTaskDirty(service, t, s.Nodes[t.NodeID])
		s.dirts[t.ID] = d
	}
	return d
}

// split are the live tasks of a slot: of the service's spec, best first, and
// of older ones.
func (s *situation) split(sl *slot) (clean, stale []*api.Task) {
	for _, t := range sl.live() {
		if s.dirty(t) {
			stale = append(stale, t)
		} else {
			clean = append(clean, t)
		}
	}
	slices.SortStableFunc(clean, func(a, b *api.Task) int {
		return cmp.Or(cmp.Compare(fitness(b), fitness(a)), newestFirst(b, a))
	})
	return clean, stale
}

// eligible tells whether a global service is to run on a node.
func (s *situation) eligible(n *api.Node) bool {
	if swarm.InvalidNode(n) {
		return false
	}
	p := s.Service.Spec.Task.Placement
	if p == nil || len(p.Constraints) == 0 {
		return true
	}
	// The API refuses constraints that cannot be parsed.
	constraints, err := constraint.Parse(p.Constraints)
	return err != nil || constraint.NodeMatches(constraints, n)
}

// scope tells whether a slot is one that rollouts work on.
func (s *situation) scope(sl *slot) bool {
	if s.extra[sl.key] || len(sl.tasks) == 0 {
		return false
	}
	if !isGlobal(s.Service) {
		return true
	}
	n := s.Nodes[sl.key.node]
	return s.eligible(n) && n.Spec.Availability != api.NodeAvailabilityPause
}
