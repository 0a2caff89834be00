// SPDX-License-Identifier: BSD-2-Clause

package network

import (
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// setFrame is a framer where FreeBSD's tools are stood in for: the entry of the
// vxlan that the stand-in of ifconfig made, if it made a real one.
func setFrame(tunnel string, f frame) error {
	link, err := netlink.LinkByName(tunnel)
	if err != nil {
		return fmt.Errorf("find interface %s: %w", tunnel, err)
	}
	e := netlink.Neigh{LinkIndex: link.Attrs().Index, Family: unix.AF_BRIDGE, Flags: netlink.NTF_SELF, State: netlink.NUD_PERMANENT}
	if e.HardwareAddr, err = net.ParseMAC(f.mac); err != nil {
		return err
	}
	if f.to.IsValid() {
		e.IP = f.to.AsSlice()
		return netlink.NeighSet(&e)
	}
	if err := netlink.NeighDel(&e); err != nil && err != unix.ENOENT {
		return err
	}
	return nil
}
