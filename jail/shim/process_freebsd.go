// SPDX-License-Identifier: BSD-2-Clause

package shim

import (
	"time"

	"golang.org/x/sys/unix"

	"satld/jail/reap"
)

// commandSetsid: ocijail calls setsid(2) itself, in the processes it forks and
// in those it becomes, and fails where it may not.
const commandSetsid = false

// becomeReaper makes this process the parent of its descendants' orphans, also
// of those in jails.
func becomeReaper() error { return reap.Become() }

// StartTicks is when a process started, in microseconds since the epoch. With
// the pid it names one process for good. One that has ended is ESRCH.
func StartTicks(pid int) (uint64, error) {
	k, err := procOf(pid)
	if err != nil {
		return 0, err
	}
	if k.zombie() {
		return 0, unix.ESRCH
	}
	return k.start(), nil
}

// StartTime is StartTicks as a time of day.
func StartTime(pid int) (time.Time, error) {
	us, err := StartTicks(pid)
	return time.UnixMicro(int64(us)), err
}

// Comm is the base name of what the process executed last, at most 19 bytes of
// it; also of one that has ended and was not reaped. "" when it is gone.
func Comm(pid int) string {
	k, err := procOf(pid)
	if err != nil {
		return ""
	}
	return k.comm()
}

// CommMax is how many bytes of a name Comm tells.
const CommMax = 19

// waitStranger waits for a process that is not our child: NOTE_EXIT carries
// the status for others than the parent too. It is lost, and -1, when the
// process has ended already.
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

// commandLine tells a first process that waits for start (it is still the
// runtime's) from one that goes on to the container's command.
func commandLine(pid int) string { return Comm(pid) }

func oomFile(int) string { return "" }

func oomKilled(string) bool { return false }

// killCommand ends a command of the runtime and all that it started: one that
// hangs may have forked the container's first process, which then waits for
// it for ever.
func killCommand(pid int) { reap.KillTree(pid) }
