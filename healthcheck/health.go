// SPDX-License-Identifier: BSD-2-Clause

package healthcheck

import (
	"fmt"
	"time"
)

// Status is a verdict as Docker names it: what the results so far say.
type Status int

const (
	// Starting: no verdict yet since the main process started (or since this
	// daemon took the container over). Neither pass nor fail.
	Starting Status = iota
	// Healthy: the last probe passed, or fewer than Retries failed in a row since.
	Healthy
	// Unhealthy: Retries failures in a row that counted.
	Unhealthy
)

// String is Docker's word for the status, as inspect and events give it.
func (s Status) String() string {
	switch s {
	case Starting:
		return "starting"
	case Healthy:
		return "healthy"
	case Unhealthy:
		return "unhealthy"
	}
	return fmt.Sprintf("status(%d)", int(s))
}

// Result is the outcome of one probe. Whatever is not exit code 0 is a failure.
type Result struct {
	Start    time.Time // when the attempt began: StartPeriod is judged by it
	End      time.Time
	ExitCode int    // 0 passed; -1 could not run or outlived its timeout
	Output   string // valid UTF-8, at most MaxOutput bytes
}

// Passed tells whether the probe succeeded.
func (r Result) Passed() bool { return r.ExitCode == 0 }

// Health is what `docker inspect` shows of a watched container, and what Fold
// needs to judge the next result. It is a value: Log is never changed in
// place and must not be changed by readers.
type Health struct {
	Status        Status
	FailingStreak int       // failures in a row that counted
	EverHealthy   bool      // passed at least once: StartPeriod protects no more
	Log           []Result  // the last MaxLog results, oldest first; empty, never nil, in a watched container
	NextProbe     time.Time // when the next probe is due; zero while one runs and while paused
}

// Transition is one change of verdict of one watched container.
type Transition struct {
	ID      string // container ID
	From    Status
	To      Status
	Streak  int    // failures in a row
	Retries int    // failures in a row that make it unhealthy
	Last    Result // the result that tipped it
}
