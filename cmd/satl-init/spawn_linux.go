// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"errors"
	"runtime"
	"syscall"
	"unsafe"

	"satld/jail/entry"
)

const (
	capVersion3    = 0x20080522
	prCapbsetDrop  = 24
	prSetKeepcaps  = 8
	prSetNoNewPriv = 38
	prCapAmbient   = 47
	ambientRaise   = 2
	ambientClear   = 4
	cloneIntoGroup = 0x200000000
	sysClone3      = 435
	sysCloseRange  = 436

	closeRangeCloexec = 4
)

// step is where the child was when something failed.
type step uintptr

const (
	stepSetsid step = iota
	stepRlimit
	stepBounding
	stepGroups
	stepGID
	stepUID
	stepCaps
	stepAmbient
	stepNoNewPrivs
	stepChdir
	stepExec
)

var stepNames = [...]string{
	"start a session", "set a resource limit", "drop capabilities", "set the groups", "set the group", "set the user",
	"set capabilities", "set ambient capabilities", "set no_new_privs", "change to the working directory", "exec",
}

// plan is all that the child needs, made beforehand: after the fork it may
// not allocate.
type plan struct {
	path       *byte
	argv, env  []*byte
	cwd        *byte
	groups     []uint32
	uid, gid   uintptr
	rlimits    []entry.Rlimit
	drop       [64]bool
	ambient    [64]bool
	capHeader  [2]uint32
	capData    [6]uint32
	noNewPrivs bool
	errors     int // the pipe to say an error on; closed by a successful exec
}

// spawn starts the command and returns its pid when it runs.
func (h *helper) spawn() (int, error) {
	path, err := lookPath(h.req.Argv[0], h.req.Env, h.req.Cwd)
	if err != nil {
		return 0, err
	}
	p, err := newPlan(h.req, path)
	if err != nil {
		return 0, err
	}
	var pipe [2]int
	if err := syscall.Pipe2(pipe[:], syscall.O_CLOEXEC); err != nil {
		return 0, errors.New("pipe: " + err.Error())
	}
	p.errors = pipe[1]
	for fd := entry.ControlFD; fd < entry.TasksFD+int(h.req.Tasks); fd++ {
		syscall.CloseOnExec(fd)
	}

	type result struct {
		pid int
		err error
	}
	done := make(chan result)
	go func() {
		// This thread enters the container's v1 groups, and its child is born
		// in them. It is never unlocked, so it ends with this function and
		// the helper itself is not counted, limited or frozen there.
		runtime.LockOSThread()
		for i := range int(h.req.Tasks) {
			if _, err := syscall.Write(entry.TasksFD+i, []byte("0")); err != nil {
				done <- result{err: errors.New("enter the container's cgroup: " + err.Error())}
				return
			}
			syscall.Close(entry.TasksFD + i)
		}
		leaf := -1
		if h.req.Leaf {
			leaf = entry.LeafFD
		}
		pid, errno := forkExec(p, leaf)
		if errno != 0 {
			done <- result{err: errors.New("fork: " + errno.Error())}
			return
		}
		done <- result{pid: int(pid)}
	}()
	r := <-done
	syscall.Close(pipe[1])
	if r.err != nil {
		return 0, r.err
	}
	var said [2]uintptr
	buf := (*[unsafe.Sizeof(said)]byte)(unsafe.Pointer(&said))
	if readFull(pipe[0], buf[:]) == nil {
		h.wait(r.pid)
		errno := syscall.Errno(said[1])
		what := stepNames[said[0]]
		switch step(said[0]) {
		case stepExec:
			return 0, errors.New("exec: \"" + h.req.Argv[0] + "\": " + errno.Error())
		case stepChdir:
			return 0, errors.New("chdir to cwd (\"" + h.req.Cwd + "\") set in config.json failed: " + errno.Error())
		}
		return 0, errors.New(what + ": " + errno.Error())
	}
	syscall.Close(pipe[0])
	return r.pid, nil
}

func newPlan(req *entry.Request, path string) (*plan, error) {
	p := &plan{
		uid: uintptr(req.UID), gid: uintptr(req.GID), groups: req.Groups, rlimits: req.Rlimits,
		noNewPrivs: req.NoNewPrivs, capHeader: [2]uint32{capVersion3, 0},
		capData: [6]uint32{
			uint32(req.Effective), uint32(req.Permitted), uint32(req.Inherit),
			uint32(req.Effective >> 32), uint32(req.Permitted >> 32), uint32(req.Inherit >> 32),
		},
	}
	for bit := range 64 {
		p.drop[bit] = req.Bounding&(1<<bit) == 0
		p.ambient[bit] = req.Ambient&(1<<bit) != 0
	}
	var err error
	if p.path, err = syscall.BytePtrFromString(path); err != nil {
		return nil, err
	}
	if p.argv, err = syscall.SlicePtrFromStrings(req.Argv); err != nil {
		return nil, err
	}
	if p.env, err = syscall.SlicePtrFromStrings(req.Env); err != nil {
		return nil, err
	}
	p.cwd, err = syscall.BytePtrFromString(req.Cwd)
	return p, err
}

// cloneArgs is struct clone_args (clone3(2)).
type cloneArgs struct {
	flags, pidfd, childTID, parentTID, exitSignal, stack, stackSize, tls, setTID, setTIDSize, cgroup uint64
}

// forkExec forks and, in the child, becomes the command. It is a fork and not
// os/exec because capabilities, resource limits and no_new_privs must be set
// in between, in the child alone. The child is a copy of this one thread with
// no Go scheduler behind it: raw system calls only.
//
//go:noinline
//go:norace
func forkExec(p *plan, leaf int) (uintptr, syscall.Errno) {
	args := cloneArgs{exitSignal: uint64(syscall.SIGCHLD)}
	if leaf >= 0 {
		args.flags, args.cgroup = cloneIntoGroup, uint64(leaf)
	}
	pid, _, errno := syscall.RawSyscall(sysClone3, uintptr(unsafe.Pointer(&args)), unsafe.Sizeof(args), 0)
	if errno == syscall.ENOSYS && leaf < 0 {
		pid, _, errno = syscall.RawSyscall6(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
	}
	if errno != 0 || pid != 0 {
		return pid, errno
	}
	child(p)
	return 0, 0
}

// child never returns.
//
//go:noinline
//go:norace
//go:nosplit
func child(p *plan) {
	var said [2]uintptr
	var denied bool
	var action [4]uintptr // struct kernel_sigaction: the default
	for sig := uintptr(1); sig <= 64; sig++ {
		// The daemon may have been started with some ignored.
		syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, sig, uintptr(unsafe.Pointer(&action)), 0, 8, 0, 0)
	}
	// What the daemon inherited and does not know of stays out as well.
	syscall.RawSyscall(sysCloseRange, 3, ^uintptr(0)>>32, closeRangeCloexec)
	_, _, errno := syscall.RawSyscall(syscall.SYS_SETSID, 0, 0, 0)
	if errno != 0 {
		said[0] = uintptr(stepSetsid)
		goto failed
	}
	for i := range p.rlimits {
		_, _, errno = syscall.RawSyscall6(syscall.SYS_PRLIMIT64, 0, uintptr(p.rlimits[i].Resource), uintptr(unsafe.Pointer(&p.rlimits[i].Soft)), 0, 0, 0)
		if errno != 0 && errno != syscall.EPERM { // EPERM: above our own, and we may not raise it
			said[0] = uintptr(stepRlimit)
			goto failed
		}
	}
	for bit := range p.drop {
		if !p.drop[bit] {
			continue
		}
		_, _, errno = syscall.RawSyscall6(syscall.SYS_PRCTL, prCapbsetDrop, uintptr(bit), 0, 0, 0, 0)
		if errno == syscall.EINVAL {
			break // beyond the last one this kernel knows
		}
		if errno != 0 {
			said[0] = uintptr(stepBounding)
			goto failed
		}
	}
	// As one who can enter most directories; again as the user, for one that
	// only it can enter, on NFS say. runc does the same.
	if _, _, errno = syscall.RawSyscall(syscall.SYS_CHDIR, uintptr(unsafe.Pointer(p.cwd)), 0, 0); errno != 0 {
		denied = errno == syscall.EACCES || errno == syscall.EPERM
		if !denied {
			said[0] = uintptr(stepChdir)
			goto failed
		}
	}
	syscall.RawSyscall6(syscall.SYS_PRCTL, prSetKeepcaps, 1, 0, 0, 0, 0)
	{
		var list uintptr
		if len(p.groups) > 0 {
			list = uintptr(unsafe.Pointer(&p.groups[0]))
		}
		_, _, errno = syscall.RawSyscall(syscall.SYS_SETGROUPS, uintptr(len(p.groups)), list, 0)
		if errno != 0 {
			said[0] = uintptr(stepGroups)
			goto failed
		}
	}
	if _, _, errno = syscall.RawSyscall(syscall.SYS_SETRESGID, p.gid, p.gid, p.gid); errno != 0 {
		said[0] = uintptr(stepGID)
		goto failed
	}
	if _, _, errno = syscall.RawSyscall(syscall.SYS_SETRESUID, p.uid, p.uid, p.uid); errno != 0 {
		said[0] = uintptr(stepUID)
		goto failed
	}
	if denied {
		if _, _, errno = syscall.RawSyscall(syscall.SYS_CHDIR, uintptr(unsafe.Pointer(p.cwd)), 0, 0); errno != 0 {
			said[0] = uintptr(stepChdir)
			goto failed
		}
	}
	if _, _, errno = syscall.RawSyscall(syscall.SYS_CAPSET, uintptr(unsafe.Pointer(&p.capHeader)), uintptr(unsafe.Pointer(&p.capData)), 0); errno != 0 {
		said[0] = uintptr(stepCaps)
		goto failed
	}
	syscall.RawSyscall6(syscall.SYS_PRCTL, prSetKeepcaps, 0, 0, 0, 0, 0)
	syscall.RawSyscall6(syscall.SYS_PRCTL, prCapAmbient, ambientClear, 0, 0, 0, 0)
	for bit := range p.ambient {
		if !p.ambient[bit] {
			continue
		}
		if _, _, errno = syscall.RawSyscall6(syscall.SYS_PRCTL, prCapAmbient, ambientRaise, uintptr(bit), 0, 0, 0); errno != 0 {
			said[0] = uintptr(stepAmbient)
			goto failed
		}
	}
	if p.noNewPrivs {
		if _, _, errno = syscall.RawSyscall6(syscall.SYS_PRCTL, prSetNoNewPriv, 1, 0, 0, 0, 0); errno != 0 {
			said[0] = uintptr(stepNoNewPrivs)
			goto failed
		}
	}
	syscall.RawSyscall(syscall.SYS_UMASK, 0o022, 0, 0)
	_, _, errno = syscall.RawSyscall(syscall.SYS_EXECVE, uintptr(unsafe.Pointer(p.path)), uintptr(unsafe.Pointer(&p.argv[0])), uintptr(unsafe.Pointer(&p.env[0])))
	said[0] = uintptr(stepExec)
failed:
	said[1] = uintptr(errno)
	syscall.RawSyscall(syscall.SYS_WRITE, uintptr(p.errors), uintptr(unsafe.Pointer(&said)), unsafe.Sizeof(said))
	for {
		syscall.RawSyscall(syscall.SYS_EXIT_GROUP, 255, 0, 0)
	}
}
