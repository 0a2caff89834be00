// SPDX-License-Identifier: BSD-2-Clause

package healthcheck

import (
	"context"
	"io"
	"time"
)

// Probe is one kind of check of one task, ready to be attempted.
//
// Attempt makes one attempt and returns only when nothing that it started
// still runs. The timeout is counted from the moment the probe's process
// runs. When ctx ends the attempt is abandoned: everything it started is
// killed and the result means nothing.
type Probe interface {
	Attempt(ctx context.Context, timeout time.Duration) Result
}

// Gated is a Probe that knows what a gate asks. A gate of another Probe asks
// what it asks otherwise, and never ends early.
type Gated interface {
	Probe
	// AttemptGate is an attempt that passes by the gate's rule.
	AttemptGate(ctx context.Context, timeout time.Duration) Result
	// AttemptControl is a gate's control probe: it asks who answers.
	AttemptControl(ctx context.Context, timeout time.Duration) Result
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
