// SPDX-License-Identifier: BSD-2-Clause

// Package slowday tells tests how long to wait for what must come. A deadline
// there tells a hang from an answer and measures nothing; on a machine that is
// busy with other things an answer takes longer.
package slowday

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// most is how much longer at most, so that a test that hangs still ends well
// before the bound of its package.
const most = 8

// Of is d on a machine with a processor for each task that wants one, and as
// many times longer as tasks now share a processor (of the last minute's mean
// and of this moment, the greater).
func Of(d time.Duration) time.Duration {
	data, err := os.ReadFile("/proc/loadavg")
	if err != nil { // not Linux
		return d
	}
	return time.Duration(float64(d) * factor(string(data), runtime.NumCPU()))
}

// Over tells whether a wait of d that began then has been long enough by now.
func Over(begun time.Time, d time.Duration) bool {
	waited := time.Since(begun)
	return waited > d && waited > Of(d)
}

// factor reads the five fields of /proc/loadavg: three means, tasks that can
// run of all there are, and a process ID (proc_loadavg(5)).
func factor(loadavg string, processors int) float64 {
	f := strings.Fields(loadavg)
	if len(f) < 4 {
		return 1
	}
	mean, _ := strconv.ParseFloat(f[0], 64)
	now, _, _ := strings.Cut(f[3], "/")
	runnable, _ := strconv.ParseFloat(now, 64)
	return min(max(1, max(mean, runnable)/float64(processors)), most)
}
