// SPDX-License-Identifier: BSD-2-Clause

package healthcheck

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// When flapping is worth a word.
const (
	// MaxDips is how many dips of a container are kept.
	MaxDips = 8
	// flapDips dips within flapWindow are flapping: failures that a pass ended
	// each time, any of which would have had it replaced had it gone on.
	flapDips   = 3
	flapWindow = 10 * time.Minute
	// flapFailures within flapWindow are a restart loop, where no budget ends it.
	flapFailures = 3
)

// Flap is what is known of one slot of a service: what was used of its restart
// budget, and how its running container has done of late.
type Flap struct {
	Used     uint64        // replacements that count against the budget now
	Max      uint64        // MaxAttempts; 0 is no limit
	Window   time.Duration // of the budget; 0 counts for the spec's whole life
	Failures []time.Time   // when tasks of the slot failed by themselves, as far as known, in any order
	Dips     []time.Time   // Health.Dips
}

// Warning says in words that a slot is about to use its restart budget up, or
// that its container wavers in a way that leads there; "" where there is
// nothing to warn of, also once the budget is exhausted, which is no warning
// any more. It is ASCII, on one line.
func (f Flap) Warning(now time.Time) string {
	var parts []string
	if budget := f.budget(now); budget != "" {
		parts = append(parts, budget)
	}
	if n := recent(f.Dips, now, flapWindow); n >= flapDips {
		parts = append(parts, fmt.Sprintf("its probe failed and passed again %d times in %v: a longer failure takes it out of traffic", n, flapWindow))
	}
	return strings.Join(parts, "; ")
}

// budget warns from half of the attempts on.
func (f Flap) budget(now time.Time) string {
	if f.Max == 0 {
		if n := recent(f.Failures, now, flapWindow); n >= flapFailures {
			return fmt.Sprintf("failed %d times in %v, and no MaxAttempts ends its replacement", n, flapWindow)
		}
		return ""
	}
	if f.Used > f.Max || f.Max-f.Used > f.Max/2 {
		return ""
	}
	left := f.Max - f.Used
	text := fmt.Sprintf("%d of %d restart attempts used", f.Used, f.Max)
	if f.Window > 0 {
		text += fmt.Sprintf(" in %v", f.Window)
	}
	if left == 0 {
		return text + ": it is not replaced when it fails again"
	}
	text += fmt.Sprintf(", %d left", left)
	if in := f.pace() * time.Duration(left); in > 0 {
		text += fmt.Sprintf(": at this pace used up in %v", in.Round(time.Second))
	}
	return text
}

// pace is the time from one failure to the next, the last few given, 0 where
// there is none to tell.
func (f Flap) pace() time.Duration {
	at := slices.SortedFunc(slices.Values(f.Failures), time.Time.Compare)
	at = at[max(0, len(at)-4):]
	if len(at) < 2 {
		return 0
	}
	return at[len(at)-1].Sub(at[0]) / time.Duration(len(at)-1)
}

// recent counts what is no older than a window.
func recent(at []time.Time, now time.Time, window time.Duration) (n int) {
	for _, t := range at {
		if now.Sub(t) <= window {
			n++
		}
	}
	return n
}

// dipped adds the begin of a streak of failures that a pass has ended; readers
// hold the old ones.
func dipped(dips []time.Time, since time.Time) []time.Time {
	return append(slices.Clone(dips[max(0, len(dips)-MaxDips+1):]), since)
}
