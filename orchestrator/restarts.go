// SPDX-License-Identifier: BSD-2-Clause

package orchestrator

import (
	"fmt"
	"strings"
	"time"

	"github.com/moby/swarmkit/v2/api"
	swarm "github.com/moby/swarmkit/v2/manager/orchestrator"
)

// planRestarts gives each task that ended or lost its node its one successor,
// and starts successors that are due.
func (s *situation) planRestarts() (out []Change) {
	for _, sl := range s.slots {
		if s.extra[sl.key] {
			continue // it is about to be removed
		}
		settled := true
		for _, t := range sl.live() {
			switch {
			case s.early(t):
				settled = false
			case ended(t) || s.lost(t):
				out = append(out, s.replace(sl, t))
				settled = false
			case t.DesiredState < api.TaskStateRunning && settled && s.due(sl, t):
				t = t.Copy()
				t.DesiredState = api.TaskStateRunning
				out = append(out, Change{Why: "restart is due", Update: []*api.Task{t}, Unchanged: others(sl, t)})
				settled = false // one start at a time in a slot
			}
		}
		// A node may repeat its report, and with it take the words away.
		if last := sl.last(); last != nil && ended(last) && last.DesiredState > api.TaskStateRunning {
			if _, ok := Exhausted(last); ok && !markedExhausted(last) {
				last = last.Copy()
				markExhausted(last)
				out = append(out, Change{Why: "report took the words away", Update: []*api.Task{last}})
			}
		}
	}
	return out
}

// early tells whether a task failed, in its preparation, before it was due to
// start: its successor is made when it would have been, or a service whose image
// cannot be had would know no delay at all.
func (s *situation) early(t *api.Task) bool {
	due := s.dueAt(t)
	if t.DesiredState >= api.TaskStateRunning || !ended(t) || !failed(t) || !due.After(s.now) {
		return false
	}
	s.wake(due)
	return true
}

// others are the tasks of a slot but one.
func others(sl *slot, t *api.Task) (out []*api.Task) {
	for _, o := range sl.tasks {
		if o.ID != t.ID {
			out = append(out, o)
		}
	}
	return out
}

// lost tells whether a task's node is gone, down or drained.
func (s *situation) lost(t *api.Task) bool {
	return t.NodeID != "" && swarm.InvalidNode(s.Nodes[t.NodeID])
}

// replace ends a task and makes its successor, in one change, if there is to
// be one.
func (s *situation) replace(sl *slot, t *api.Task) Change {
	old := stop(t, s.now)
	fault := ended(t) && failed(t)
	p := policyOf(t)
	end := ""
	tips := false // this failure rolls the update back, and with it the slot
	if fault {
		end = p.wants(t)
		tips = s.judge(sl, old, end == "complete") && s.rollsBack(sl.key)
	}
	change := Change{Why: "task's node is lost", Update: []*api.Task{old}}
	if fault {
		change.Why = "task ended"
	}
	if tips || !s.succeeds(sl, t) {
		return change
	}
	if end != "" {
		setLabel(old, LabelEnd, end)
		return change
	}
	next := s.again(t, sl.key)
	used := tally{}
	if sameVersion(t.SpecVersion, next.SpecVersion) {
		used = tallyOf(t)
	}
	due := s.now
	if fault {
		at := since(t)
		if used.exhausted(p, at) {
			setLabel(old, LabelExhausted, spent(p))
			markExhausted(old)
			change.Why = whyExhausted
			return change
		}
		used = used.plus(p, at)
		due = later(at, s.dueAt(t)).Add(p.delay)
	}
	used.write(next)
	inherit(old, next, LabelRollout, LabelProven, LabelFailed)
	setLabel(next, LabelDue, formatTime(due))
	change.Create = []*api.Task{next}
	return change
}

// judge notes on a task that came to an end what that means for the rollout
// it is part of: it failed if it had not proved itself. A task that was to run
// once and did has.
func (s *situation) judge(sl *slot, t *api.Task, done bool) (failed bool) {
	if s.dirty(t) {
		return false
	}
	_, stale := s.split(sl)
	if !unproven(t) && len(stale) == 0 {
		return false
	}
	switch {
	case done:
		setLabel(t, LabelProven, formatTime(s.now))
	case s.roll.active:
		setLabel(t, LabelFailed, s.roll.id)
		delete(t.Annotations.Labels, LabelProven)
		return true
	}
	return false
}

// succeeds tells whether a task's slot may have a successor at all.
func (s *situation) succeeds(sl *slot, t *api.Task) bool {
	if isGlobal(s.Service) {
		n := s.Nodes[sl.key.node]
		if !s.eligible(n) || n.Spec.Availability == api.NodeAvailabilityPause {
			return false
		}
	}
	// What a rollback takes away anyway is not restarted: the slot goes back
	// to the old spec in its turn.
	return !(s.roll.active && s.roll.back && s.dirty(t))
}

// due tells whether a task that waits in desired state READY may start.
func (s *situation) due(sl *slot, t *api.Task) bool {
	if at := s.dueAt(t); at.After(s.now) {
		s.wake(at)
		return false
	}
	if until := s.stopsUntil(sl, t); until.After(s.now) {
		s.wake(until)
		return false
	}
	if s.roll.config.startFirst {
		return true
	}
	for _, o := range sl.live() {
		switch {
		case o.ID == t.ID:
		case o.DesiredState == api.TaskStateRunning:
			return false
		case s.dirty(o) && !s.dirty(t):
			return false // the rollout stops it first
		}
	}
	return true
}

// stopsUntil is until when a task waits for others of its slot to stop: they
// may hold its ports and files.
func (s *situation) stopsUntil(sl *slot, t *api.Task) (until time.Time) {
	for _, o := range append(others(sl, t), sl.gone...) {
		if !s.stopping(o) {
			continue
		}
		told := labelTime(o, LabelStopped)
		if told.IsZero() {
			told = createdAt(t)
		}
		until = later(until, told.Add(stopBound(o)))
	}
	return until
}

// Bounds of a start. The workload's own time comes on top: see startDeadline.
const (
	// PendingLimit is how long a task may wait for a node, or for a port of its
	// service, after somebody said why there is none.
	PendingLimit = time.Minute
	// PrepareLimit is how long it may take until a task's image is here and its
	// container made. Large images on slow lines take minutes.
	PrepareLimit = 10 * time.Minute
	// StartLimit is how long a start may take without counting its probes.
	StartLimit = time.Minute
	// WithdrawnLimit is how long a task that passed may be out of traffic for
	// its health. Most are replaced before; the label satl.health.action=unroute
	// has nothing replaced.
	WithdrawnLimit = 10 * time.Minute
)

// startDeadline is when a task of a slot counts as never going to start, and
// after how long; zero while it waits for others, or runs. Of one that is out of
// traffic on an operator's word nothing can be told.
//
// Rule: DESIGN.md section 6; cases/update.md, update-5.
func (s *situation) startDeadline(sl *slot, t *api.Task) (at time.Time, limit time.Duration) {
	if s.stopsUntil(sl, t).After(s.now) {
		return time.Time{}, 0
	}
	begin := later(createdAt(t), s.dueAt(t))
	for _, o := range append(others(sl, t), sl.gone...) {
		// One that ended by itself was stopped after that, and waited for by nobody.
		if told := labelTime(o, LabelStopped); !told.IsZero() && ended(o) && since(o).After(told) {
			begin = later(begin, since(o))
		}
	}
	switch {
	case t.Status.State < api.TaskStateAssigned && t.Status.Err != "":
		limit = PendingLimit
	case t.Status.State < api.TaskStateReady:
		limit = PrepareLimit
	case t.Status.State == api.TaskStateReady && t.DesiredState < api.TaskStateRunning:
		return time.Time{}, 0
	case t.Status.State < api.TaskStateStarting:
		begin, limit = later(begin, since(t)), PrepareLimit
	case t.Status.State == api.TaskStateStarting:
		begin, limit = since(t), startLimit(t)
	case outForHealth(t):
		begin, limit = since(t), WithdrawnLimit
	default:
		return time.Time{}, 0
	}
	return begin.Add(limit), limit
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// overdue says why a task counts as failed that has not ended.
func overdue(t *api.Task, limit time.Duration) string {
	state := strings.ToLower(t.Status.State.String())
	detail := t.Status.Err
	if detail == "" {
		detail = t.Status.Message
	}
	if detail == "" {
		return fmt.Sprintf("still %s after %s", state, shortDuration(limit))
	}
	return fmt.Sprintf("still %s after %s: %s", state, shortDuration(limit), detail)
}
