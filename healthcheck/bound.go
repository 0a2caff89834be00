// SPDX-License-Identifier: BSD-2-Clause

package healthcheck

import "time"

// Sustained is how long a container that has been healthy must fail without
// a break until it is unhealthy, and so out of traffic, probes that fail at
// once given. It is the longest there is where it never is.
func Sustained(s Settings) time.Duration {
	return times(s.Retries, s.Interval)
}

// SustainedReplace is the same until it is to be replaced.
func SustainedReplace(s Settings) time.Duration {
	if s.Action != Replace {
		return forever
	}
	return times(s.replaceAfter(), s.Interval)
}

// WorstCase is the longest that a container which stops answering may keep
// its share of the traffic: retries + 1 cycles of interval + timeout (one more
// than retries, because the probe in flight may have passed a moment before),
// its stop grace, and the repair of a redirect load that failed. Waits that run
// from the begin of a probe make the cycle an interval; where it leaves traffic
// before it is to be replaced there is no grace in it; where it never leaves
// it is the longest there is.
//
// Rule: spec/healthchecks.txt, "Trading detection latency for stability".
func WorstCase(s Settings, grace time.Duration) time.Duration {
	switch {
	case s.Action == None:
		return forever
	case s.Action == Unroute || s.replaceAfter() > s.Retries:
		grace = 0
	}
	return sum(detection(s, s.Retries), grace, PoolRepair)
}

// WorstReplace is the longest from the moment a container stops answering
// until it has been stopped to be replaced.
func WorstReplace(s Settings, grace time.Duration) time.Duration {
	if s.Action != Replace {
		return forever
	}
	return sum(detection(s, s.replaceAfter()), grace)
}

// WorstStart is the longest that a task which never passes is waited for, from
// the start of its main process until it is to be replaced: the longest there
// is where it never is, 0 where nobody waits for a pass.
func WorstStart(s Settings) time.Duration {
	first := NextDelay(Health{}, s)
	switch {
	case s.Action == None:
		return 0
	case s.Profile == Gate:
		return sum(GateBound, GateMinTimeout)
	case s.StartLimit > 0: // a probe in flight at the limit has its time
		return sum(first, s.StartLimit, s.Timeout)
	case s.Action != Replace:
		return forever
	}
	// The first failure that counts may begin one cycle after StartPeriod.
	c := sum(s.StartInterval, s.Timeout)
	if s.StartPeriod > 0 {
		first = max(first, sum(s.StartPeriod, c))
	}
	return sum(first, times(s.replaceAfter()-1, c), s.Timeout)
}

// detection is the longest until so many failures in a row are counted.
func detection(s Settings, failures int) time.Duration {
	c := cycle(s)
	return sum(times(failures, c), c)
}

// cycle is the longest from the begin of a probe to that of the next.
func cycle(s Settings) time.Duration {
	if s.FixedRate {
		return max(s.Interval, s.Timeout)
	}
	return sum(s.Interval, s.Timeout)
}

// forever is the longest duration there is: never.
const forever = time.Duration(1<<63 - 1)

// sum adds durations that are not negative, up to the longest there is.
func sum(durations ...time.Duration) time.Duration {
	var total time.Duration
	for _, d := range durations {
		if total += d; total < 0 {
			return forever
		}
	}
	return total
}

// times multiplies a duration that is not negative, up to the longest there is.
func times(n int, d time.Duration) time.Duration {
	if d > 0 && time.Duration(n) > forever/d {
		return forever
	}
	return time.Duration(n) * d
}
