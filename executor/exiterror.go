// SPDX-License-Identifier: BSD-2-Clause

package executor

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/moby/swarmkit/v2/api"
)

// exitError is a task's failure: its text becomes Status.Err, its code and
// container the rest of the status.
type exitError struct {
	code   int
	cause  error
	status *api.ContainerStatus
}

// Error says the cause, and the exit code in Docker's words. An unhealthy
// task's exit code says nothing: it was told to stop.
func (e *exitError) Error() string {
	if errors.Is(e.cause, errUnhealthy) {
		return e.cause.Error()
	}
	if e.cause != nil {
		return fmt.Sprintf("task: non-zero exit (%d): %v", e.code, e.cause)
	}
	return fmt.Sprintf("task: non-zero exit (%d)", e.code)
}

func (e *exitError) Unwrap() error { return e.cause }

// ExitCode implements SwarmKit's exec.ExitCoder.
func (e *exitError) ExitCode() int { return e.code }

// ContainerStatus implements SwarmKit's exec.ContainerStatuser.
func (e *exitError) ContainerStatus(context.Context) (*api.ContainerStatus, error) {
	return e.status, nil
}

// trimPrefix takes the leading word off a reason that errUnhealthy says already.
func trimPrefix(reason string) string { return strings.TrimPrefix(reason, errUnhealthy.Error()) }
