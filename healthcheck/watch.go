// SPDX-License-Identifier: BSD-2-Clause

package healthcheck

import (
	"context"
	"sync/atomic"
	"time"
)

// Watch is one container to probe.
type Watch struct {
	ID      string    // container ID, key of the registry
	TaskID  string    // for the log lines
	Started time.Time // when the main process started: StartPeriod and the first wait run from here
	Adopted bool      // taken over from an earlier daemon: first probes are spread over one wait from now
	// What an earlier daemon knew of an adopted container.
	Proved   bool // it has passed: the rules for a start hold no more
	Unrouted bool // it is out of traffic, and stays so until it passes
	Settings Settings
	Probe    Probe
	// Changed is called by the monitor's loop at each change of Status,
	// Unrouted or Condemned, in order, and must not block; it is never called
	// after Remove returned.
	Changed func(Transition)
}

// watched is one incarnation of a watched container: a container that is
// watched anew gets a new one, so that whatever the old one still has coming
// reaches nobody. All but shown belongs to the loop.
type watched struct {
	Watch
	health Health
	paused bool
	warned time.Time // when it was last said that it wavers
	lane   *lane
	index  int // place in the lane's queue, -1 when not in it

	shown atomic.Pointer[Health] // what readers see
}

// newWatched is a container never probed, with its first probe due at first.
func newWatched(w Watch, first time.Time) *watched {
	e := &watched{Watch: w, index: -1}
	e.health = Health{Log: []Result{}, NextProbe: first}
	e.health.Evidence.ProbeSequence, e.health.Evidence.AnsweredBy = []Run{}, Unknown
	if w.Adopted {
		e.health.proved, e.health.Unrouted = w.Proved, w.Unrouted
		if asked := w.Started.Add(NextDelay(Health{}, w.Settings)); !w.Proved && asked.Before(first) {
			e.health.FirstProbe = asked // an earlier daemon's: a limit on the start is not longer for it
		}
	}
	e.show()
	return e
}

// show publishes the health as it is now.
func (e *watched) show() {
	h := e.health
	e.shown.Store(&h)
}

// wait is the time from the end of a probe to the next.
func (e *watched) wait() time.Duration {
	if e.health.controlDue {
		return 0
	}
	return NextDelay(e.health, e.Settings)
}

// ask is what the next attempt does.
func (e *watched) ask() func(ctx context.Context, timeout time.Duration) Result {
	switch gated, ok := e.Probe.(Gated); {
	case !ok || !e.health.inGate(e.Settings):
		return e.Probe.Attempt
	case e.health.controlDue:
		return gated.AttemptControl
	default:
		return gated.AttemptGate
	}
}

// attempt is one probe in flight. It belongs to the loop; only ended is seen
// by others.
type attempt struct {
	of        *watched
	kill      context.CancelFunc
	ended     chan struct{} // closed when nothing it started still runs
	begun     time.Time
	overdue   time.Time // when it will have outlived every limit it has
	abandoned bool      // its result means nothing
	stuck     bool      // it is overdue: judged, its slot given back
}

// anchored is the start of a main process by the clock that nobody sets: what
// is measured from it is not changed by a step of the other one afterwards,
// and a start in the future, by a clock that was set back, is taken for now.
func anchored(started, now time.Time) time.Time {
	if started.IsZero() || started.After(now) {
		return now
	}
	return now.Add(-now.Sub(started))
}

// firstDue is when a container is probed first: one wait (or Settings.First)
// after its main process started. The nth adopted one is due within one wait
// from now, unless an earlier daemon would not have probed it yet either.
func firstDue(w Watch, now time.Time, nth uint64) time.Time {
	first := w.Started.Add(NextDelay(Health{}, w.Settings))
	if !w.Adopted {
		return first
	}
	spread := max(w.Settings.StartInterval, MinDuration)
	due := now.Add(time.Duration(float64(spread) * (1 - radicalInverse(nth))))
	if w.Settings.First != 0 && !w.Proved && first.After(due) {
		return first
	}
	return due
}

// radicalInverse is the n-th point of the van der Corput sequence to base 5,
// in [0, 1): any run of it is spread evenly over the whole. A hash of the ID
// in its place puts 27 of 100 first probes in the fullest fifth; this puts 20
// (cases/probe.md, probe-6: no second of the five holds more than 20 %).
func radicalInverse(n uint64) float64 {
	x, digit := 0.0, 1.0
	for ; n > 0; n /= 5 {
		digit /= 5
		x += digit * float64(n%5)
	}
	return x
}
