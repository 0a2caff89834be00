// SPDX-License-Identifier: BSD-2-Clause

package shim

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"satld/jail/cgroup"
)

// commandSetsid: the runtime's commands get a session of their own, out of
// reach of what is sent to ours.
const commandSetsid = true

// becomeReaper makes this process the parent of its descendants' orphans.
func becomeReaper() error { return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// StartTicks is when a process started, in the kernel's ticks since boot
// (proc_pid_stat(5), field 22). With the pid it names one process for good.
func StartTicks(pid int) (uint64, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, err
	}
	// The name, in parentheses, may hold anything.
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(f) < 20 {
		return 0, fmt.Errorf("unexpected /proc/%d/stat", pid)
	}
	if f[0] == "Z" || f[0] == "X" {
		return 0, unix.ESRCH
	}
	return strconv.ParseUint(f[19], 10, 64)
}

// Open gives a pidfd of the process, or ESRCH when it is gone.
func Open(pid int, ticks uint64) (*os.File, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "pidfd")
	if now, err := StartTicks(pid); err != nil || now != ticks {
		f.Close()
		return nil, unix.ESRCH
	}
	return f, nil
}

// waitStranger waits for a process that is not our child and returns its exit
// code where the kernel tells it to others than the parent (6.15 and later),
// -1 otherwise.
func waitStranger(pid int, ticks uint64) int {
	f, err := Open(pid, ticks)
	if err != nil {
		return -1
	}
	defer f.Close()
	fds := []unix.PollFd{{Fd: int32(f.Fd()), Events: unix.POLLIN}}
	for {
		_, err := unix.Poll(fds, -1)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return -1
		}
		return exitCodeOf(int(f.Fd()))
	}
}

// exitCodeOf asks by ioctl PIDFD_GET_INFO (linux/pidfd.h): the status is
// there once the process was reaped by its parent.
func exitCodeOf(pidfd int) int {
	const infoExit = 1 << 3
	var info struct {
		mask                                           uint64
		cgroupid                                       uint64
		pid, tgid, ppid                                uint32
		ruid, rgid, euid, egid, suid, sgid, fsuid, fsg uint32
		exitCode                                       int32
	}
	const getInfo = 3<<30 | 64<<16 | 0xFF<<8 | 11 // _IOWR(PIDFS_IOCTL_MAGIC, 11, 64 bytes)
	for range 200 {
		info.mask = infoExit
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(pidfd), getInfo, uintptr(unsafe.Pointer(&info)))
		if errno == 0 && info.mask&infoExit != 0 {
			return code(syscall.WaitStatus(info.exitCode))
		}
		if errno != 0 && errno != unix.ESRCH {
			return -1 // an older kernel
		}
		unix.Nanosleep(&unix.Timespec{Nsec: 5e6}, nil) // not reaped yet
	}
	return -1
}

// commandLine is a process's; it changes when runc's init goes on to the
// container's command.
func commandLine(pid int) string {
	b, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	return string(b)
}

func oomFile(pid int) string {
	groups, err := cgroup.Of(pid)
	if err != nil {
		return ""
	}
	return cgroup.OOMFile(groups)
}

func oomKilled(file string) bool { return cgroup.OOMKills(file) > 0 }
