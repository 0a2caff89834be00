// SPDX-License-Identifier: BSD-2-Clause

//go:build freebsdhost

package network

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"satld/network/jailtest"
)

// tapWire joins a jail to the host.
func tapWire(t *testing.T, j *jailtest.Jail, hostAddr, addr netip.Prefix) {
	t.Helper()
	var ends []*os.File
	for _, name := range []string{"tap77", "tap78"} {
		_, err := jailtest.Run("ifconfig", name, "create")
		jailtest.Must(t, err)
		f, err := os.OpenFile("/dev/"+name, os.O_RDWR, 0)
		jailtest.Must(t, err)
		ends = append(ends, f)
	}
	for _, c := range [][]string{
		{"ifconfig", "tap78", "vnet", j.Name},
		{"ifconfig", "tap77", "inet", hostAddr.String(), "up"},
		{"jexec", j.Name, "ifconfig", "tap78", "inet", addr.String(), "up"},
	} {
		_, err := jailtest.Run(c...)
		jailtest.Must(t, err)
	}
	for i := range ends {
		go func() {
			buf := make([]byte, 4096)
			for {
				n, err := ends[i].Read(buf)
				if err != nil {
					return // closed at the test's end
				}
				if _, err := ends[1-i].Write(buf[:n]); err != nil {
					return
				}
			}
		}()
	}
	t.Cleanup(func() {
		for _, c := range [][]string{{"ifconfig", "tap78", "-vnet", j.Name}, {"ifconfig", "tap77", "down"}, {"ifconfig", "tap78", "down"}} {
			if _, err := jailtest.Run(c...); err != nil {
				t.Error(err)
			}
		}
		for i, name := range []string{"tap77", "tap78"} {
			ends[i].Close()
			if _, err := jailtest.Run("ifconfig", name, "destroy"); err != nil {
				t.Error(err)
			}
		}
	})
}

// An overlay network with another node, which is a jail: the other end of the
// tunnel in it, made by hand, with an address in the network on it. Tasks and
// the host reach it and are reached; what it does not have, nobody is asked for.
//
// The way there is a pair of tap(4) with copies between them: over an epair the
// frames would come as the chains of mbufs that they left as, and vxlan(4) cannot
// take one out whose headers are in an mbuf of their own (m_adj_decap, then
// ether_input's "discard frame w/o leading ethernet header"). No network card does
// that.
func TestHostTunnel(t *testing.T) {
	if _, err := jailtest.Run("kldload", "-n", "if_vxlan"); err != nil {
		t.Skipf("SKIPPED: no vxlan(4) here: %v", err)
	}
	m := freebsd(t, t.TempDir())
	defer destroy(t, m)
	const afar, there = "10.67.1.3", "192.168.77.2"
	local, host := netip.MustParseAddr("192.168.77.1"), netip.MustParseAddr(there)
	node := jailtest.New(t, "nthR")
	tapWire(t, node, netip.PrefixFrom(local, 24), netip.PrefixFrom(host, 24))
	n, err := m.Ensure(t.Context(), Network{ID: "across", Name: "across", Subnet: netip.MustParsePrefix("10.67.1.0/24"), Gateway: netip.MustParseAddr("10.67.1.1"), VNI: 4097})
	jailtest.Must(t, err)
	do := func(line string) string {
		t.Helper()
		out, err := jailtest.Run(strings.Fields(line)...)
		jailtest.Must(t, err)
		return out
	}
	do("ifconfig vxlan77 create vxlanid 4097 vxlanlocal 192.168.77.2 vxlanremote 192.168.77.1 -vxlanlearn")
	t.Cleanup(func() { // its socket would keep the jail dying for good
		for _, line := range []string{"jexec nthR ifconfig vxlan77 down", "ifconfig vxlan77 -vnet nthR", "ifconfig vxlan77 destroy"} {
			if _, err := jailtest.Run(strings.Fields(line)...); err != nil {
				t.Error(err)
			}
		}
	})
	do("ifconfig vxlan77 vnet nthR")
	do("jexec nthR ifconfig vxlan77 ether " + macOf(netip.MustParseAddr(afar)))
	do("jexec nthR ifconfig vxlan77 inet " + afar + "/24 up")
	for _, a := range []string{"10.67.1.1", "10.67.1.2"} {
		do(fmt.Sprintf("jexec nthR arp -s %s %s", a, macOf(netip.MustParseAddr(a))))
	}
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
	sent := func() string { // bytes and packets that left for the other node
		return strings.Join(strings.Fields(do("netstat -nbI tap77"))[12:], " ")
	}
	before := sent()
	if got, err := task.Ask(t, "10.67.1.77:80"); err == nil {
		t.Errorf("nobody's address answered %q", got)
	}
	if after := sent(); after != before {
		t.Errorf("the other node was asked for it: %s, then %s", before, after)
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
