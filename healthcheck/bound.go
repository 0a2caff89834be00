// SPDX-License-Identifier: BSD-2-Clause

package healthcheck

import "time"

// Sustained is how long a container that has been healthy must fail without
// a break until it is unhealthy, probes that fail at once given.
func Sustained(s Settings) time.Duration {
	return times(s.Retries, s.Interval)
}

// WorstCase is the longest that a container which stops answering may keep
// its share of the traffic: retries + 1 cycles of interval + timeout (one more
// than retries, because the probe in flight may have passed a moment before),
// its stop grace, and the repair of a redirect load that failed.
//
// Rule: spec/healthchecks.txt, "Trading detection latency for stability".
func WorstCase(s Settings, grace time.Duration) time.Duration {
	cycle := sum(s.Interval, s.Timeout)
	return sum(times(s.Retries, cycle), cycle, grace, PoolRepair)
}

// sum adds durations that are not negative, up to the longest there is.
func sum(durations ...time.Duration) time.Duration {
	var total time.Duration
	for _, d := range durations {
		if total += d; total < 0 {
			return 1<<63 - 1
		}
	}
	return total
}

// times multiplies a duration that is not negative, up to the longest there is.
func times(n int, d time.Duration) time.Duration {
	if d > 0 && time.Duration(n) > (1<<63-1)/d {
		return 1<<63 - 1
	}
	return time.Duration(n) * d
}
