// SPDX-License-Identifier: BSD-2-Clause

package platform

import (
	"os"
	"strings"
)

// Boot is an ID of the machine's time since it was started, another one after
// each start; "" where the system tells none (proc_sys_kernel(5), random).
func Boot() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(id))
}
