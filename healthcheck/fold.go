// SPDX-License-Identifier: BSD-2-Clause

package healthcheck

import (
	"fmt"
	"time"
)

// Fold is what a result makes of a health. It is the only door to a verdict,
// beside Expire, which judges a limit that is reached without a result.
//
// A pass at any time is healthy at once, ends the streak, and takes back what
// failures brought about; only a gate that was not passed stays failed. A
// failure is not counted while the container was never yet healthy, not in an
// earlier daemon's time either, and the probe began inside StartPeriod, which
// runs from started, the start of the main process. Retries failures in a row
// that counted are unhealthy and out of traffic; ReplaceAfter of them condemn.
//
// A gate and a StartLimit judge a start in place of the streak: until the
// first pass failures are not counted, and the limit condemns.
//
// h is not changed, nor is what it refers to. NextProbe is the monitor's.
//
// Rules: spec/healthchecks.txt, "How a probe is judged"; spec/replica-health.txt,
// "How health checks work"; spec/deploy-check.txt.
func Fold(h Health, s Settings, started time.Time, r Result) Health {
	if r.Control {
		return h.controlled(r)
	}
	if h.FirstProbe.IsZero() {
		h.FirstProbe = r.Start
	}
	h.Log = appendLog(h.Log, r)
	h.Evidence = h.Evidence.with(r)
	h.controlDue = false
	switch {
	case h.final:
		// It is replaced, whatever its probes say now.
	case r.Passed():
		if h.EverHealthy && h.FailingStreak > 0 {
			h.Dips = dipped(h.Dips, h.FailingSince)
		}
		h.Status, h.FailingStreak, h.EverHealthy = Healthy, 0, true
		h.Unrouted, h.Condemned, h.FailingSince, h.StartBound = false, "", time.Time{}, time.Time{}
	case h.starting() && r.Start.Sub(started) < s.StartPeriod:
		// In grace: shown in the log, not counted.
	case h.bounded(s):
		h.StartBound = h.startBound(s, started)
		h.controlDue = h.inGate(s) && h.Evidence.stableRefusal(r)
		if !h.StartBound.After(r.End) {
			return Expire(h, s)
		}
	default:
		h.failed(s, r)
	}
	return h
}

// failed counts a failure.
func (h *Health) failed(s Settings, r Result) {
	if h.FailingStreak++; h.FailingStreak == 1 {
		h.FailingSince = r.Start
	}
	if h.FailingStreak >= s.Retries {
		h.Status, h.Unrouted = Unhealthy, s.Action != None
	}
	if h.FailingStreak >= s.replaceAfter() && s.Action == Replace && h.Condemned == "" {
		h.Condemned = fmt.Sprintf("%v: %d/%d probes failed, %s", Unhealthy, h.FailingStreak, s.replaceAfter(), r.words())
	}
}

// Expire is what reaching StartBound makes of a health: it is condemned for
// its start. At least one of its probes has failed.
func Expire(h Health, s Settings) Health {
	last := h.Log[len(h.Log)-1]
	if h.inGate(s) {
		return h.condemn(fmt.Sprintf("health gate not passed within %v, %s", GateBound, last.words()), true)
	}
	return h.condemn(fmt.Sprintf("no probe passed within %v of the first one, %s", s.StartLimit, last.words()), false)
}

// condemn ends a start that is not to go on. final is for good.
func (h Health) condemn(why string, final bool) Health {
	h.Status, h.Unrouted, h.Condemned = Unhealthy, true, fmt.Sprintf("%v: %s", Unhealthy, why)
	h.StartBound, h.controlDue, h.final = time.Time{}, false, final
	return h
}

// controlled takes a control probe's result: where the task itself answers, a
// run of equal client errors ends the gate early. Otherwise, and where the
// task has begun to pass, the run starts again.
//
// Rule: spec/deploy-check.txt, "When the check ends early".
func (h Health) controlled(r Result) Health {
	h.controlDue = false
	h.Evidence.AnsweredBy = answerer(r.By)
	if h.Evidence.AnsweredBy != Application || r.Passed() {
		return h
	}
	h.Evidence.EndedEarly = true
	run := h.Evidence.ProbeSequence[len(h.Evidence.ProbeSequence)-1]
	return h.condemn(fmt.Sprintf("health gate ended early: %d probes in a row were answered %s", run.Count, run.Result), true)
}

// starting tells whether the rules for a start hold: no pass yet, neither
// here nor in an earlier daemon's time.
func (h Health) starting() bool { return !h.EverHealthy && !h.proved }

// inGate tells whether the deploy check is under way.
func (h Health) inGate(s Settings) bool { return s.Profile == Gate && h.starting() }

// bounded tells whether a limit judges the start, in place of the streak.
func (h Health) bounded(s Settings) bool {
	return h.starting() && h.Condemned == "" && s.Action != None && (s.Profile == Gate || s.StartLimit > 0)
}

// startBound is when the limit of a bounded start is reached.
func (h Health) startBound(s Settings, started time.Time) time.Time {
	if s.Profile == Gate {
		return started.Add(GateBound)
	}
	return h.FirstProbe.Add(s.StartLimit)
}

// NextDelay is the wait from the end of a probe to the next, and from the
// start of the main process to the first.
func NextDelay(h Health, s Settings) time.Duration {
	wait, fixed := s.Interval, s.FixedRate
	switch {
	case h.inGate(s):
		wait, fixed = GateInterval, true
	case !h.EverHealthy:
		wait = s.StartInterval
		if len(h.Log) == 0 && s.First != 0 {
			return s.First
		}
	}
	if last := len(h.Log) - 1; fixed && last >= 0 {
		return max(wait-h.Log[last].End.Sub(h.Log[last].Start), 0)
	}
	return max(wait, MinDuration)
}

// AttemptTimeout is the timeout of a probe that begins at now.
func AttemptTimeout(h Health, s Settings, started, now time.Time) time.Duration {
	if !h.inGate(s) {
		return s.Timeout
	}
	return min(GateTimeout, max(started.Add(GateBound).Sub(now), GateMinTimeout))
}

// appendLog gives a new log, of the last MaxLog results: readers hold the old one.
func appendLog(log []Result, r Result) []Result {
	kept := log[max(0, len(log)-MaxLog+1):]
	return append(append(make([]Result, 0, len(kept)+1), kept...), r)
}
