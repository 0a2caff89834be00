// SPDX-License-Identifier: BSD-2-Clause

//go:build freebsdhost

package jailtest

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
)

// Node is another node of an overlay network, as a jail: the other end of the
// tunnel with an address in the network on it, made by hand.
type Node struct {
	VNI         uint32
	Here, There netip.Prefix          // outside the overlay: this host's address, and the node's
	Addr        netip.Prefix          // the node's in the overlay
	MAC         string                // of that address
	Heard       func(mac string)      // told for whom each frame is that comes through the tunnel; may be nil
	Knows       map[netip.Addr]string // whom it can answer: this host's addresses in the overlay, and their MACs
}

// Start makes the node; it goes when the test ends. It skips the test where
// there is no vxlan(4).
func (n Node) Start(t testing.TB, name string) *Jail {
	t.Helper()
	if _, err := Run("kldload", "-n", "if_vxlan"); err != nil {
		t.Skipf("SKIPPED: no vxlan(4) here: %v", err)
	}
	j := New(t, name)
	j.wire(t, n.Here, n.There, n.Heard)
	do(t, fmt.Sprintf("ifconfig vxlan77 create vxlanid %d vxlanlocal %s vxlanremote %s -vxlanlearn", n.VNI, n.There.Addr(), n.Here.Addr()))
	// Its socket would keep the jail dying for good.
	t.Cleanup(func() {
		undo(t, "jexec "+name+" ifconfig vxlan77 down", "ifconfig vxlan77 -vnet "+name, "ifconfig vxlan77 destroy")
	})
	do(t, "ifconfig vxlan77 vnet "+name, "jexec "+name+" ifconfig vxlan77 ether "+n.MAC,
		fmt.Sprintf("jexec %s ifconfig vxlan77 inet %s up", name, n.Addr))
	for addr, mac := range n.Knows {
		do(t, fmt.Sprintf("jexec %s arp -s %s %s", name, addr, mac))
	}
	return j
}

// wire joins the jail to the host by a pair of tap(4) with copies between them.
// Over an epair frames would come as the chains of mbufs that they left as, and
// vxlan(4) cannot take one out whose outer headers are in an mbuf of their own:
// "discard frame w/o leading ethernet header". No network card does that.
func (j *Jail) wire(t testing.TB, here, there netip.Prefix, heard func(mac string)) {
	t.Helper()
	names := []string{"tap77", "tap78"}
	var ends []*os.File
	for _, name := range names {
		do(t, "ifconfig "+name+" create")
		f, err := os.OpenFile("/dev/"+name, os.O_RDWR, 0)
		Must(t, err)
		ends = append(ends, f)
	}
	do(t, "ifconfig tap78 vnet "+j.Name, fmt.Sprintf("ifconfig tap77 inet %s up", here),
		fmt.Sprintf("jexec %s ifconfig tap78 inet %s up", j.Name, there))
	for i := range ends {
		go func() {
			buf := make([]byte, 4096)
			for {
				n, err := ends[i].Read(buf)
				if i == 0 && heard != nil && n > 56 && binary.BigEndian.Uint16(buf[36:]) == 4789 {
					heard(net.HardwareAddr(buf[50:56]).String()) // behind Ethernet, IPv4, UDP and VXLAN
				}
				if err == nil {
					_, err = ends[1-i].Write(buf[:n])
				}
				if err != nil {
					return // closed at the test's end
				}
			}
		}()
	}
	t.Cleanup(func() {
		undo(t, "ifconfig tap78 -vnet "+j.Name, "ifconfig tap78 down", "ifconfig tap77 down")
		for i, name := range names {
			ends[i].Close()
			undo(t, "ifconfig "+name+" destroy")
		}
	})
}

func do(t testing.TB, lines ...string) {
	t.Helper()
	for _, line := range lines {
		_, err := Run(strings.Fields(line)...)
		Must(t, err)
	}
}

func undo(t testing.TB, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if _, err := Run(strings.Fields(line)...); err != nil {
			t.Error(err)
		}
	}
}
