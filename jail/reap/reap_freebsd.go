// SPDX-License-Identifier: BSD-2-Clause

package reap

import (
	"fmt"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// procctl(2), wait6(2): sys/procctl.h, sys/wait.h.
const (
	pPid            = 0
	procReapAcquire = 2
	procReapGetpids = 5
	procReapKill    = 6
	reapSubtree     = 2 // REAPER_KILL_SUBTREE
	pidValid        = 1 // REAPER_PIDINFO_VALID
	pidChild        = 2 // REAPER_PIDINFO_CHILD
	wExited         = 16
	wNoWait         = 8
)

func procctl(command int, data unsafe.Pointer) error {
	_, _, errno := unix.Syscall6(unix.SYS_PROCCTL, pPid, uintptr(os.Getpid()), uintptr(command), uintptr(data), 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// Become makes this process the parent of its descendants' orphans, and able
// to kill descendants by the child that they come from.
func Become() error {
	if err := procctl(procReapAcquire, nil); err != nil && err != unix.EBUSY { // EBUSY: it is one already
		return fmt.Errorf("procctl PROC_REAP_ACQUIRE: %w", err)
	}
	return nil
}

// KillTree kills the child pid and every descendant of it once.
func KillTree(pid int) {
	req := struct { // struct procctl_reaper_kill
		sig     int32
		flags   uint32
		subtree int32
		killed  uint32
		fpid    int32
		_       [15]uint32
	}{sig: int32(unix.SIGKILL), flags: reapSubtree, subtree: int32(pid)}
	procctl(procReapKill, unsafe.Pointer(&req)) // ESRCH: nothing was left
}

// pidinfo is struct procctl_reaper_pidinfo.
type pidinfo struct {
	pid     int32
	subtree int32 // the child of ours that it descends from, also when that is gone
	flags   uint32
	_       [15]uint32
}

// descendants are all processes below this one, those included that ended and
// were not waited for.
func descendants() []pidinfo {
	for size := 64; ; size *= 2 {
		found := make([]pidinfo, size)
		req := struct { // struct procctl_reaper_pids
			count uint32
			_     [15]uint32
			pids  *pidinfo
		}{count: uint32(size), pids: &found[0]}
		if err := procctl(procReapGetpids, unsafe.Pointer(&req)); err != nil {
			return nil // we are no reaper: then nothing came to us
		}
		for i, p := range found {
			if p.flags&pidValid == 0 {
				return found[:i]
			}
		}
	}
}

// collect waits for what descends from the child pid and became ours, and
// returns how many of its tree are there still, the child not counted.
func collect(pid int) (left int) {
	for _, p := range descendants() {
		if int(p.subtree) == pid && int(p.pid) != pid && !reaped(p) {
			left++
		}
	}
	return left
}

// Orphans waits for what became ours since its parent ended, and has ended
// itself. Nobody else knows of it, and it would hold its jail.
func Orphans() {
	for _, p := range descendants() {
		// A child that we started is its own subtree; whoever started it waits for it.
		if p.pid != p.subtree {
			reaped(p)
		}
	}
}

// reaped takes the status of one that has ended, if it is ours to take.
func reaped(p pidinfo) bool {
	if p.flags&pidChild == 0 {
		return false
	}
	got, err := syscall.Wait4(int(p.pid), nil, syscall.WNOHANG, nil)
	return got == int(p.pid) || err == syscall.ECHILD
}

// AwaitEnd returns when the child has ended, without waiting for it in the
// sense of wait(2): its number stays taken.
func AwaitEnd(pid int) {
	for {
		_, _, errno := unix.Syscall6(unix.SYS_WAIT6, pPid, uintptr(pid), 0, wExited|wNoWait, 0, 0)
		if errno != unix.EINTR {
			return
		}
	}
}

// The kernel keeps account of whose descendants they are.
func starting() (done func()) { return func() {} }
func started(int)             {}
func waited(int)              {}
