// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"os"

	"golang.org/x/sys/unix"
)

func totalMemory() int64 {
	n, err := unix.SysctlUint64("hw.physmem")
	if err != nil {
		return 0
	}
	return int64(n)
}

// readLimits: limits come from rctl(8), which must be enabled at boot.
func (h *hostFacts) readLimits() {
	enabled, err := unix.SysctlUint32("kern.racct.enable")
	h.limits = err == nil && enabled != 0
	h.cgroupDriver = "none"
}

// openFiles is how many files the daemon has open.
func openFiles() int {
	entries, err := os.ReadDir("/dev/fd")
	if err != nil {
		return 0
	}
	return len(entries)
}
