// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/api/defaults"

	"satld/api/wire"
	"satld/orchestrator"
)

// budgetOf is what is left of a service's restarts, in figures and in words
// (cases/budget.md, budget-3: not just 0/1).
func budgetOf(v serviceView, now time.Time) wire.Budget {
	r := v.service.Spec.Task.Restart
	if r == nil {
		r = defaults.Service.Task.Restart
	}
	b := wire.Budget{
		Condition: conditions[r.Condition], MaxAttempts: r.MaxAttempts, Delay: orchestrator.DefaultDelay,
		Slots: []wire.SlotBudget{},
	}
	if r.Delay != nil {
		b.Delay = protoDuration(r.Delay)
	}
	if r.Window != nil {
		b.Window = protoDuration(r.Window)
	}
	var most uint64
	var exhausted []string
	for _, s := range orchestrator.BudgetOf(v.service, v.tasks, now) {
		b.Slots = append(b.Slots, wire.SlotBudget{Slot: s.Slot, NodeID: s.NodeID, Used: s.Used, Exhausted: s.Exhausted})
		most = max(most, s.Used)
		if s.Exhausted {
			exhausted = append(exhausted, v.place(s.Slot, s.NodeID))
		}
	}
	b.Exhausted = len(exhausted) > 0
	b.Text = budgetText(b, most, exhausted)
	return b
}

// conditions are the restart conditions by Docker's names.
var conditions = map[api.RestartPolicy_RestartCondition]string{
	api.RestartOnNone: "none", api.RestartOnFailure: "on-failure", api.RestartOnAny: "any",
}

// place names where a task has its place: "slot 1", or "node vm" of a global service.
func (v serviceView) place(slot uint64, nodeID string) string {
	if slot != 0 {
		return "slot " + strconv.FormatUint(slot, 10)
	}
	if host := v.host(nodeID); host != "" {
		return "node " + host
	}
	return "node " + nodeID
}

// budgetText is a budget in words; most is the largest number of attempts
// that a slot has used, exhausted the places where none is left.
func budgetText(b wire.Budget, most uint64, exhausted []string) string {
	within := ""
	if b.Window > 0 {
		within = fmt.Sprintf(" in %v", b.Window)
	}
	switch {
	case len(exhausted) > 0 && b.MaxAttempts > 0:
		return fmt.Sprintf("restart budget exhausted (%d/%d%s): %s", b.MaxAttempts, b.MaxAttempts, within, strings.Join(exhausted, ", "))
	case len(exhausted) > 0: // by a policy that was changed since
		return "restart budget exhausted: " + strings.Join(exhausted, ", ")
	case b.Condition == "none":
		return "tasks are never restarted"
	case b.MaxAttempts == 0:
		return fmt.Sprintf("no limit, %d used", most)
	}
	return fmt.Sprintf("%d of %d attempts used%s", most, b.MaxAttempts, within)
}
