// SPDX-License-Identifier: BSD-2-Clause

// Command satl-init is satld's helper inside a container. For every exec probe
// the daemon starts it in the container's namespaces, where it runs the
// command, is the parent of whatever the command leaves behind, and returns
// only when all of that is killed and reaped: the container's first process
// need not reap and never sees it. As `satl-init -- COMMAND` it is a minimal
// first process.
//
// It starts within a millisecond, so it imports little and allocates little.
package main

import (
	"os"
	"sync"
	"syscall"

	"satld/jail/entry"
)

const (
	prSetDumpable       = 4
	prSetChildSubreaper = 36
)

func main() {
	if len(os.Args) > 2 && os.Args[1] == "--" {
		os.Exit(firstProcess(os.Args[2:]))
	}
	// Before anything else: the container's processes may neither look into
	// this one nor find the directory it was started from.
	prctl(prSetDumpable, 0)
	if err := syscall.Chdir("/"); err != nil {
		fail("chdir /: " + err.Error())
	}
	prctl(prSetChildSubreaper, 1)
	msg, err := readMessage(entry.ControlFD)
	if err != nil {
		os.Exit(1) // the daemon is gone, or somebody else started us
	}
	req, err := entry.DecodeRequest(msg)
	if err != nil {
		fail(err.Error())
	}
	h := &helper{req: req}
	if !req.Kill {
		if h.procFD, err = openProc(); err != nil {
			fail("open /proc: " + err.Error())
		}
	}
	pid, err := h.spawn()
	if err != nil {
		fail(err.Error())
	}
	report(entry.Report{Kind: entry.Started, Value: uint32(pid)})
	go func() {
		// The end of the daemon's side: it wants no more, or is dead.
		var b [1]byte
		for {
			if _, err := syscall.Read(entry.ControlFD, b[:]); err != syscall.EINTR {
				break
			}
		}
		h.kill()
	}()
	report(entry.Report{Kind: entry.Exited, Value: uint32(h.wait(pid))})
}

// helper runs one command.
type helper struct {
	req    *entry.Request
	procFD int // of a procfs, where there is no cgroup to kill by

	once sync.Once
}

// wait returns the command's status when it has ended and nothing it started
// is left.
func (h *helper) wait(pid int) (status syscall.WaitStatus) {
	for {
		var ws syscall.WaitStatus
		got, err := syscall.Wait4(-1, &ws, 0, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil: // ECHILD
			return status
		case got == pid:
			status = ws
			h.kill()
		}
	}
}

// kill sends SIGKILL to everything that the command started, and keeps doing
// so where it cannot be done in one step. wait reaps.
func (h *helper) kill() {
	h.once.Do(func() {
		if h.req.Kill {
			_, _ = syscall.Write(entry.KillFD, []byte("1")) // an error: the daemon's own time limit helps
			return
		}
		go func() {
			for {
				killDescendants(h.procFD)
				ts := syscall.Timespec{Nsec: 1e6}
				syscall.Nanosleep(&ts, nil)
			}
		}()
	})
}

func prctl(op, arg uintptr) {
	if _, _, errno := syscall.RawSyscall6(syscall.SYS_PRCTL, op, arg, 0, 0, 0, 0); errno != 0 {
		fail("prctl: " + errno.Error())
	}
}

func fail(text string) {
	report(entry.Report{Kind: entry.Failed, Text: text})
	os.Exit(1)
}

func report(r entry.Report) {
	b := r.Encode()
	for len(b) > 0 {
		n, err := syscall.Write(entry.ControlFD, b)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return
		}
		b = b[n:]
	}
}

func readMessage(fd int) ([]byte, error) {
	var head [4]byte
	if err := readFull(fd, head[:]); err != nil {
		return nil, err
	}
	n := entry.Length(head[:])
	if n > entry.MaxLength {
		return nil, syscall.EMSGSIZE
	}
	b := make([]byte, n)
	return b, readFull(fd, b)
}

func readFull(fd int, b []byte) error {
	for len(b) > 0 {
		n, err := syscall.Read(fd, b)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		if n == 0 {
			return syscall.EPIPE
		}
		b = b[n:]
	}
	return nil
}
