// SPDX-License-Identifier: BSD-2-Clause

package orchestrator

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/moby/swarmkit/v2/api"
	swarm "github.com/moby/swarmkit/v2/manager/orchestrator"
)

// DefaultDelay is the restart delay where the spec leaves it unset, as in
// SwarmKit. A delay of 0 means at once.
const DefaultDelay = 5 * time.Second

// MaxWindowed is the largest MaxAttempts that a window can be kept for: the
// times of that many failures are carried from task to task. More attempts
// within a window count as this many.
const MaxWindowed = 1024

// policy is a restart policy with its defaults filled in.
type policy struct {
	condition api.RestartPolicy_RestartCondition
	delay     time.Duration
	max       uint64        // 0: unlimited
	window    time.Duration // 0: the lifetime of the spec version
}

func policyOf(t *api.Task) policy {
	p := policy{condition: swarm.RestartCondition(t), delay: DefaultDelay}
	r := t.Spec.Restart
	if r == nil {
		return p
	}
	p.delay = duration(r.Delay, DefaultDelay)
	p.max = r.MaxAttempts
	p.window = duration(r.Window, 0)
	if p.window > 0 {
		p.max = min(p.max, MaxWindowed)
	}
	return p
}

// wants is why the policy wants no successor for a task that came to an end
// by itself, "" if it wants one. The budget is another matter.
func (p policy) wants(t *api.Task) (end string) {
	switch {
	case p.condition == api.RestartOnNone:
		return "none"
	case p.condition == api.RestartOnFailure && t.Status.State == api.TaskStateCompleted:
		return "complete"
	}
	return ""
}

// tally is what was used of a budget, carried from task to task.
type tally struct {
	count uint64      // replacements caused by failure, in all
	times []time.Time // of those failures, as far as the window needs them
}

func tallyOf(t *api.Task) tally {
	count, err := strconv.ParseUint(label(t, LabelCount), 10, 64)
	if err != nil {
		count = 0
	}
	return tally{count: count, times: labelTimes(t)}
}

// used is how many attempts count at a time: those whose failure is younger
// than the window, or all.
func (t tally) used(p policy, at time.Time) uint64 {
	if p.window == 0 {
		return t.count
	}
	used := uint64(0)
	for _, failure := range t.times {
		if failure.After(at.Add(-p.window)) {
			used++
		}
	}
	return used
}

// exhausted tells whether a failure at a time may cause no further attempt.
func (t tally) exhausted(p policy, at time.Time) bool {
	return p.max > 0 && t.used(p, at) >= p.max
}

// plus is the tally after one more attempt, caused by a failure at a time.
func (t tally) plus(p policy, at time.Time) tally {
	out := tally{count: t.count + 1}
	if p.max == 0 || p.window == 0 {
		return out
	}
	for _, failure := range t.times {
		if failure.After(at.Add(-p.window)) {
			out.times = append(out.times, failure)
		}
	}
	out.times = append(out.times, at)
	if extra := len(out.times) - MaxWindowed; extra > 0 {
		out.times = out.times[extra:]
	}
	return out
}

func (t tally) write(to *api.Task) {
	if t.count > 0 {
		setLabel(to, LabelCount, strconv.FormatUint(t.count, 10))
	}
	if len(t.times) > 0 {
		setLabel(to, LabelTimes, formatTimes(t.times))
	}
}

// spent says in words how a budget was used up: "3 attempts in 1m".
func spent(p policy) string {
	text := fmt.Sprintf("%d attempts", p.max)
	if p.max == 1 {
		text = "1 attempt"
	}
	if p.window > 0 {
		text += " in " + shortDuration(p.window)
	}
	return text
}

// shortDuration is a duration without zeros at its end: 1m, not 1m0s.
func shortDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// whyExhausted is the reason of the change that gives a slot up.
const whyExhausted = "restart budget exhausted"

// exhaustedMark begins what is added to Status.Err of the last task of a slot
// whose budget is exhausted.
const exhaustedMark = "(restart budget exhausted: "

// markedExhausted tells whether a task's error says that nothing replaces it.
func markedExhausted(t *api.Task) bool { return strings.Contains(t.Status.Err, exhaustedMark) }

// markExhausted adds that to it.
func markExhausted(t *api.Task) {
	if !markedExhausted(t) {
		t.Status.Err = strings.TrimPrefix(t.Status.Err+" "+exhaustedMark+label(t, LabelExhausted)+")", " ")
	}
}

// Exhausted tells whether a task is the last of a slot whose restart budget
// is exhausted, and how it was spent: "3 attempts in 1m". The moment is the
// update of the task that makes it true.
func Exhausted(t *api.Task) (spent string, ok bool) {
	spent, ok = t.Annotations.Labels[LabelExhausted]
	return spent, ok
}

// SlotBudget is what is left of the restart budget of one slot.
type SlotBudget struct {
	Slot      uint64 // 0 for a global service
	NodeID    string // of a global service's task
	TaskID    string // the slot's newest task
	Used      uint64 // replacements caused by failure that count now; Max if exhausted
	Total     uint64 // replacements caused by failure since the spec's change
	Max       uint64 // MaxAttempts; 0 is unlimited
	Window    time.Duration
	Exhausted bool
	Reason    string // "3 attempts in 1m" if exhausted
}

// BudgetOf gives the restart budget of each slot of a service, in the order
// of slots. tasks are the service's, in any order.
func BudgetOf(service *api.Service, tasks []*api.Task, now time.Time) []SlotBudget {
	if !ours(service) {
		return nil
	}
	s := newSituation(View{Service: service, Tasks: tasks}, now)
	var out []SlotBudget
	for _, sl := range s.slots {
		last := sl.last()
		if last == nil {
			continue
		}
		p, t := policyOf(last), tallyOf(last)
		b := SlotBudget{
			Slot: sl.key.number, NodeID: sl.key.node, TaskID: last.ID,
			Used: t.used(p, now), Total: t.count, Max: p.max, Window: p.window,
		}
		if b.Reason, b.Exhausted = Exhausted(last); b.Exhausted {
			b.Used = max(b.Used, b.Max) // none comes back when the window has passed
		}
		out = append(out, b)
	}
	return out
}
