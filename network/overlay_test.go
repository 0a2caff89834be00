// SPDX-License-Identifier: BSD-2-Clause

package network

import (
	"net/netip"
	"testing"

	"github.com/containerd/errdefs"
)

func over() Network {
	return Network{ID: "over", Name: "over", VNI: 4097, Subnet: netip.MustParsePrefix("10.89.1.0/24"), Gateway: netip.MustParseAddr("10.89.1.4")}
}

func TestOverlay(t *testing.T) {
	f := newFakeLinks()
	m := open(t, t.TempDir(), f)
	n, err := m.Ensure(t.Context(), over())
	if err != nil || n.Gateway.String() != "10.89.1.4" || n.Bridge == "" {
		t.Fatalf("%+v, %v", n, err)
	}
	// The addresses of its containers are given, and checked.
	at := func(addr string) []Place { return []Place{{"over", netip.MustParseAddr(addr)}} }
	_, got, err := m.Attach(t.Context(), "c1", at("10.89.1.7"))
	if err != nil || got[0].Addr.String() != "10.89.1.7/24" || got[0].Gateway != n.Gateway || f.wired["c1"][0].MTU != 1450 {
		t.Fatalf("%+v, %v", got, err)
	}
	for addr, is := range map[string]func(error) bool{"10.89.1.7": errdefs.IsConflict, "10.89.1.4": errdefs.IsInvalidArgument, "10.89.2.9": errdefs.IsInvalidArgument} {
		if _, _, err := m.Attach(t.Context(), "c2", at(addr)); !is(err) {
			t.Errorf("%s: %v", addr, err)
		}
	}
	if _, _, err := m.Attach(t.Context(), "c2", Anywhere("over")); !errdefs.IsInvalidArgument(err) {
		t.Errorf("without an address: %v", err)
	}
	// The cluster gives this node another address.
	moved := over()
	moved.Gateway = netip.MustParseAddr("10.89.1.5")
	if n, err = m.Ensure(t.Context(), moved); err != nil || n.Gateway != moved.Gateway || f.bridges[n.Bridge].Gateway != moved.Gateway {
		t.Errorf("%+v, %v", n, err)
	}
	other := over()
	other.VNI = 5000
	if _, err := m.Ensure(t.Context(), other); !errdefs.IsConflict(err) {
		t.Errorf("another number: %v", err)
	}
	// What is no peer of the network, or this node's own, is left out.
	host, self := netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("192.0.2.1")
	peer := func(addr string, host netip.Addr) Peer { return Peer{netip.MustParseAddr(addr), host} }
	if err := m.SetPeers(t.Context(), self, map[string][]Peer{"over": {peer("10.89.1.9", host), peer("10.89.1.8", host), peer("10.89.1.9", host), peer("10.89.1.5", host), peer("10.9.9.9", host), peer("10.89.1.10", self)}, "gone": {peer("10.1.1.1", host)}}); err != nil {
		t.Fatal(err)
	}
	if p := f.peers["over"]; len(p) != 2 || p[0].Addr.String() != "10.89.1.8" || p[1].Addr.String() != "10.89.1.9" {
		t.Errorf("peers %v", p)
	}
	if len(f.peers) != 1 {
		t.Errorf("peers of other networks: %v", f.peers)
	}
}
