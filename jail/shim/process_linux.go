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
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"satld/jail/cgroup"
	"satld/platform"
)

// commandSetsid: the runtime's commands get a session of their own, out of
// reach of what is sent to ours.
const commandSetsid = true

// becomeReaper makes this process the parent of its descendants' orphans.
func becomeReaper() error { return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// stat reads fields of /proc/PID/stat (proc_pid_stat(5)) by their numbers
// there, from 3.
func stat(pid int) (fields []string, err error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return nil, err
	}
	// The name, in parentheses, may hold anything.
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(f) < 50 {
		return nil, fmt.Errorf("unexpected /proc/%d/stat", pid)
	}
	return append([]string{"", "", ""}, f...), nil
}

const (
	statState = 3
	statStart = 22
	statExit  = 52
)

// StartTicks is when a process started, in the kernel's ticks since boot. With
// the pid it names one process for good. One that has ended is ESRCH.
func StartTicks(pid int) (uint64, error) {
	f, err := stat(pid)
	if err != nil {
		return 0, err
	}
	if f[statState] == "Z" || f[statState] == "X" {
		return 0, unix.ESRCH
	}
	return strconv.ParseUint(f[statStart], 10, 64)
}

// StartTime is StartTicks as a time of day, to about a second.
func StartTime(pid int) (time.Time, error) {
	ticks, err := StartTicks(pid)
	if err != nil {
		return time.Time{}, err
	}
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return time.Time{}, err
	}
	_, rest, _ := strings.Cut(string(b), "\nbtime ")
	boot, err := strconv.ParseInt(strings.SplitN(rest, "\n", 2)[0], 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("read the time of boot: %w", err)
	}
	const ticksPerSecond = 100 // USER_HZ
	return time.Unix(boot, 0).Add(time.Duration(ticks) * time.Second / ticksPerSecond), nil
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
// code where the kernel tells it to others than the parent, -1 otherwise.
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
		break
	}
	for range 200 { // it is reaped in between, now or later
		if c, ok := zombieCode(pid, ticks); ok {
			return c
		}
		if c, ok := reapedCode(int(f.Fd())); ok {
			return c
		}
		unix.Nanosleep(&unix.Timespec{Nsec: 5e6}, nil)
	}
	return -1
}

// zombieCode reads the status of a process that was not reaped yet.
func zombieCode(pid int, ticks uint64) (int, bool) {
	f, err := stat(pid)
	if err != nil || f[statState] != "Z" || f[statStart] != strconv.FormatUint(ticks, 10) {
		return 0, false
	}
	ws, err := strconv.Atoi(f[statExit])
	return code(syscall.WaitStatus(ws)), err == nil
}

// reapedCode asks by ioctl PIDFD_GET_INFO (linux/pidfd.h), which since Linux
// 6.15 keeps the status for those who hold a pidfd.
func reapedCode(pidfd int) (int, bool) {
	const infoExit = 1 << 3
	var info struct {
		mask     uint64
		cgroupid uint64
		ids      [11]uint32
		exitCode int32
	}
	info.mask = infoExit
	const getInfo = 3<<30 | 64<<16 | 0xFF<<8 | 11 // _IOWR(PIDFS_IOCTL_MAGIC, 11, 64 bytes)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(pidfd), getInfo, uintptr(unsafe.Pointer(&info)))
	if errno == 0 && info.mask&infoExit != 0 {
		return code(syscall.WaitStatus(info.exitCode)), true
	}
	return -1, errno != 0 && errno != unix.ESRCH // an older kernel will not say later either
}

// commandLine is a process's; it changes when runc's init goes on to the
// container's command.
func commandLine(pid int) string {
	b, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	return string(b)
}

// Comm is the base name of what the process executed last, at most 15 bytes of
// it; also of one that has ended and was not reaped. "" when it is gone.
func Comm(pid int) string {
	b, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/comm")
	return strings.TrimSuffix(string(b), "\n")
}

// CommMax is how many bytes of a name Comm tells.
const CommMax = 15

// killCommand ends a command of the runtime and what it started: it leads a
// group (commandSetsid).
func killCommand(pid int) {
	syscall.Kill(-pid, syscall.SIGKILL)
	signalPid(pid)
}

func oomFile(pid int) string {
	if platform.OS == "freebsd" { // stand-ins have no groups
		return ""
	}
	groups, err := cgroup.Of(pid)
	if err != nil {
		return ""
	}
	return cgroup.OOMFile(groups)
}

func oomKilled(file string) bool { return cgroup.OOMKills(file) > 0 }
