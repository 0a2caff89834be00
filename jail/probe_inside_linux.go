// SPDX-License-Identifier: BSD-2-Clause

package jail

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"satld/jail/cgroup"
)

// joined are the namespaces a probe shares with its container.
const joined = unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP

// helperCaps are what satl-init needs besides what the command will have: to
// become the command's user, to drop capabilities, to set limits, to kill.
// searchCaps are for finding children by itself.
const (
	helperCaps = 1<<unix.CAP_SETUID | 1<<unix.CAP_SETGID | 1<<unix.CAP_SETPCAP | 1<<unix.CAP_SYS_RESOURCE | 1<<unix.CAP_KILL
	searchCaps = 1<<unix.CAP_SYS_ADMIN | 1<<unix.CAP_SYS_PTRACE
)

// inside is where and as what the helper starts.
//
// A container that was given CAP_SYS_PTRACE can take over any process that it
// sees, so the helper has no more than the container itself: its namespaces,
// its root, about its capabilities, and its limit on devices. The other
// limits are for the command alone; the helper is not counted by them where
// that can be helped (with v1 groups).
type inside struct {
	pidfd   int
	dir     int    // which holds the helper and nothing else
	keep    uint64 // capabilities
	devices int    // tasks of the v1 devices group; -1 without one
	group   int    // v2 group to be born in; -1 to stay in ours
}

// fork starts the helper. A thread enters the namespaces for that and ends
// with it: Go ends the thread of a goroutine that never unlocks it.
func (in inside) fork(attr *syscall.ProcAttr) (int, error) {
	type result struct {
		pid int
		err error
	}
	done := make(chan result, 1)
	var enter func()
	enter = func() {
		runtime.LockOSThread()
		if unix.Gettid() == os.Getpid() {
			// The first thread cannot end, and what /proc/self shows is its.
			again := make(chan struct{})
			go func() {
				defer close(again)
				enter()
			}()
			<-again
			runtime.UnlockOSThread()
			return
		}
		pid, err := in.forkOnThread(attr)
		done <- result{pid, err}
	}
	go enter()
	r := <-done
	return r.pid, r.err
}

func (in inside) forkOnThread(attr *syscall.ProcAttr) (int, error) {
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return 0, fmt.Errorf("unshare: %w", err)
	}
	namespaces := joined
	if in.group >= 0 && cgroup.NamespacesDelegate() {
		// From inside it nothing may be born in a group outside, and the
		// helper comes from outside. The command only sees longer names.
		namespaces &^= unix.CLONE_NEWCGROUP
	}
	if err := unix.Setns(in.pidfd, namespaces); err != nil {
		return 0, fmt.Errorf("enter the container's namespaces: %w", err)
	}
	if in.devices >= 0 {
		// "0" is this thread, which is not frozen with the container: Go's
		// other threads would wait for it.
		if _, err := unix.Write(in.devices, []byte("0")); err != nil {
			return 0, fmt.Errorf("enter the container's devices cgroup: %w", err)
		}
	}
	if in.group >= 0 {
		attr.Sys = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: in.group}
	}
	for bit := range capNames {
		if in.keep&(1<<bit) == 0 {
			// EINVAL: this kernel does not know it. What a program started as
			// root gets is this set.
			if err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(bit), 0, 0, 0); err != nil && err != unix.EINVAL {
				return 0, fmt.Errorf("drop %s: %w", capNames[bit], err)
			}
		}
	}
	// Entering the mount namespace moved this thread's root and directory to
	// the container's; the program is reached through its own directory.
	if err := unix.Fchdir(in.dir); err != nil {
		return 0, fmt.Errorf("enter the helper's directory: %w", err)
	}
	pid, err := syscall.ForkExec(helperName, []string{helperName}, attr)
	if errors.Is(err, syscall.ENOMEM) { // the PID namespace's first process is gone
		return 0, fmt.Errorf("enter the container's PID namespace: %w", unix.ESRCH)
	}
	if err != nil {
		return 0, fmt.Errorf("start satl-init in the container: %w", err)
	}
	return pid, nil
}
