// SPDX-License-Identifier: BSD-2-Clause

package network

import (
	"context"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"satld/network/nettest"
)

// TestRepair: whatever somebody does to a bridge or to a container's link from
// outside, Repair sets it right, says so once, and then finds nothing to do.
func TestRepair(t *testing.T) {
	m, _ := host(t, "nt0", "10.88.0.0/16")
	back, err := m.Ensure(t.Context(), Network{ID: "back", Name: "back", Internal: true})
	nettest.Must(t, err)
	ns1, at, err := m.Attach(t.Context(), "c1", Anywhere(DefaultID, "back"))
	nettest.Must(t, err)
	ns2, _, err := m.Attach(t.Context(), "c2", Anywhere("back"))
	nettest.Must(t, err)
	c1, c2 := nettest.Open(t, ns1), nettest.Open(t, ns2)
	c1.Serve(t, "0.0.0.0:80", "one")
	veth := m.mark.veth("c1", "eth0")
	link := func(name string) netlink.Link {
		t.Helper()
		l, err := netlink.LinkByName(name)
		nettest.Must(t, err)
		return l
	}
	del := func(name string) func() { return func() { t.Helper(); nettest.Must(t, netlink.LinkDel(link(name))) } }
	down := func(name string) func() {
		return func() { t.Helper(); nettest.Must(t, netlink.LinkSetDown(link(name))) }
	}
	for _, c := range []struct {
		name string
		do   func()
		want []string // parts of what is told, in order
	}{
		{"nothing", func() {}, nil},
		{"bridge down", down("nt0"), []string{"bridge nt0 of network nt0 was down"}},
		{"address flushed", func() {
			addrs, err := netlink.AddrList(link("nt0"), netlink.FAMILY_V4)
			nettest.Must(t, err)
			for _, a := range addrs {
				nettest.Must(t, netlink.AddrDel(link("nt0"), &a))
			}
		}, []string{"had lost its address 10.88.0.1/20"}},
		{"bridge deleted", del("nt0"), []string{"bridge nt0 of network nt0 was gone", "link " + veth + " was not in bridge nt0"}},
		{"bridge of two deleted", del(back.Bridge), []string{"of network back was gone", "c1", "c2"}},
		{"link taken out", func() { nettest.Must(t, netlink.LinkSetNoMaster(link(veth))) }, []string{"not in bridge nt0"}},
		{"link down", down(veth), []string{"link " + veth + " was down"}},
		{"link deleted", del(veth), []string{"link " + veth + " was gone"}},
	} {
		before := interfaces(t)
		c.do()
		done, err := m.Repair(t.Context())
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if !slices.EqualFunc(done, c.want, func(r Repaired, part string) bool {
			return strings.Contains(r.What, part) || r.ContainerID == part
		}) {
			t.Errorf("%s: repaired %+v, want %q", c.name, done, c.want)
		}
		for _, addr := range at {
			ask := (*nettest.NS)(nil)
			if addr.NetworkID == "back" {
				ask = c2
			}
			if got, err := ask.Ask("tcp4", addr.Addr.Addr().String()+":80"); got != "one" {
				t.Errorf("%s: in network %s: %q, %v", c.name, addr.NetworkID, got, err)
			}
		}
		nettest.Must(t, c1.Do(func() error { // which a link takes with it
			routes, err := netlink.RouteGet(net.IPv4(192, 0, 2, 1))
			if err == nil && (len(routes) != 1 || routes[0].Gw.String() != "10.88.0.1") {
				t.Errorf("%s: the way out is %+v", c.name, routes)
			}
			return err
		}))
		after := interfaces(t)
		if done, err := m.Repair(t.Context()); err != nil || len(done) > 0 || !slices.Equal(after, interfaces(t)) {
			t.Errorf("%s: the second time: %+v, %v", c.name, done, err)
		}
		if len(before) != len(after) {
			t.Errorf("%s: %v, before %v", c.name, after, before)
		}
	}
	// What was taken away on purpose stays away.
	nettest.Must(t, m.Detach(t.Context(), "c1"))
	nettest.Must(t, m.Detach(t.Context(), "c2"))
	nettest.Must(t, m.Remove(t.Context(), "back"))
	if done, err := m.Repair(t.Context()); err != nil || len(done) > 0 {
		t.Errorf("after the end: %+v, %v", done, err)
	}
}

// TestRepairForeign: another's interface with the name of our bridge stays, and
// the rest is repaired all the same.
func TestRepairForeign(t *testing.T) {
	m, _ := host(t, "nt0", "10.88.0.0/16")
	back, err := m.Ensure(t.Context(), Network{ID: "back", Name: "back"})
	nettest.Must(t, err)
	for _, name := range []string{"nt0", back.Bridge} {
		nettest.Must(t, m.links.deleteLink(context.Background(), name))
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "nt0"
	foreign := &netlink.Bridge{LinkAttrs: attrs}
	nettest.Must(t, netlink.LinkAdd(foreign))
	t.Cleanup(func() { _ = netlink.LinkDel(foreign) })
	done, err := m.Repair(t.Context())
	if err == nil || !strings.Contains(err.Error(), "not ours") {
		t.Errorf("error %v", err)
	}
	if len(done) != 1 || !strings.Contains(done[0].What, back.Bridge) {
		t.Errorf("repaired %+v", done)
	}
}
