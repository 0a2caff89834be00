// SPDX-License-Identifier: BSD-2-Clause

package orchestrator

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/moby/swarmkit/v2/api"
)

// progress is what a rollout has to do with one slot.
type progress struct {
	*slot
	clean     *api.Task // the best live task of the service's spec
	surplus   []*api.Task
	stale     []*api.Task // live tasks of older specs
	attempted bool
	failure   *api.Task
}

// waits tells whether the slot is to be rolled and was not begun with.
func (p *progress) waits(s *situation) bool {
	if p.clean != nil || p.attempted {
		return false
	}
	return len(p.stale) > 0 || s.dirty(p.last())
}

// inFlight tells whether the slot was begun with and is neither proved nor
// failed.
func (p *progress) inFlight() bool {
	return p.clean != nil && p.failure == nil && (len(p.stale) > 0 || unproven(p.clean))
}

// disrupted tells whether a rollout, this one or one that it replaced, took the
// slot down, and nothing has proved itself there since. A failure of this
// rollout is past that.
func (p *progress) disrupted(s *situation) bool {
	if p.failure != nil || best(p.stale) >= fitRunning {
		return false
	}
	if p.clean != nil {
		return unproven(p.clean)
	}
	return p.waits(s) && (slices.ContainsFunc(p.stale, unproven) || len(p.stale) == 0 && unproven(p.last()))
}

func (s *situation) progress() (out []*progress) {
	for _, sl := range s.slots {
		if !s.scope(sl) {
			continue
		}
		p := &progress{slot: sl, attempted: s.roll.id != "" && attempted(sl, s.roll.id)}
		clean, stale := s.split(sl)
		if len(clean) > 0 {
			p.clean, p.surplus = clean[0], clean[1:]
		}
		p.stale = stale
		if s.roll.id != "" {
			p.failure = failure(sl, s.roll.id)
		}
		out = append(out, p)
	}
	return out
}

// planRollout moves slots to the service's spec, some at a time and each on
// proof, and pauses or rolls back when too many fail.
func (s *situation) planRollout() []Change {
	if s.roll.paused {
		return nil
	}
	slots := s.progress()
	if !s.roll.active {
		// A new update, or one whose last slots prove themselves after its end.
		if s.toBegin(slots) {
			return []Change{s.begin()}
		}
		return s.advance(slots)
	}
	if marks := s.overdue(slots); len(marks) > 0 {
		return marks
	}
	if change, tooMany := s.tooManyFailures(slots); tooMany {
		return []Change{change}
	}
	changes := append(s.advance(slots), s.take(slots)...)
	if len(changes) > 0 {
		return changes
	}
	for _, p := range slots {
		if p.inFlight() || p.waits(s) {
			return nil
		}
	}
	return []Change{s.complete(slots)}
}

// toBegin tells whether there is anything to roll. A service's tasks that
// were left unproven when an update replaced another are watched by the new one.
func (s *situation) toBegin(slots []*progress) bool {
	fresh := s.Service.UpdateStatus == nil
	for _, p := range slots {
		if p.waits(s) || fresh && p.clean != nil && (len(p.stale) > 0 || unproven(p.clean)) {
			return true
		}
	}
	return false
}

// begin says that a rollout is under way.
func (s *situation) begin() Change {
	state, message := api.UpdateStatus_UPDATING, "update in progress"
	if s.roll.back {
		state, message = api.UpdateStatus_ROLLBACK_STARTED, "rollback in progress"
	}
	service := s.Service.Copy()
	service.UpdateStatus = &api.UpdateStatus{State: state, Message: message, StartedAt: timestamp(s.now)}
	return Change{Why: message, Service: service}
}

// overdue marks tasks as failed that should have started by now.
func (s *situation) overdue(slots []*progress) (out []Change) {
	for _, p := range slots {
		if !p.inFlight() || label(p.clean, LabelFailed) == s.roll.id && label(p.clean, LabelReason) != "" {
			continue
		}
		at, limit := s.startDeadline(p.slot, p.clean)
		if at.IsZero() {
			continue
		}
		if at.After(s.now) {
			s.wake(at)
			continue
		}
		t := p.clean.Copy()
		setLabel(t, LabelFailed, s.roll.id)
		delete(t.Annotations.Labels, LabelProven) // what a predecessor proved
		setLabel(t, LabelReason, overdue(t, limit))
		out = append(out, Change{Why: "task does not start", Update: []*api.Task{t}})
	}
	return out
}

// tally counts the slots that failed and those that the rollout is about, and
// finds the task that failed last.
func (s *situation) tally(slots []*progress) (failures, total int, worst *api.Task) {
	for _, p := range slots {
		if p.attempted || p.inFlight() || p.waits(s) || p.failure != nil {
			total++
		}
		if p.failure == nil {
			continue
		}
		failures++
		if worst == nil || since(p.failure).After(since(worst)) {
			worst = p.failure
		}
	}
	return failures, total, worst
}

// exceeds tells whether so many failures are too many.
func (c rolloutConfig) exceeds(failures, total int) bool {
	return failures > 0 && c.action != api.UpdateConfig_CONTINUE && float32(failures)/float32(total) > c.ratio
}

// rollsBack tells whether the failure of one more slot rolls the update back.
func (s *situation) rollsBack(key slotKey) bool {
	r := s.roll
	if !r.active || r.back || r.config.action != api.UpdateConfig_ROLLBACK || s.Service.PreviousSpec == nil {
		return false
	}
	slots := s.progress()
	failures, total, _ := s.tally(slots)
	for _, p := range slots {
		if p.key == key && p.failure == nil {
			failures++
		}
	}
	return r.config.exceeds(failures, total)
}

// tooManyFailures pauses or rolls back when more slots failed than may.
func (s *situation) tooManyFailures(slots []*progress) (Change, bool) {
	c := s.roll.config
	failures, total, worst := s.tally(slots)
	if !c.exceeds(failures, total) {
		return Change{}, false
	}
	service := s.Service.Copy()
	because := fmt.Sprintf("due to failure or early termination of task %s: %s", worst.ID, describe(worst))
	switch {
	case s.roll.back: // a rollback is never rolled back
		service.UpdateStatus.State = api.UpdateStatus_ROLLBACK_PAUSED
		service.UpdateStatus.Message = "rollback paused " + because
	case c.action == api.UpdateConfig_ROLLBACK && s.Service.PreviousSpec != nil:
		service.Spec = *service.PreviousSpec
		service.SpecVersion = service.PreviousSpecVersion
		service.PreviousSpec, service.PreviousSpecVersion = nil, nil
		service.UpdateStatus = &api.UpdateStatus{
			State:     api.UpdateStatus_ROLLBACK_STARTED,
			Message:   rolledBack + because,
			StartedAt: timestamp(s.now),
		}
	default:
		service.UpdateStatus.State = api.UpdateStatus_PAUSED
		service.UpdateStatus.Message = "update paused " + because
		if c.action == api.UpdateConfig_ROLLBACK {
			service.UpdateStatus.Message += "; there is no previous spec to roll back to"
		}
	}
	return Change{Why: service.UpdateStatus.Message, Service: service, Unchanged: []*api.Task{worst}}, true
}

// rolledBack begins the message of a rollback that nobody asked for, until its
// end.
const rolledBack = "update rolled back "

// describe says why a task failed: its error, which holds the last probe's
// output if a probe condemned it, and its exit code.
func describe(t *api.Task) string {
	text := strings.TrimSpace(t.Status.Err)
	if reason := label(t, LabelReason); reason != "" {
		text = reason
	}
	if text == "" {
		text = t.Status.Message
	}
	if c := t.Status.GetContainer(); c != nil && ended(t) && !strings.Contains(text, fmt.Sprintf("exit (%d)", c.ExitCode)) {
		text += fmt.Sprintf(" (exit code %d)", c.ExitCode)
	}
	if t.Slot != 0 {
		return fmt.Sprintf("slot %d: %s", t.Slot, text)
	}
	return text
}

// advance notes who has proved itself, and stops the old tasks of slots where
// that is due. Tasks that serve are stopped without proof in no more slots at a
// time than the parallelism allows, whichever rollout took the others down.
func (s *situation) advance(slots []*progress) (out []Change) {
	room := len(slots)
	if limit := s.roll.config.parallelism; limit > 0 {
		room = limit
		for _, p := range slots {
			if p.disrupted(s) {
				room--
			}
		}
	}
	for _, p := range slots {
		for _, t := range p.surplus { // never made by us: two of one spec in a slot
			out = append(out, Change{Why: "slot has two tasks", Update: []*api.Task{stop(t, s.now)}, Unchanged: []*api.Task{p.clean}})
		}
		if p.clean == nil {
			continue
		}
		change := Change{}
		proved := s.proved(p.clean)
		if proved && unproven(p.clean) {
			t := p.clean.Copy()
			setLabel(t, LabelProven, formatTime(s.now))
			change = Change{Why: "task has proved itself", Update: []*api.Task{t}}
		}
		costs := unproven(p.clean) && best(p.stale) >= fitRunning
		for _, t := range p.stale {
			if proved || s.yields(p.clean, t) && (!costs || room > 0) {
				change.Why = "old task makes way"
				change.Update = append(change.Update, stop(t, s.now))
				change.Unchanged = []*api.Task{p.clean}
			}
		}
		if len(change.Update) == 0 {
			continue
		}
		if costs && !proved {
			room--
		}
		out = append(out, change)
	}
	return out
}

// proved tells whether a task ran for the window without a break.
func (s *situation) proved(t *api.Task) bool {
	if !running(t) || t.DesiredState != api.TaskStateRunning {
		return false
	}
	at := since(t).Add(s.roll.config.window)
	if at.After(s.now) {
		s.wake(at)
		return false
	}
	return true
}

// yields tells whether an old task is to stop before the new one has proved
// itself. With stop-first that is so as soon as the new one is prepared: its
// image is here and its container made, so that what can fail without harm
// has not failed. In either order it is so when the new one waits for what the
// old one holds; with start-first that is a host-mode port alone
// (cases/update.md, update-7).
func (s *situation) yields(next, old *api.Task) bool {
	blocked := func(by string) bool {
		return next.Status.State == api.TaskStatePending && strings.Contains(next.Status.Err, by)
	}
	if blocked("host-mode port already in use") {
		return true
	}
	if s.roll.config.startFirst {
		return false
	}
	if next.Status.State >= api.TaskStateReady {
		return !ended(next) && !s.dueAt(next).After(s.now)
	}
	return blocked("max replicas per node") || blocked("insufficient resources") && couldHold(s.Nodes[old.NodeID], next)
}

// couldHold tells whether a node is large enough for what a task reserves.
func couldHold(n *api.Node, t *api.Task) bool {
	if n == nil || n.Description == nil || n.Description.Resources == nil {
		return false
	}
	r := t.Spec.Resources
	if r == nil || r.Reservations == nil {
		return true
	}
	has := n.Description.Resources
	return has.MemoryBytes >= r.Reservations.MemoryBytes && has.NanoCPUs >= r.Reservations.NanoCPUs
}

// take begins with more slots, those that serve least first, as far as the
// parallelism allows. Slots that a rollout took down already, one that this one
// replaced or that it rolls back, are not kept waiting.
func (s *situation) take(slots []*progress) (out []Change) {
	var now, waiting []*progress
	inFlight := 0
	for _, p := range slots {
		switch {
		case p.inFlight():
			inFlight++
		case p.waits(s) && p.disrupted(s):
			now = append(now, p)
		case p.waits(s):
			waiting = append(waiting, p)
		}
	}
	slices.SortStableFunc(waiting, func(a, b *progress) int { return cmp.Compare(best(a.stale), best(b.stale)) })
	if limit := s.roll.config.parallelism; limit > 0 {
		waiting = waiting[:min(len(waiting), max(limit-inFlight-len(now), 0))]
	}
	for _, p := range append(now, waiting...) {
		t := s.newTask(p.key, !s.roll.config.startFirst || len(p.stale) == 0)
		setLabel(t, LabelRollout, s.roll.id)
		out = append(out, Change{Why: "slot is rolled", Create: []*api.Task{t}, Unchanged: p.tasks})
	}
	return out
}

// best is the fitness of the best task, -1 of none.
func best(tasks []*api.Task) int {
	f := -1
	for _, t := range tasks {
		f = max(f, fitness(t))
	}
	return f
}

// complete says that a rollout has come to its end.
func (s *situation) complete(slots []*progress) Change {
	service := s.Service.Copy()
	u := service.UpdateStatus
	u.CompletedAt = timestamp(s.now)
	switch {
	case !s.roll.back:
		u.State, u.Message = api.UpdateStatus_COMPLETED, "update completed"
	case strings.HasPrefix(u.Message, rolledBack):
		u.State = api.UpdateStatus_ROLLBACK_COMPLETED // why stays to be read
	default:
		u.State, u.Message = api.UpdateStatus_ROLLBACK_COMPLETED, "rollback completed"
	}
	failures := 0
	for _, p := range slots {
		if p.failure != nil {
			failures++
		}
	}
	if failures > 0 {
		u.Message += fmt.Sprintf("; %d of %d slots failed", failures, len(slots))
	}
	return Change{Why: u.Message, Service: service}
}
