// SPDX-License-Identifier: BSD-2-Clause

package fakefreebsd

import (
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"satld/internal/fakefreebsd/world"
	"satld/network/nettest"
)

// A tunnel's end, its bridge and the addresses that are answered for, in the
// words of FreeBSD 14; and the same in this kernel.
func TestVXLAN(t *testing.T) {
	nettest.Require(t)
	h := newHost(t)
	h.RealNetwork()
	if got := h.do("ifconfig vxlan1234 create vxlanid 4097 vxlanlocal 192.0.2.10 vxlanremote 10.89.1.255 vxlanlocalport 4789 vxlanremoteport 4789 -vxlanlearn"); got != "vxlan1234\n" {
		t.Errorf("%q", got)
	}
	h.refused("ifconfig: interface vxlan1234 already exists", "ifconfig vxlan1234 create")
	h.do("ifconfig vxlan1234 description satl:x group satlg name sxtest")
	h.do("ifconfig bridge create name sbtest")
	h.do("ifconfig sbtest ether 02:42:0a:59:01:01 mtu 1450")
	h.do("ifconfig sbtest inet 10.89.1.1/24 up")
	has := func(line string, want ...string) {
		t.Helper()
		got := h.do(line)
		for _, w := range want {
			if !strings.Contains(got, w) {
				t.Errorf("no %q in\n%s", w, got)
			}
		}
	}
	has("ifconfig sxtest", "sxtest: flags=8802<BROADCAST,SIMPLEX,MULTICAST> metric 0 mtu 1450\n", "\tvxlan vni 4097 local 192.0.2.10:4789 remote 10.89.1.255:4789\n", "\tgroups: vxlan satlg\n")
	h.do("ifconfig sbtest addm sxtest -learn sxtest -discover sxtest")
	h.do("ifconfig sxtest up")
	has("ifconfig sxtest", "UP,BROADCAST,RUNNING")
	has("ifconfig sbtest", "\tmember: sxtest flags=140<AUTOEDGE,AUTOPTP>\n")
	h.do("ifconfig sbtest static sxtest 02:42:0a:59:01:03 static sxtest 02:42:0a:59:01:05 deladdr 02:42:0a:59:01:05")
	has("ifconfig sbtest addr", "02:42:0a:59:01:03 Vlan1 sxtest 0 flags=1<STATIC>\n")
	h.refused("ifconfig: BRDGDADDR 02:42:0a:59:01:05: No such file or directory", "ifconfig sbtest deladdr 02:42:0a:59:01:05")
	r := h.run("10.89.1.3 02:42:0a:59:01:03 pub\n10.89.1.9 02:42:0a:59:01:09 pub\n", "arp", "-f", "/dev/stdin")
	if r.exit != 0 {
		t.Errorf("%+v", r)
	}
	h.do("arp -d 10.89.1.9")
	h.refused("arp: writing to routing socket: No such file or directory", "arp -d 10.89.1.9")
	if got, want := h.do("arp -an -i sbtest"), "? (10.89.1.1) at 02:42:0a:59:01:01 on sbtest permanent [bridge]\n? (10.89.1.3) at 02:42:0a:59:01:03 on sbtest permanent published [bridge]\n"; got != want {
		t.Errorf("%s", got)
	}

	if got := h.do("sysctl -n net.link.vxlan.1234.ftable.count"); got != "0\n" {
		t.Errorf("%q", got)
	}
	link, err := netlink.LinkByName("sxtest")
	nettest.Must(t, err)
	mac, err := net.ParseMAC("02:42:0a:59:01:03")
	nettest.Must(t, err)
	nettest.Must(t, netlink.NeighSet(&netlink.Neigh{LinkIndex: link.Attrs().Index, Family: unix.AF_BRIDGE, Flags: netlink.NTF_SELF, State: netlink.NUD_PERMANENT, HardwareAddr: mac, IP: net.ParseIP("192.0.2.2").To4()}))
	if got := h.do("sysctl -n net.link.vxlan.1234.ftable.dump"); got != "\nS 0x02 02:42:0A:59:01:03       192.0.2.2 00001213\n\n" {
		t.Errorf("%q", got)
	}
	known, err := netlink.NeighList(link.Attrs().Index, unix.AF_INET)
	if err != nil || len(known) != 1 || known[0].IP.String() != "10.89.1.3" {
		t.Errorf("%v, %v", known, err)
	}
	h.do("ifconfig sxtest vxlanflushall")
	if got := h.do("sysctl -n net.link.vxlan.1234.ftable.count"); got != "0\n" {
		t.Errorf("%q", got)
	}
	// An end that is no address of the host never runs.
	h.Change(func(w *world.World) {
		w.Link("", "vtnet0").Inet = []string{netip.MustParsePrefix("192.0.2.11/24").String()}
	})
	has("ifconfig sxtest", "<UP,BROADCAST,PROMISC")
	h.do("ifconfig sxtest destroy")
	h.do("ifconfig sbtest destroy")
	if left := h.Leftovers(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}
