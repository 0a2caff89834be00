// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"strconv"
	"time"

	"github.com/docker/docker/api/types/events"
	"github.com/moby/swarmkit/v2/api"

	"satld/healthcheck"
	"satld/orchestrator"
)

// actionBudgetExhausted is the event of a service whose restart budget is
// exhausted in one of its slots: nothing replaces the task that failed last.
const actionBudgetExhausted events.Action = "restart_budget_exhausted"

// budgetEvent is the update of a task after which no other follows it.
func budgetEvent(now, before *api.Task) (m events.Message, ok bool) {
	spent, exhausted := orchestrator.Exhausted(now)
	if !exhausted {
		return events.Message{}, false
	}
	if before != nil {
		if _, already := orchestrator.Exhausted(before); already {
			return events.Message{}, false
		}
	}
	attributes := named(now.ServiceAnnotations)
	attributes["spent"], attributes["task"], attributes["error"] = spent, now.ID, now.Status.Err
	if now.Slot != 0 {
		attributes["slot"] = strconv.FormatUint(now.Slot, 10)
	} else {
		attributes["node"] = now.NodeID
	}
	return clusterEvent(events.ServiceEventType, actionBudgetExhausted, now.ServiceID, now.Meta.UpdatedAt, attributes), true
}

// actionBudgetLow is the event of a service whose restart budget is about to
// be used up in one of its slots, or that restarts without end.
const actionBudgetLow events.Action = "restart_budget_low"

// repeatWarning is how long nothing more is said of a slot that restarts
// without a budget: there is nothing new to it.
const repeatWarning = 10 * time.Minute

// warned is when a slot was spoken of last, by service and place.
type warned map[string]time.Time

// warnOfFlapping says that a slot's budget is about to be used up when a task
// takes the place of one that failed.
func (s *Server) warnOfFlapping(t *api.Task, said warned, now time.Time) {
	if t.Annotations.Labels[orchestrator.LabelCount] == "" {
		return
	}
	view, err := s.viewService(t.ServiceID)
	if err != nil {
		return // the service is gone
	}
	flap := flapOf(view, t.Slot, t.NodeID, nil, now)
	warning := flap.Warning(now)
	if warning == "" {
		return
	}
	key := t.ServiceID + "." + placeOf(t)
	for k, at := range said { // what may be said again is not remembered
		if now.Sub(at) >= repeatWarning {
			delete(said, k)
		}
	}
	if _, lately := said[key]; lately && flap.Max == 0 {
		return
	}
	said[key] = now
	name := view.service.Spec.Annotations.Name
	s.log.Warn("restart budget", "name", name, "slot", t.Slot, "task_id", t.ID, "warning", warning)
	m := clusterEvent(events.ServiceEventType, actionBudgetLow, t.ServiceID, t.Meta.CreatedAt,
		map[string]string{"name": name, "task": t.ID, "warning": warning})
	if t.Slot != 0 {
		m.Actor.Attributes["slot"] = strconv.FormatUint(t.Slot, 10)
	} else {
		m.Actor.Attributes["node"] = t.NodeID
	}
	s.cfg.Events.Publish(m)
}

// flapOf is what is known of one slot of a service, or of one node of a global
// one: what was used of its budget, when its tasks failed, and the dips of the
// one that runs.
func flapOf(view serviceView, slot uint64, nodeID string, dips []time.Time, now time.Time) healthcheck.Flap {
	f := healthcheck.Flap{Dips: dips}
	for _, b := range orchestrator.BudgetOf(view.service, view.tasks, now) {
		if b.Slot == slot && (slot != 0 || b.NodeID == nodeID) {
			f.Used, f.Max, f.Window = b.Used, b.Max, b.Window
		}
	}
	for _, t := range view.tasks {
		if t.Slot == slot && (slot != 0 || t.NodeID == nodeID) && t.Status.State == api.TaskStateFailed {
			f.Failures = append(f.Failures, protoTime(t.Status.Timestamp))
		}
	}
	return f
}
