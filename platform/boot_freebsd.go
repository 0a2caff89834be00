// SPDX-License-Identifier: BSD-2-Clause

package platform

import (
	"encoding/hex"

	"golang.org/x/sys/unix"
)

// Boot is an ID of the machine's time since it was started, another one after
// each start; "" where the system tells none (sysctl kern.boot_id, 16 bytes).
func Boot() string {
	id, err := unix.SysctlRaw("kern.boot_id")
	if err != nil {
		return ""
	}
	return hex.EncodeToString(id)
}
