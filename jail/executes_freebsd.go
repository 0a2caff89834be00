// SPDX-License-Identifier: BSD-2-Clause

package jail

import (
	"golang.org/x/sys/unix"

	"satld/jail/shim"
)

// executes returns true when the child pid, started as a program of the name
// comm, executes another one, and false when it has ended (kqueue(2),
// EVFILT_PROC).
func executes(pid int, comm string, ended <-chan struct{}) bool {
	kq, err := unix.Kqueue()
	if err != nil {
		return pollExecutes(pid, comm, ended)
	}
	defer unix.Close(kq)
	var ev unix.Kevent_t
	unix.SetKevent(&ev, pid, unix.EVFILT_PROC, unix.EV_ADD|unix.EV_CLEAR)
	ev.Fflags = unix.NOTE_EXEC | unix.NOTE_EXIT
	if _, err := unix.Kevent(kq, []unix.Kevent_t{ev}, nil, nil); err != nil {
		return pollExecutes(pid, comm, ended) // it has ended, say
	}
	out := make([]unix.Kevent_t, 1)
	for {
		// Also when there was no event: it may have happened before.
		if now := shim.Comm(pid); now != comm && now != "" {
			return true
		}
		n, err := unix.Kevent(kq, nil, out, nil)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return pollExecutes(pid, comm, ended)
		}
		if n > 0 && out[0].Fflags&unix.NOTE_EXEC == 0 {
			return false
		}
	}
}
