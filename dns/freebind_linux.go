// SPDX-License-Identifier: BSD-2-Clause

package dns

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// freeBind allows an address that no interface has yet (ip(7), IP_FREEBIND).
func freeBind(_, _ string, c syscall.RawConn) (err error) {
	if cerr := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_FREEBIND, 1) }); cerr != nil {
		return cerr
	}
	return err
}
