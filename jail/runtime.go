// SPDX-License-Identifier: BSD-2-Clause

// Package jail runs containers: the OCI bundle, the runtime driver (runc on
// Linux, ocijail on FreeBSD, behind one type), what a system needs besides
// (control groups, or jails that die slowly), the shim that holds output and
// exit status, logs, exec, probes. It knows nothing of tasks, health or traffic.
//
// What is FreeBSD's and only runs tools is built everywhere and chosen by
// package platform, so that a played FreeBSD drives it; what is a system call
// is in files named for its system.
package jail

import (
	"context"
	"io"
	"time"
)

// Exit is how a container's main process ended.
type Exit struct {
	Code      int // 0-255; 128+signal when killed by one; -1 when it was lost
	At        time.Time
	OOMKilled bool
}

// Runtime is what the rest of the program uses of this package. *Manager
// implements it; executor and its tests consume it.
//
// Every method is safe for concurrent use and bounded in time by its context;
// no lock is held across a runtime call, so that one stuck container never
// delays another one's.
type Runtime interface {
	// Create writes the bundle and makes the container: its first process
	// exists, has not run yet, and its output is held by the shim. A
	// leftover of the same ID from a crash is removed first. ErrUnmade: it
	// failed for no fault of the container's, and nothing of it is left.
	Create(ctx context.Context, spec Spec) (pid int, err error)
	// Start lets the first process run and returns when that was. Starting a
	// container that was started already returns that earlier time.
	Start(ctx context.Context, id string) (time.Time, error)
	// Wait blocks until the main process has ended, also for one that was
	// started under an earlier daemon. It may be called any number of times.
	Wait(ctx context.Context, id string) (Exit, error)
	// AwaitGone returns nil when the main process is gone. Wait, which tells
	// how it ended, may come much later: that is on the disk by then.
	AwaitGone(ctx context.Context, id string) error
	// Running tells whether the main process lives, and its host pid.
	Running(ctx context.Context, id string) (pid int, running bool, err error)
	// Kill signals the main process; a container that has ended is no error.
	Kill(ctx context.Context, id string, sig int) error
	// Delete kills every process left, unmounts, and removes the runtime's
	// state of the container; logs and exit status stay until Forget. It is
	// idempotent and can be resumed after a crash at any step.
	Delete(ctx context.Context, id string) error
	// Forget removes what Delete left: logs, exit status, the bundle.
	Forget(ctx context.Context, id string) error
	// List names the containers the runtime knows.
	List(ctx context.Context) ([]string, error)
	Pause(ctx context.Context, id string) error
	Resume(ctx context.Context, id string) error
	Exec(ctx context.Context, id string, spec ExecSpec) (Process, error)
	// Attach copies the container's live output to stdout and stderr (one
	// stream with TTY) and stdin, if not nil, to it, until the container
	// ends or ctx is done.
	Attach(ctx context.Context, id string, stdin io.Reader, stdout, stderr io.Writer) error
	// AttachFromStart is Attach with all that this run has put out first.
	AttachFromStart(ctx context.Context, id string, stdin io.Reader, stdout, stderr io.Writer) error
	Resize(ctx context.Context, id string, width, height uint16) error
	// Logs calls each for every selected line, in order.
	Logs(ctx context.Context, id string, q LogQuery, each func(LogLine) error) error
	// Pids lists the host pids of the container's processes.
	Pids(ctx context.Context, id string) ([]int, error)
	// RunProbe: see healthcheck.Runner.
	RunProbe(kill context.Context, id string, argv []string, out io.Writer, started func()) (exitCode int, err error)
}
