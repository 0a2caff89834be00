// SPDX-License-Identifier: BSD-2-Clause

package network

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"

	"satld/network/nettest"
)

func TestMTUFollowsItsCarrierOnLinux(t *testing.T) {
	m, _ := host(t, "nmt0", "10.88.0.0/16")
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = "ncarrier0", 1400
	carrier := &netlink.Veth{LinkAttrs: attrs, PeerName: "ncarrier1"}
	nettest.Must(t, netlink.LinkAdd(carrier))
	t.Cleanup(func() { _ = netlink.LinkDel(carrier) })
	addr, err := netlink.ParseAddr("192.0.2.1/24")
	nettest.Must(t, err)
	nettest.Must(t, netlink.AddrAdd(carrier, addr))
	nettest.Must(t, netlink.LinkSetUp(carrier))

	n, err := m.Ensure(t.Context(), over())
	nettest.Must(t, err)
	path, _, err := m.Attach(t.Context(), "c1", []Place{{"over", netip.MustParseAddr("10.89.1.7")}})
	nettest.Must(t, err)
	inside := nettest.Open(t, path)
	mtu := func(name string) int {
		t.Helper()
		l, err := netlink.LinkByName(name)
		nettest.Must(t, err)
		return l.Attrs().MTU
	}
	for _, c := range []struct{ carrier, want int }{{1400, 1350}, {1400, 1350}, {9000, 8950}, {1280, 1230}} {
		nettest.Must(t, netlink.LinkSetMTU(carrier, c.carrier))
		nettest.Must(t, m.SetPeers(t.Context(), netip.MustParseAddr("192.0.2.1"), map[string][]Peer{
			"over": {{netip.MustParseAddr("10.89.1.8"), netip.MustParseAddr("192.0.2.2")}},
		}))
		eth0 := 0
		nettest.Must(t, inside.Do(func() error {
			l, err := netlink.LinkByName("eth0")
			if err == nil {
				eth0 = l.Attrs().MTU
			}
			return err
		}))
		got := fmt.Sprint(eth0, mtu(m.mark.veth("c1", "eth0")), mtu(n.Bridge), mtu(m.mark.tunnel("over")))
		if want := fmt.Sprint(c.want, c.want, c.want, c.want); got != want {
			t.Errorf("with %d: inside, outside, bridge, tunnel: %s, want %s", c.carrier, got, want)
		}
	}
}
