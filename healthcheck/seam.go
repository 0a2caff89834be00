// SPDX-License-Identifier: BSD-2-Clause

// Package healthcheck decides health: settings and their defaults, what a
// probe's result means (Fold), when the next one is due, and the monitor that
// owns every probe of the node. It does not act on a verdict: executor does.
package healthcheck

import (
	"context"
	"io"
	"time"
)

// Status is a verdict as Docker names it: what the results so far say.
type Status int

const (
	// Starting: never yet healthy since the main process started.
	Starting Status = iota
	// Healthy: the last probe that counted passed, or fewer than Retries failed in a row since.
	Healthy
	// Unhealthy: Retries failures in a row that counted.
	Unhealthy
)

// Result is the outcome of one probe. Whatever is not exit code 0 is a failure.
type Result struct {
	Start    time.Time
	End      time.Time
	ExitCode int    // 0 passed; -1 could not run or outlived its timeout
	Output   string // valid UTF-8, at most MaxOutput bytes
}

// Probe is one kind of check of one task, ready to be attempted.
//
// Attempt makes one attempt and returns only when nothing that it started
// still runs. The timeout is counted from the moment the probe's process
// runs. When ctx ends the attempt is abandoned: everything it started is
// killed and the result means nothing.
type Probe interface {
	Attempt(ctx context.Context, timeout time.Duration) Result
}

// Runner runs a command inside a task with the task's own environment,
// working directory and user. It is the seam to the container runtime.
type Runner interface {
	// RunProbe runs argv in the container. started is called once, when the
	// command's own process runs; output goes to out (both streams, never
	// called after RunProbe returned). kill ends the attempt: everything that
	// was started gets SIGKILL. RunProbe returns only when nothing it started
	// still runs, and does not wait for a pipe that a background child holds.
	// An error means that the command could not be run at all.
	RunProbe(kill context.Context, containerID string, argv []string, out io.Writer, started func()) (exitCode int, err error)
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

// Health is what `docker inspect` shows of a watched container.
type Health struct {
	Status        Status
	FailingStreak int
	Log           []Result // the last MaxLog results, oldest first
	NextProbe     time.Time
}

// Settings is a probe's effective settings: defaults resolved, nothing zero
// that means something else.
type Settings struct {
	Argv          []string // what to run
	Interval      time.Duration
	Timeout       time.Duration
	Retries       int
	StartPeriod   time.Duration
	StartInterval time.Duration // the wait while never yet healthy
}

// Watch is one container to probe.
type Watch struct {
	ID       string    // container ID, key of the registry
	TaskID   string    // for the log lines
	Started  time.Time // when the main process started: StartPeriod and the first wait run from here
	Adopted  bool      // taken over from an earlier daemon: phase of the first probe is spread by a hash of ID
	Settings Settings
	Probe    Probe
	// Changed is called by the monitor's loop at each change of verdict, in
	// order, and must not block; it is never called after Remove returned.
	Changed func(Transition)
}
