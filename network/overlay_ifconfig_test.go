// SPDX-License-Identifier: BSD-2-Clause

package network

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

var (
	here   = netip.MustParseAddr("192.0.2.5")
	across = Network{ID: "across", Name: "across", Subnet: netip.MustParsePrefix("10.89.1.0/24"), Gateway: netip.MustParseAddr("10.89.1.7"), VNI: 4097}
)

// peersOf reads "10.89.1.8 192.0.2.2" a line.
func peersOf(lines ...string) map[string][]Peer {
	out := make(map[string][]Peer)
	for _, line := range lines {
		addr, host, _ := strings.Cut(line, " ")
		out[across.ID] = append(out[across.ID], Peer{netip.MustParseAddr(addr), netip.MustParseAddr(host)})
	}
	return out
}

// checkTunnel looks that the host reaches exactly these peers, each way.
func checkTunnel(t *testing.T, b *bsd, m *Manager, peers map[string][]Peer) {
	t.Helper()
	n, _ := m.Get(across.ID)
	bridge, link := b.link("", n.Bridge), b.link("", m.mark.tunnel(n.ID))
	if bridge == nil || link == nil {
		t.Fatalf("bridge %+v, tunnel %+v", bridge, link)
	}
	frames, addrs, arp := map[string]netip.Addr{}, map[string]port{}, map[netip.Addr]string{}
	for _, p := range peers[n.ID] {
		mac := macOf(p.Addr)
		frames[mac], addrs[mac], arp[p.Addr] = p.Host, port{link.name, true}, mac
	}
	maps.DeleteFunc(bridge.addrs, func(_ string, p port) bool { return p.name != link.name }) // learned elsewhere
	if !maps.Equal(link.frames, frames) || !maps.Equal(bridge.addrs, addrs) || !maps.Equal(bridge.arp, arp) {
		t.Errorf("frames %v, bridge %v, ARP %v", link.frames, bridge.addrs, bridge.arp)
	}
	want := fmt.Sprintf("vxlan vni 4097 local %s:4789 remote 10.89.1.255:4789", here)
	off := slices.Sorted(slices.Values(bridge.off[link.name]))
	if link.tunnel != want || !link.up || link.mtu != 1450 || bridge.mtu != 1450 || bridge.ether != macOf(n.Gateway) ||
		!slices.Contains(bridge.members, link.name) || !slices.Equal(off, []string{"-discover", "-learn"}) || !slices.Contains(link.groups, m.Group()) {
		t.Errorf("bridge %+v, tunnel %+v", bridge, link)
	}
	if len(m.pending()) > 0 {
		t.Errorf("pending %v", m.pending())
	}
}

// The command lines of an overlay network from its first peer to its end.
func TestIfconfigTunnel(t *testing.T) {
	b := newBSD()
	m := mustBSD(t, b, t.TempDir())
	set := func(title string, peers map[string][]Peer) {
		t.Helper()
		b.calls = append(b.calls, "# "+title)
		if err := m.SetPeers(t.Context(), here, peers); err != nil {
			t.Fatal(err)
		}
	}
	b.calls = nil
	n, err := m.Ensure(t.Context(), across)
	if err != nil {
		t.Fatal(err)
	}
	set("nobody", peersOf())
	first := peersOf("10.89.1.8 192.0.2.2", "10.89.1.9 192.0.2.3")
	set("two", first)
	checkTunnel(t, b, m, first)
	set("the same", first)
	b.jails["cid"] = &bsdJail{}
	if _, at, err := m.Attach(t.Context(), "cid", []Place{{across.ID, netip.MustParseAddr("10.89.1.20")}}); err != nil {
		t.Error(err)
	} else {
		checkInside(t, b, m, "cid", at, "10.89.1.7")
	}
	moved := peersOf("10.89.1.8 192.0.2.3", "10.89.1.10 192.0.2.3")
	b.link("", n.Bridge).addrs[macOf(netip.MustParseAddr("10.89.1.10"))] = port{"svold", false} // it was here once
	set("one moved, one gone, one new", moved)
	checkTunnel(t, b, m, moved)
	set("nobody any more", peersOf())
	checkTunnel(t, b, m, nil)
	b.remove("cid")
	if err := errors.Join(m.Detach(t.Context(), "cid"), m.Remove(t.Context(), across.ID)); err != nil {
		t.Fatal(err)
	}
	if b.link("", m.mark.tunnel(across.ID)) != nil || b.link("", n.Bridge) != nil {
		t.Error("left over")
	}
	golden(t, "tunnel.txt", strings.Join(b.calls, "\n")+"\n")
}

// The daemon dies after each change in turn, also those of a change of peers.
// The next one brings it to the same end, or removes all of it.
func TestTunnelKilledAtAnyStep(t *testing.T) {
	first, second := peersOf("10.89.1.8 192.0.2.2", "10.89.1.9 192.0.2.3"), peersOf("10.89.1.8 192.0.2.3", "10.89.1.10 192.0.2.3")
	life := func(b *bsd, dir string) (*Manager, error) {
		m, err := bsdHost(t, b, dir)
		if err != nil {
			return nil, err
		}
		if _, err := m.Ensure(t.Context(), across); err != nil {
			return nil, err
		}
		if len(b.link("", m.mark.bridge(across.ID, 0)).arp) == 0 {
			if err := m.SetPeers(t.Context(), here, first); err != nil {
				return nil, err
			}
		}
		return m, m.SetPeers(t.Context(), here, second)
	}
	whole := newBSD()
	if _, err := life(whole, t.TempDir()); err != nil {
		t.Fatal(err)
	}
	for step := 1; step < len(whole.calls); step++ {
		for _, sweep := range []bool{false, true} {
			b, dir := newBSD(), t.TempDir()
			b.cut = step
			if _, err := life(b, dir); !errors.Is(err, errKilled) {
				t.Fatalf("step %d: %v", step, err)
			}
			b.cut = 0
			if sweep {
				m := mustBSD(t, b, dir)
				if err := errors.Join(m.Sweep(t.Context(), nil), m.Destroy(t.Context())); err != nil {
					t.Fatalf("step %d: %v", step, err)
				}
				if got, want := b.foreign(), newBSD().foreign(); got != want || len(b.links) != len(newBSD().links) {
					t.Errorf("step %d, %s: left\n%s", step, whole.calls[step-1], got)
				}
				continue
			}
			m, err := life(b, dir)
			if err != nil {
				t.Fatalf("step %d, %s: %v", step, whole.calls[step-1], err)
			}
			checkTunnel(t, b, m, second)
		}
	}
}

// What somebody else changed is set right by the next call, and by nothing
// more than that; what is right stays untouched.
func TestTunnelRepair(t *testing.T) {
	b := newBSD()
	m := mustBSD(t, b, t.TempDir())
	n, err := m.Ensure(t.Context(), across)
	if err != nil {
		t.Fatal(err)
	}
	peers := peersOf("10.89.1.8 192.0.2.2", "10.89.1.9 192.0.2.3")
	if err := m.SetPeers(t.Context(), here, peers); err != nil {
		t.Fatal(err)
	}
	name := m.mark.tunnel(n.ID)
	eight := macOf(netip.MustParseAddr("10.89.1.8"))
	for _, c := range []struct {
		name    string
		changes int // calls that set it right
		change  func(bridge, link *bsdLink)
	}{
		{"nothing", 0, func(*bsdLink, *bsdLink) {}},
		{"down", 1, func(_, link *bsdLink) { link.up = false }},
		{"an entry elsewhere", 1, func(_, link *bsdLink) { link.frames[eight] = here }},
		{"an entry too many", 1, func(_, link *bsdLink) { link.frames["02:42:00:00:00:01"] = here }},
		{"no entries", 2, func(_, link *bsdLink) { clear(link.frames) }},
		{"learns", 1, func(bridge, _ *bsdLink) { delete(bridge.off, name) }},
		{"out of the bridge", 2, func(bridge, _ *bsdLink) {
			bridge.members = nil
			delete(bridge.off, name)
			clear(bridge.addrs)
		}},
		{"fixed elsewhere", 1, func(bridge, _ *bsdLink) { bridge.addrs[eight] = port{"vtnet0", true} }},
		{"fixed too many", 1, func(bridge, _ *bsdLink) { bridge.addrs["02:42:00:00:00:01"] = port{name, true} }},
		{"no neighbours", 1, func(bridge, _ *bsdLink) { clear(bridge.arp) }},
		{"a neighbour too many", 1, func(bridge, _ *bsdLink) { bridge.arp[netip.MustParseAddr("10.89.1.99")] = eight }},
		{"another network's", 8, func(_, link *bsdLink) { link.tunnel = strings.Replace(link.tunnel, "4097", "4098", 1) }},
	} {
		c.change(b.link("", n.Bridge), b.link("", name))
		b.calls = nil
		if err := m.SetPeers(t.Context(), here, peers); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if len(b.calls) != c.changes {
			t.Errorf("%s: %q", c.name, b.calls)
		}
		checkTunnel(t, b, m, peers)
	}

	// The node got another address, and the old end with it is of no use.
	if err := m.SetPeers(t.Context(), netip.MustParseAddr("192.0.2.6"), peers); err != nil || !strings.Contains(b.link("", name).tunnel, "192.0.2.6") {
		t.Errorf("%v, %+v", err, b.link("", name))
	}
	b.link("", name).deaf = true
	if err := m.SetPeers(t.Context(), netip.MustParseAddr("192.0.2.6"), peers); err == nil || !strings.Contains(err.Error(), "does not run") {
		t.Errorf("a tunnel that does not run: %v", err)
	}
	// Another one, while there is nobody to reach.
	if err := m.SetPeers(t.Context(), here, nil); err != nil {
		t.Error(err)
	}
	checkTunnel(t, b, m, nil)
}

// More entries than the kernel can print: they are remembered, and set anew
// where they are not.
func TestTunnelOfMany(t *testing.T) {
	b, dir := newBSD(), t.TempDir()
	m := mustBSD(t, b, dir)
	if _, err := m.Ensure(t.Context(), across); err != nil {
		t.Fatal(err)
	}
	var lines []string
	for i := range 200 {
		lines = append(lines, fmt.Sprintf("10.89.1.%d 192.0.2.%d", i+20, i%3+100))
	}
	set := func(m *Manager, lines []string) int {
		t.Helper()
		b.calls = nil
		if err := m.SetPeers(t.Context(), here, peersOf(lines...)); err != nil {
			t.Fatal(err)
		}
		checkTunnel(t, b, m, peersOf(lines...))
		return len(b.calls)
	}
	set(m, lines)
	if n := set(m, lines); n != 0 {
		t.Errorf("the same again: %d changes", n)
	}
	if n := set(m, lines[1:]); n != 3 {
		t.Errorf("one less: %q", b.calls)
	}
	clear(b.link("", m.mark.tunnel(across.ID)).frames)
	if n := set(m, lines[1:]); n != 199 {
		t.Errorf("somebody flushed them: %d changes", n)
	}
	b.link("", m.mark.tunnel(across.ID)).frames["02:42:00:00:00:01"] = here
	if n := set(m, lines[1:]); n != 1+199 || !strings.HasSuffix(b.calls[0], "vxlanflushall") {
		t.Errorf("somebody set one: %d changes, %s", n, b.calls[0])
	}
	if n := set(mustBSD(t, b, dir), lines[1:]); n != 1+199 {
		t.Errorf("the next daemon: %d changes", n)
	}
}

// Containers of a network that keeps them apart are private ports of its bridge.
func TestIsolatedPorts(t *testing.T) {
	b := newBSD()
	m := mustBSD(t, b, t.TempDir())
	apart := across
	apart.Isolated = true
	n, err := m.Ensure(t.Context(), apart)
	if err != nil {
		t.Fatal(err)
	}
	b.jails["cid"] = &bsdJail{}
	attach := func() {
		t.Helper()
		if _, _, err := m.Attach(t.Context(), "cid", []Place{{n.ID, netip.MustParseAddr("10.89.1.20")}}); err != nil {
			t.Fatal(err)
		}
		if off := b.link("", n.Bridge).off[m.mark.veth("cid", "eth0")]; !slices.Equal(off, []string{"private"}) {
			t.Errorf("%v", off)
		}
	}
	attach()
	delete(b.link("", n.Bridge).off, m.mark.veth("cid", "eth0"))
	attach()
}

func FuzzFrames(f *testing.F) {
	f.Add("S 0x02 02:42:0A:59:01:08 192.0.2.2 1\n", "02:42:0a:59:01:08 Vlan1 sx0 0 flags=1<STATIC>\n", "? (10.89.1.8) at 02:42:0a:59:01:08 on sb permanent published [bridge]\n")
	f.Add(" a b c d\n", "<\n>", "? ( at at published")
	f.Fuzz(func(t *testing.T, frames, addrs, arp string) {
		for mac, to := range parseFrames(frames) {
			if !to.IsValid() || mac == "" {
				t.Error(mac, to)
			}
		}
		arpChanges(parseARP(arp), nil)
		bridgeAddrs(parseBridgeAddrs(addrs), nil, "sx0")
	})
}

// All ends follow the interface that carries the tunnel, the jail's own too.
func TestIfconfigMTU(t *testing.T) {
	b := newBSD()
	m := mustBSD(t, b, t.TempDir())
	n, err := m.Ensure(t.Context(), across)
	if err != nil {
		t.Fatal(err)
	}
	b.jails["cid"] = &bsdJail{}
	if _, _, err := m.Attach(t.Context(), "cid", []Place{{across.ID, netip.MustParseAddr("10.89.1.20")}}); err != nil {
		t.Fatal(err)
	}
	peers := peersOf("10.89.1.8 192.0.2.2")
	for _, c := range []struct{ carrier, want int }{{1400, 1350}, {9000, 8950}, {1500, 1450}} {
		b.link("", "vtnet0").mtu = c.carrier
		for again := range 2 {
			calls := len(b.calls)
			if err := m.SetPeers(t.Context(), here, peers); err != nil {
				t.Fatal(err)
			}
			if again > 0 && len(b.calls) > calls {
				t.Errorf("%d, again: %q", c.carrier, b.calls[calls:])
			}
		}
		got := []int{b.link("cid", m.mark.inner("cid", "eth0")).mtu, b.link("", m.mark.veth("cid", "eth0")).mtu,
			b.link("", n.Bridge).mtu, b.link("", m.mark.tunnel(n.ID)).mtu}
		if want := []int{c.want, c.want, c.want, c.want}; !slices.Equal(got, want) {
			t.Errorf("with %d: inside, outside, bridge, tunnel: %v, want %v", c.carrier, got, want)
		}
	}
	checkTunnel(t, b, m, peers)
	// A tunnel that is the bridge's first member does not give it its own.
	b, small := newBSD(), across
	b.link("", "vtnet0").mtu = 1400
	m = mustBSD(t, b, t.TempDir())
	if n, err = m.Ensure(t.Context(), small); err != nil {
		t.Fatal(err)
	}
	if err := m.SetPeers(t.Context(), here, peers); err != nil {
		t.Fatal(err)
	}
	if got := b.link("", n.Bridge).mtu; got != 1350 {
		t.Errorf("bridge has %d", got)
	}
}
