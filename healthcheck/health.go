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
	ExitCode int    // 0 passed; -1 could not run or outlived its timeout; of HTTP, TCP and File 1 is any other failure
	Output   string // valid UTF-8, at most MaxOutput bytes

	Word    string  // what it is in Evidence.ProbeSequence: "404", "refused"; "" is "exit 1", by ExitCode
	Answer  *Answer // the HTTP response, nil where there was none
	By      Answerer
	Control bool // of a gate's control probe: it says who answers, and nothing of health
}

// Passed tells whether the probe succeeded.
func (r Result) Passed() bool { return r.ExitCode == 0 }

// Health is what `docker inspect` shows of a watched container, and what Fold
// needs to judge the next result. It is a value: what it refers to is never
// changed in place and must not be changed by readers.
type Health struct {
	Status        Status
	FailingStreak int       // failures in a row that counted
	EverHealthy   bool      // passed at least once: StartPeriod protects no more
	Log           []Result  // the last MaxLog results, oldest first; empty, never nil, in a watched container
	NextProbe     time.Time // when the next probe is due; zero while one runs and while paused

	Unrouted     bool        // to be kept out of traffic until it passes
	Condemned    string      // why it is to be replaced; "" while it is not
	FirstProbe   time.Time   // begin of the first probe, zero before
	FailingSince time.Time   // begin of the first probe of FailingStreak, zero without one
	StartBound   time.Time   // condemned then, unless it passes before; zero where nothing bounds the start
	Dips         []time.Time // begins of the last MaxDips streaks of failures that a pass ended
	Evidence     Evidence    // what the probes met, for the record of a failed deploy

	proved     bool // passed in an earlier daemon's time: the rules for a start do not hold
	final      bool // a gate was not passed: no later pass counts
	controlDue bool // the next attempt is a gate's control probe
}

// Transition is one change of a watched container's Status, Unrouted or
// Condemned. Health is all there is to know after it: who missed one
// Transition and acts on the next by its Health has missed nothing.
type Transition struct {
	ID      string // container ID
	From    Status
	To      Status // equal to From where only Unrouted or Condemned changed
	Streak  int    // failures in a row
	Retries int    // failures in a row that make it unhealthy
	Last    Result // the result that tipped it
	Health  Health
}
