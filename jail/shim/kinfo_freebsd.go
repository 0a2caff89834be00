// SPDX-License-Identifier: BSD-2-Clause

package shim

import (
	"encoding/binary"
	"fmt"
	"syscall"
)

// startOf reads ki_start out of struct kinfo_proc (sys/user.h, 64-bit: the
// struct timeval at byte 256). Unverified.
func startOf(kinfo []byte) (uint64, error) {
	const at = 256
	if len(kinfo) < at+16 {
		return 0, fmt.Errorf("kern.proc.pid answered %d bytes", len(kinfo))
	}
	sec := binary.LittleEndian.Uint64(kinfo[at:])
	usec := binary.LittleEndian.Uint64(kinfo[at+8:])
	return sec*1e6 + usec, nil
}

// statusOf is NOTE_EXIT's data: the status as wait(2) gives it.
func statusOf(data int64) syscall.WaitStatus { return syscall.WaitStatus(data) }
