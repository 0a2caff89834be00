// SPDX-License-Identifier: BSD-2-Clause

package orchestrator

import (
	"slices"
	"time"

	"github.com/moby/swarmkit/v2/api"
)

// planClock takes what the store says of the future for now. Such a stamp was
// made before the clock was set back, or by a leader whose clock was ahead, and
// how long ago nobody can tell: what is counted from it is counted from now, as
// waiting until the clock is there again could take hours, and a task that is
// newer by its stamp than those that follow it would be mistaken for the last of
// its slot. The tasks of a slot keep their order.
func (s *situation) planClock() (out []Change) {
	for _, sl := range s.slots {
		var back []*api.Task
		for i, t := range slices.Concat(sl.tasks, sl.gone) {
			if s.ahead(t) { // copied only then: this is asked of every task in every pass
				back = append(back, s.atMostNow(t, i))
			}
		}
		if len(back) > 0 {
			out = append(out, Change{Why: "clock was set back", Update: back})
		}
	}
	return out
}

// ahead tells whether any stamp of a task that is counted from is of the future.
func (s *situation) ahead(t *api.Task) bool {
	stamps := append(labelTimes(t), createdAt(t), since(t), labelTime(t, LabelStopped), labelTime(t, LabelGranted))
	return slices.ContainsFunc(stamps, s.now.Before)
}

// atMostNow is a task without stamps of the future, the nth newest of its slot.
func (s *situation) atMostNow(t *api.Task, nth int) *api.Task {
	out := t.Copy()
	if createdAt(t).After(s.now) {
		out.Meta.CreatedAt = timestamp(s.now.Add(-time.Duration(nth)))
	}
	if since(t).After(s.now) {
		out.Status.AppliedAt = timestamp(s.now) // believed, unless the node's own is older
	}
	for _, key := range []string{LabelStopped, LabelGranted} {
		if labelTime(t, key).After(s.now) {
			setLabel(out, key, formatTime(s.now))
		}
	}
	times := labelTimes(t)
	if slices.ContainsFunc(times, s.now.Before) {
		for i, at := range times {
			if at.After(s.now) {
				times[i] = s.now
			}
		}
		setLabel(out, LabelTimes, formatTimes(times))
	}
	return out
}

// dueAt is when a task that waits is to start at the earliest. One that is due
// later than its delay explains was promised by a clock that has been set back
// since, or by another leader's: it has waited for long enough.
func (s *situation) dueAt(t *api.Task) time.Time {
	at := labelTime(t, LabelDue)
	if at.Add(-clockSkew).After(s.now.Add(policyOf(t).delay)) {
		return time.Time{}
	}
	return at
}
