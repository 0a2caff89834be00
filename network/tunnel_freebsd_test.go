// SPDX-License-Identifier: BSD-2-Clause

//go:build freebsdhost

package network

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"satld/network/jailtest"
)

// An overlay network with another node, which is a jail: the other end of the
// tunnel in it, made by hand, with an address in the network on it. Tasks and
// the host reach it and are reached; what it does not have, nobody is asked for.
func TestHostTunnel(t *testing.T) {
	const afar = "10.67.1.3"
	here, there := netip.MustParsePrefix("192.168.77.1/24"), netip.MustParsePrefix("192.168.77.2/24")
	m := freebsd(t, t.TempDir())
	defer destroy(t, m)
	n, err := m.Ensure(t.Context(), Network{ID: "across", Name: "across", Subnet: netip.MustParsePrefix("10.67.1.0/24"), Gateway: netip.MustParseAddr("10.67.1.1"), VNI: 4097, Isolated: true})
	jailtest.Must(t, err)
	knows := make(map[netip.Addr]string)
	for _, a := range []string{"10.67.1.1", "10.67.1.2"} {
		knows[netip.MustParseAddr(a)] = macOf(netip.MustParseAddr(a))
	}
	var heard sync.Map
	node := jailtest.Node{VNI: 4097, Here: here, There: there, Addr: netip.MustParsePrefix(afar + "/24"), MAC: macOf(netip.MustParseAddr(afar)), Knows: knows, Heard: func(mac string) { heard.Store(mac, true) }}.Start(t, "nthR")
	do := func(line string) string {
		t.Helper()
		out, err := jailtest.Run(strings.Fields(line)...)
		jailtest.Must(t, err)
		return out
	}
	local, host := here.Addr(), there.Addr()
	task := jailtest.New(t, "nthA")
	_, _, err = m.Attach(t.Context(), task.Name, []Place{{n.ID, netip.MustParseAddr("10.67.1.2")}})
	jailtest.Must(t, err)
	peers := map[string][]Peer{n.ID: {{netip.MustParseAddr(afar), host}, {netip.MustParseAddr("10.67.1.9"), netip.MustParseAddr("192.168.77.9")}}}
	jailtest.Must(t, m.SetPeers(t.Context(), local, peers))

	task.Serve(t, "tcp4", "0.0.0.0:80", "here")
	node.Serve(t, "tcp4", "0.0.0.0:80", "afar")
	for _, c := range []struct {
		from     *jailtest.Jail
		to, want string
	}{{task, afar, "afar"}, {nil, afar, "afar"}, {node, "10.67.1.2", "here"}} {
		if got, err := c.from.Ask(t, c.to+":80"); got != c.want {
			t.Errorf("%v to %s: %q, %v", c.from, c.to, got, err)
		}
	}
	if mtu := do("jexec nthA ifconfig " + m.mark.inner("nthA", "eth0")); !strings.Contains(mtu, "mtu 1450") {
		t.Error(mtu)
	}
	if got, err := task.Ask(t, "10.67.1.77:80"); err == nil {
		t.Errorf("nobody's address answered %q", got)
	}
	// The same again changes nothing, and a change is followed.
	link, _ := m.links.(*ifconfigLinks)
	info, ok, err := link.look(t.Context(), m.mark.tunnel(n.ID))
	if err != nil || !ok || !info.Running {
		t.Fatalf("%+v, %v", info, err)
	}
	for _, want := range []int{2, 2, 1, 0} {
		peers[n.ID] = peers[n.ID][:want]
		jailtest.Must(t, m.SetPeers(t.Context(), local, peers))
		has, known, err := link.framesOf(t.Context(), info)
		arp, arpErr := jailtest.Run("arp", "-an", "-i", n.Bridge)
		addrs, addrErr := jailtest.Run("ifconfig", n.Bridge, "addr")
		if len(has) != want || !known || len(parseARP(arp)) != want || strings.Count(addrs, "STATIC") != want || errors.Join(err, arpErr, addrErr) != nil {
			t.Errorf("want %d: %v, %v\n%s\n%s", want, has, errors.Join(err, arpErr, addrErr), arp, addrs)
		}
	}
	if got, err := task.Ask(t, afar+":80"); err == nil {
		t.Errorf("a peer that is gone answered %q", got)
	}

	heard.Range(func(mac, _ any) bool {
		if mac != macOf(netip.MustParseAddr(afar)) {
			t.Errorf("the other node got a frame for %s", mac)
		}
		return true
	})

	// The cluster may give this node another address in the network.
	n.Gateway = netip.MustParseAddr("10.67.1.7")
	n, err = m.Ensure(t.Context(), n)
	jailtest.Must(t, err)
	peers[n.ID] = []Peer{{netip.MustParseAddr(afar), host}}
	jailtest.Must(t, m.SetPeers(t.Context(), local, peers))
	bridge, _, err := link.look(t.Context(), n.Bridge)
	if want := netip.MustParsePrefix("10.67.1.7/24"); err != nil || len(bridge.Inet) != 1 || bridge.Inet[0] != want || bridge.Ether != macOf(want.Addr()) {
		t.Errorf("%+v, %v", bridge, err)
	}
	if flags := bridge.Ports[m.mark.veth("nthA", "eth0")]; !slices.Contains(flags, "PRIVATE") {
		t.Errorf("the task's port: %v", flags)
	}
	if got, err := task.Ask(t, afar+":80"); got != "afar" {
		t.Errorf("afterwards: %q, %v", got, err)
	}

	// More than the kernel prints.
	peers[n.ID] = nil
	for i := range 150 {
		peers[n.ID] = append(peers[n.ID], Peer{netip.AddrFrom4([4]byte{10, 67, 1, byte(i + 50)}), host})
	}
	jailtest.Must(t, m.SetPeers(t.Context(), local, peers))
	if has, known, err := link.framesOf(t.Context(), info); len(has) != 150 || !known || err != nil {
		t.Errorf("%d, %t, %v", len(has), known, err)
	}
	clear(link.frames) // as in the next daemon
	jailtest.Must(t, m.SetPeers(t.Context(), local, peers))
	if has, known, err := link.framesOf(t.Context(), info); len(has) != 150 || !known || err != nil {
		t.Errorf("%d, %t, %v", len(has), known, err)
	}
	jailtest.Must(t, task.Remove())
	untilDetached(t, m, task)
	jailtest.Must(t, m.Remove(t.Context(), n.ID))
}
