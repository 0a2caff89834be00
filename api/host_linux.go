// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"os"

	"golang.org/x/sys/unix"
)

func totalMemory() int64 {
	var si unix.Sysinfo_t
	if unix.Sysinfo(&si) != nil {
		return 0
	}
	return int64(si.Totalram) * int64(si.Unit)
}

// readLimits tells which cgroups runc uses: v2 only where they are the root.
func (h *hostFacts) readLimits() {
	h.limits, h.cgroupDriver, h.cgroupVersion = true, "cgroupfs", "1"
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		h.cgroupVersion = "2"
	}
}

// openFiles is how many files the daemon has open.
func openFiles() int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	return len(entries)
}
