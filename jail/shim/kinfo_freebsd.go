// SPDX-License-Identifier: BSD-2-Clause

package shim

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// kinfo is struct kinfo_proc (sys/user.h), whose layout is the same on all
// 64-bit platforms and never changes: it is part of the kernel's interface.
type kinfo []byte

// Where its members are.
const (
	kiSize  = 1088
	kiStart = 336 // struct timeval
	kiStat  = 388 // char
	kiComm  = 447 // char[20], the base name of what was executed last
)

const zombie = 5 // SZOMB (sys/proc.h)

// procOf reads sysctl kern.proc.pid; a process that is gone is an error, and
// one that only waits for its parent is there.
func procOf(pid int) (kinfo, error) {
	k, err := unix.SysctlRaw("kern.proc.pid", pid)
	if err != nil {
		return nil, err
	}
	if len(k) == 0 {
		return nil, unix.ESRCH
	}
	if len(k) < kiSize {
		return nil, fmt.Errorf("kern.proc.pid.%d answered %d bytes", pid, len(k))
	}
	return k, nil
}

// start is in microseconds since the epoch.
func (k kinfo) start() uint64 {
	sec, usec := binary.LittleEndian.Uint64(k[kiStart:]), binary.LittleEndian.Uint64(k[kiStart+8:])
	return sec*1e6 + usec
}

func (k kinfo) zombie() bool { return k[kiStat] == zombie }

func (k kinfo) comm() string {
	name, _, _ := bytes.Cut(k[kiComm:kiComm+20], []byte{0})
	return string(name)
}

// statusOf is NOTE_EXIT's data: the status as wait(2) gives it.
func statusOf(data int64) syscall.WaitStatus { return syscall.WaitStatus(data) }
