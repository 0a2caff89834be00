// SPDX-License-Identifier: BSD-2-Clause

package jail

import (
	"slices"
	"strings"
)

// capNames are the capabilities by their numbers (capabilities(7)).
var capNames = []string{
	"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_DAC_READ_SEARCH", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL",
	"CAP_SETGID", "CAP_SETUID", "CAP_SETPCAP", "CAP_LINUX_IMMUTABLE", "CAP_NET_BIND_SERVICE",
	"CAP_NET_BROADCAST", "CAP_NET_ADMIN", "CAP_NET_RAW", "CAP_IPC_LOCK", "CAP_IPC_OWNER", "CAP_SYS_MODULE",
	"CAP_SYS_RAWIO", "CAP_SYS_CHROOT", "CAP_SYS_PTRACE", "CAP_SYS_PACCT", "CAP_SYS_ADMIN", "CAP_SYS_BOOT",
	"CAP_SYS_NICE", "CAP_SYS_RESOURCE", "CAP_SYS_TIME", "CAP_SYS_TTY_CONFIG", "CAP_MKNOD", "CAP_LEASE",
	"CAP_AUDIT_WRITE", "CAP_AUDIT_CONTROL", "CAP_SETFCAP", "CAP_MAC_OVERRIDE", "CAP_MAC_ADMIN", "CAP_SYSLOG",
	"CAP_WAKE_ALARM", "CAP_BLOCK_SUSPEND", "CAP_AUDIT_READ", "CAP_PERFMON", "CAP_BPF", "CAP_CHECKPOINT_RESTORE",
}

// defaultCaps are what a container has unless told otherwise: Docker's list
// (docker/docker, oci/caps/defaults.go).
var defaultCaps = []string{
	"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FSETID", "CAP_FOWNER", "CAP_MKNOD", "CAP_NET_RAW", "CAP_SETGID",
	"CAP_SETUID", "CAP_SETFCAP", "CAP_SETPCAP", "CAP_NET_BIND_SERVICE", "CAP_SYS_CHROOT", "CAP_KILL",
	"CAP_AUDIT_WRITE",
}

// capabilities works out a container's set. Like Docker: ALL in the one list
// is then narrowed or widened by the other. held is the daemon's own bounding
// set as a mask: no container can have more.
func capabilities(add, drop []string, privileged bool, held uint64) ([]string, error) {
	adds, addAll, err := parseCaps(add)
	if err != nil {
		return nil, err
	}
	drops, dropAll, err := parseCaps(drop)
	if err != nil {
		return nil, err
	}
	var set []string
	for bit, name := range capNames {
		in := slices.Contains(defaultCaps, name) && !dropAll
		in = in || privileged || addAll
		in = in && (!slices.Contains(drops, name) || privileged) || slices.Contains(adds, name)
		if !in {
			continue
		}
		if held&(1<<bit) != 0 {
			set = append(set, name)
		} else if slices.Contains(adds, name) {
			return nil, invalid("capability %s: the daemon itself does not have it", name)
		}
	}
	return set, nil
}

func parseCaps(names []string) (caps []string, all bool, err error) {
	for _, n := range names {
		name := strings.ToUpper(strings.TrimSpace(n))
		if name == "ALL" || name == "CAP_ALL" {
			all = true
			continue
		}
		if !strings.HasPrefix(name, "CAP_") {
			name = "CAP_" + name
		}
		if !slices.Contains(capNames, name) {
			return nil, false, invalid("unknown capability: %q", n)
		}
		caps = append(caps, name)
	}
	return caps, all, nil
}

// capMask is names as the kernel's bit mask.
func capMask(names []string) (mask uint64) {
	for _, n := range names {
		if bit := slices.Index(capNames, n); bit >= 0 {
			mask |= 1 << bit
		}
	}
	return mask
}
