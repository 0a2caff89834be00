// SPDX-License-Identifier: BSD-2-Clause

package shim

import (
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// setInJail attaches this process to a jail, from which there is no way back,
// and sets a number there: sysctl NAME=VALUE.
func setInJail(jid int, setting string) error {
	name, text, _ := strings.Cut(setting, "=")
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return fmt.Errorf("set %q: not a number", setting)
	}
	runtime.LockOSThread() // another thread sees the new jail a little later
	if _, _, errno := unix.Syscall(unix.SYS_JAIL_ATTACH, uintptr(jid), 0, 0); errno != 0 {
		return fmt.Errorf("attach to jail %d: %w", jid, errno)
	}
	const sysctlByName = 570 // __sysctlbyname(name, length, old, oldlen, new, newlen), since FreeBSD 12.2
	cname, err := unix.BytePtrFromString(name)
	if err != nil {
		return err
	}
	value := int32(n)
	_, _, errno := unix.Syscall6(sysctlByName, uintptr(unsafe.Pointer(cname)), uintptr(len(name)), 0, 0, uintptr(unsafe.Pointer(&value)), unsafe.Sizeof(value))
	if errno != 0 {
		return fmt.Errorf("set %s in jail %d: %w", setting, jid, errno)
	}
	return nil
}
