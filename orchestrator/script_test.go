// SPDX-License-Identifier: BSD-2-Clause

package orchestrator

import (
	"time"

	"github.com/moby/swarmkit/v2/api"
)

// The simulated cluster: a real store behind a proposer that fails on demand,
// SwarmKit's own scheduler, reaper and enforcer, and agents that do with tasks
// what scripts say. All of it in virtual time.

// script is what becomes of a task.
type script struct {
	prepare  time.Duration // until it is READY
	reject   string        // it is REJECTED then instead, with this error
	start    time.Duration // from STARTING until RUNNING; negative: never
	lives    time.Duration // from RUNNING (or STARTING if it never runs) until it ends; 0: for ever
	complete bool          // it ends with 0
	err      string        // Status.Err of its end
	code     int32
	stop     time.Duration // from the order to stop until its end
}

// good is a task that starts in a second and runs.
func good(*api.Task) script {
	return script{prepare: 100 * time.Millisecond, start: time.Second, stop: 300 * time.Millisecond}
}

// failsAfter is a task that starts and fails.
func failsAfter(d time.Duration) func(*api.Task) script {
	return func(t *api.Task) script {
		s := good(t)
		s.lives, s.err, s.code = d, "task: non-zero exit (3)", 3
		return s
	}
}

// byImage chooses the script by the task's image.
func byImage(scripts map[string]func(*api.Task) script) func(*api.Task) script {
	return func(t *api.Task) script {
		if f := scripts[t.Spec.GetContainer().Image]; f != nil {
			return f(t)
		}
		return good(t)
	}
}
