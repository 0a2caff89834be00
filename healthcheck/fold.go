// SPDX-License-Identifier: BSD-2-Clause

package healthcheck

import "time"

// Fold is what a result makes of a health. It is the only door to a verdict.
//
// A pass at any time is healthy at once and ends the streak. A failure is not
// counted while the container was never yet healthy and the probe began inside
// StartPeriod, which runs from started, the start of the main process. Retries
// failures in a row that counted are unhealthy; a pass heals that too.
//
// h is not changed, nor is what its Log refers to. NextProbe is the monitor's.
//
// Rules: spec/healthchecks.txt, "How a probe is judged".
func Fold(h Health, s Settings, started time.Time, r Result) Health {
	h.Log = appendLog(h.Log, r)
	switch {
	case r.Passed():
		h.Status, h.FailingStreak, h.EverHealthy = Healthy, 0, true
	case h.Status == Starting && r.Start.Sub(started) < s.StartPeriod:
		// In grace: shown in the log, not counted.
	default:
		if h.FailingStreak++; h.FailingStreak >= s.Retries {
			h.Status = Unhealthy
		}
	}
	return h
}

// NextDelay is the wait from the end of a probe to the next, and from the
// start of the main process to the first.
func NextDelay(h Health, s Settings) time.Duration {
	if h.EverHealthy {
		return max(s.Interval, MinDuration)
	}
	return max(s.StartInterval, MinDuration)
}

// appendLog gives a new log, of the last MaxLog results: readers hold the old one.
func appendLog(log []Result, r Result) []Result {
	kept := log[max(0, len(log)-MaxLog+1):]
	return append(append(make([]Result, 0, len(kept)+1), kept...), r)
}
