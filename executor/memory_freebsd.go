// SPDX-License-Identifier: BSD-2-Clause

package executor

import "golang.org/x/sys/unix"

// totalMemory is the machine's memory in bytes, 0 where it cannot be told.
func totalMemory() int64 {
	n, err := unix.SysctlUint64("hw.physmem")
	if err != nil {
		return 0
	}
	return int64(n)
}
