// SPDX-License-Identifier: BSD-2-Clause

// Package reap ends all that a child process has started, also what left its
// process group and session and what runs in a jail. It decides nothing: it
// is the system calls behind "a probe returns only when nothing it started
// still runs".
//
// FreeBSD has a facility for this (procctl(2), PROC_REAP_KILL). Linux has
// not: there the daemon's probes have a helper of their own (satl-init), and
// what is here serves the stand-ins for FreeBSD's tools.
package reap

import (
	"context"
	"errors"
	"syscall"
	"time"
)

// Start starts a child that is ended with End and waited for with Wait.
// Become must have been called.
func Start(argv []string, attr *syscall.ProcAttr) (pid int, err error) {
	defer starting()()
	if pid, err = syscall.ForkExec(argv[0], argv, attr); err != nil {
		return 0, err
	}
	started(pid)
	return pid, nil
}

// Wait is wait(2) for a child that has ended.
func Wait(pid int) (ws syscall.WaitStatus) {
	for {
		if _, err := syscall.Wait4(pid, &ws, 0, nil); !errors.Is(err, syscall.EINTR) {
			waited(pid)
			return ws
		}
	}
}

// pause between two looks at processes that were killed and are not gone.
const (
	pauseFirst = time.Millisecond
	pauseMost  = 50 * time.Millisecond
)

// End kills the child pid and every descendant of it and returns how many are
// left: none, or, when ctx is done, those that the kernel does not let go of.
// The child is not waited for here, so that its number stays taken.
func End(ctx context.Context, pid int) (left int) {
	for wait := pauseFirst; ; wait = min(2*wait, pauseMost) {
		KillTree(pid)
		if left = collect(pid); left == 0 {
			return 0
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return left
		}
	}
}
