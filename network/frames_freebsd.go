// SPDX-License-Identifier: BSD-2-Clause

package network

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Commands of vxlan(4)'s SIOCSDRVSPEC (sys/net/if_vxlan.h).
const (
	vxlanEntryAdd    = 13
	vxlanEntryRemove = 14
)

// vxlanCommand is struct ifvxlancmd.
type vxlanCommand struct {
	flags, vni, timeout, max uint32
	port, portMin, portMax   uint16
	mac                      [6]byte
	ttl                      uint8
	_                        [3]byte
	to                       unix.RawSockaddrInet4
	_                        [12]byte // the union has room for an IPv6 one
	ifname                   [unix.IFNAMSIZ]byte
}

// driverRequest is struct ifdrv.
type driverRequest struct {
	name [unix.IFNAMSIZ]byte
	cmd  uintptr
	size uintptr
	data *vxlanCommand
}

// setFrame is a framer: the kernel's own table.
func setFrame(tunnel string, f frame) error {
	mac, err := net.ParseMAC(f.mac)
	if err != nil || len(mac) != 6 {
		return fmt.Errorf("%q is no hardware address", f.mac)
	}
	var c vxlanCommand
	copy(c.mac[:], mac)
	if f.to.IsValid() {
		// Without a port it gets the tunnel's.
		c.to = unix.RawSockaddrInet4{Len: unix.SizeofSockaddrInet4, Family: unix.AF_INET, Addr: f.to.As4()}
		if err = driverSpecific(tunnel, vxlanEntryAdd, &c); err != unix.EEXIST {
			return os.NewSyscallError("SIOCSDRVSPEC", err)
		}
	}
	if err = driverSpecific(tunnel, vxlanEntryRemove, &c); err == unix.ENOENT {
		err = nil
	}
	if err == nil && f.to.IsValid() {
		err = driverSpecific(tunnel, vxlanEntryAdd, &c)
	}
	return os.NewSyscallError("SIOCSDRVSPEC", err)
}

func driverSpecific(tunnel string, cmd uintptr, c *vxlanCommand) error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	r := driverRequest{cmd: cmd, size: unsafe.Sizeof(*c), data: c}
	copy(r.name[:unix.IFNAMSIZ-1], tunnel)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(s), unix.SIOCSDRVSPEC, uintptr(unsafe.Pointer(&r)))
	runtime.KeepAlive(c)
	if errno != 0 {
		return errno
	}
	return nil
}
