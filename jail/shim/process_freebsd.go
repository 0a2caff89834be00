// SPDX-License-Identifier: BSD-2-Clause

package shim

import (
	"os"

	"golang.org/x/sys/unix"
)

// commandSetsid: ocijail calls setsid(2) itself and fails where it may not.
const commandSetsid = false

// becomeReaper makes this process the parent of its descendants' orphans
// (procctl(2), PROC_REAP_ACQUIRE).
func becomeReaper() error {
	const pPid, reapAcquire = 0, 2
	_, _, errno := unix.Syscall6(unix.SYS_PROCCTL, pPid, uintptr(os.Getpid()), reapAcquire, 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// StartTicks is when a process started, in microseconds since the epoch, from
// sysctl kern.proc.pid. Unverified on FreeBSD.
func StartTicks(pid int) (uint64, error) {
	k, err := unix.SysctlRaw("kern.proc.pid", pid)
	if err != nil {
		return 0, err
	}
	return startOf(k)
}

// waitStranger waits for a process that is not our child: NOTE_EXIT carries
// the status (facts of ocijail: exit status of the main process). Unverified.
func waitStranger(pid int, ticks uint64) int {
	kq, err := unix.Kqueue()
	if err != nil {
		return -1
	}
	defer unix.Close(kq)
	var ev unix.Kevent_t
	unix.SetKevent(&ev, pid, unix.EVFILT_PROC, unix.EV_ADD|unix.EV_ONESHOT)
	ev.Fflags = unix.NOTE_EXIT
	if _, err := unix.Kevent(kq, []unix.Kevent_t{ev}, nil, nil); err != nil {
		return -1
	}
	if now, err := StartTicks(pid); err != nil || now != ticks {
		return -1
	}
	out := make([]unix.Kevent_t, 1)
	for {
		n, err := unix.Kevent(kq, nil, out, nil)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n == 0 {
			return -1
		}
		return code(statusOf(out[0].Data))
	}
}

func commandLine(int) string { return "" } // only of use with an exec.fifo

func oomFile(int) string { return "" }

func oomKilled(string) bool { return false }
