// SPDX-License-Identifier: BSD-2-Clause

package orchestrator

import (
	"cmp"
	"slices"

	"github.com/moby/swarmkit/v2/api"
)

// mostFilled is how many slots one pass fills: the next one comes at once, and
// may find that fewer are wanted.
const mostFilled = 1000

// planReplicas fills slots that are missing and empties those that are too
// many.
func (s *situation) planReplicas() []Change {
	if isGlobal(s.Service) {
		return s.planEverywhere()
	}
	var out []Change
	taken := map[uint64]*slot{}
	occupied := uint64(0)
	for _, sl := range s.slots {
		taken[sl.key.number] = sl
		switch {
		case s.extra[sl.key]:
			out = append(out, s.empty(sl)...)
		case s.occupied(sl):
			occupied++
		}
	}
	wanted := min(s.replicas(), occupied+mostFilled)
	for number := uint64(1); occupied < wanted; number++ {
		sl := taken[number]
		if sl != nil && (s.occupied(sl) || s.extra[sl.key]) {
			continue
		}
		out = append(out, s.fill(sl, slotKey{number: number}))
		occupied++
	}
	return out
}

func (s *situation) replicas() uint64 {
	if r := s.Service.Spec.GetReplicated(); r != nil {
		return r.Replicas
	}
	return 0
}

// occupied tells whether a slot has a task, or is to stay as it is: its last
// task is to have no successor, or the rollout will see to it.
func (s *situation) occupied(sl *slot) bool {
	last := sl.last()
	switch {
	case last == nil:
		return false
	case len(sl.live()) > 0, label(last, LabelEnd) != "":
		return true
	case s.dirty(last):
		_, exhausted := Exhausted(last)
		return exhausted || !s.roll.paused
	}
	_, exhausted := Exhausted(last)
	// A change of the spec gives the budget back (cases/budget.md, budget-2).
	return exhausted && sameVersion(last.SpecVersion, s.Service.SpecVersion)
}

// fill makes a task for an empty slot. It waits if an earlier one is still
// stopping there.
func (s *situation) fill(sl *slot, key slotKey) Change {
	wait := sl != nil && slices.ContainsFunc(append(slices.Clone(sl.tasks), sl.gone...), s.stopping)
	t := s.newTask(key, wait)
	if s.roll.active && sl != nil && sl.last() != nil && unproven(sl.last()) {
		setLabel(t, LabelRollout, s.roll.id)
	}
	change := Change{Why: "slot is empty", Create: []*api.Task{t}}
	if sl != nil {
		change.Unchanged = sl.tasks
	}
	return change
}

// empty removes all tasks of a slot, each in a change of its own.
func (s *situation) empty(sl *slot) (out []Change) {
	for _, t := range sl.tasks {
		out = append(out, Change{Why: "slot is too many", Update: []*api.Task{remove(t, s.now)}})
	}
	return out
}

// surplus are the slots that a replicated service has too many, the worst
// ones: failed, then pending, starting, withdrawn, then running; among equals
// those of an older spec, then those whose node has most of this service, then
// the newest.
func (s *situation) surplus() map[slotKey]bool {
	if isGlobal(s.Service) {
		return nil
	}
	type candidate struct {
		*slot
		class, nth int
		dirty      bool
		best       *api.Task
	}
	var all []*candidate
	for _, sl := range s.slots {
		if !s.occupied(sl) {
			continue
		}
		c := &candidate{slot: sl, best: sl.last()}
		for _, t := range sl.live() {
			if class := fitness(t); class > c.class {
				c.class, c.best = class, t
			}
			if label(t, LabelDue) != "" && t.Status.State < api.TaskStateStarting {
				c.class = max(c.class-1, 0) // the restart of one that failed
			}
		}
		c.dirty = s.dirty(c.best)
		all = append(all, c)
	}
	wanted := s.replicas()
	if uint64(len(all)) <= wanted {
		return nil
	}
	// The order in which one would keep them; nth is how many are kept
	// before it on the same node.
	flag := func(b bool) int {
		if b {
			return 1
		}
		return 0
	}
	slices.SortFunc(all, func(a, b *candidate) int {
		return cmp.Or(cmp.Compare(b.class, a.class), cmp.Compare(flag(a.dirty), flag(b.dirty)),
			newestFirst(b.best, a.best), a.key.compare(b.key))
	})
	perNode := map[string]int{}
	for _, c := range all {
		if c.best.NodeID != "" {
			c.nth = perNode[c.best.NodeID]
			perNode[c.best.NodeID]++
		}
	}
	slices.SortStableFunc(all, func(a, b *candidate) int {
		return cmp.Or(cmp.Compare(b.class, a.class), cmp.Compare(flag(a.dirty), flag(b.dirty)), cmp.Compare(a.nth, b.nth))
	})
	out := map[slotKey]bool{}
	for _, c := range all[wanted:] {
		out[c.key] = true
	}
	return out
}

// planEverywhere keeps one task of a global service on each node that is to
// have one.
func (s *situation) planEverywhere() (out []Change) {
	byNode := map[string]*slot{}
	for _, sl := range s.slots {
		byNode[sl.key.node] = sl
		n := s.Nodes[sl.key.node]
		switch {
		case n == nil && sl.key.node != "":
			for _, t := range append(slices.Clone(sl.tasks), sl.gone...) {
				out = append(out, Change{Why: "node is gone", Delete: []*api.Task{t}})
			}
		case !s.eligible(n):
			for _, t := range sl.live() {
				out = append(out, Change{Why: "node is not to run it", Update: []*api.Task{stop(t, s.now)}})
			}
		}
	}
	nodes := make([]*api.Node, 0, len(s.Nodes))
	for _, n := range s.Nodes {
		nodes = append(nodes, n)
	}
	slices.SortFunc(nodes, func(a, b *api.Node) int { return cmp.Compare(a.ID, b.ID) })
	for _, n := range nodes {
		if !s.eligible(n) || n.Spec.Availability == api.NodeAvailabilityPause {
			continue
		}
		if sl := byNode[n.ID]; sl == nil || !s.occupied(sl) {
			out = append(out, s.fill(sl, slotKey{node: n.ID}))
		}
	}
	return out
}

// planOrphans removes the tasks of a service that is gone. Where the node is
// gone or down nobody reports their end: they are deleted at once.
func planOrphans(v View) (out []Change) {
	for _, t := range v.Tasks {
		n := v.Nodes[t.NodeID]
		switch {
		case t.NodeID != "" && (n == nil || n.Status.State == api.NodeStatus_DOWN):
			out = append(out, Change{Why: "service and node are gone", Delete: []*api.Task{t}})
		case t.DesiredState < api.TaskStateRemove:
			t = t.Copy()
			t.DesiredState = api.TaskStateRemove
			out = append(out, Change{Why: "service is gone", Update: []*api.Task{t}})
		}
	}
	return out
}
