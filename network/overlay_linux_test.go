// SPDX-License-Identifier: BSD-2-Clause

package network

import (
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"satld/network/nettest"
)

func output(t *testing.T, argv ...string) string {
	t.Helper()
	out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v: %s", argv, err, out)
	}
	return string(out)
}

// The link to other nodes is there with the first peer, and has exactly the
// entries of those that there are.
func TestTunnel(t *testing.T) {
	nettest.Require(t)
	m, err := Open(t.Context(), Config{StateDir: t.TempDir(), Name: "stun0", Pool: netip.MustParsePrefix("10.201.0.0/16"), netnsDir: t.TempDir()})
	nettest.Must(t, err)
	defer func() {
		nettest.Must(t, m.Destroy(t.Context()))
		nettest.Must(t, m.Close())
	}()
	n, err := m.Ensure(t.Context(), over())
	nettest.Must(t, err)
	name, self := m.mark.tunnel("over"), netip.MustParseAddr("127.0.0.1")
	set := func(peers ...Peer) {
		t.Helper()
		nettest.Must(t, m.SetPeers(t.Context(), self, map[string][]Peer{"over": peers}))
	}
	set()
	if _, err := m.links.(*netlinkLinks).host.LinkByName(name); !notFound(err) {
		t.Fatalf("a link without peers: %v", err)
	}
	peer := func(addr, host string) Peer { return Peer{netip.MustParseAddr(addr), netip.MustParseAddr(host)} }
	set(peer("10.89.1.8", "192.0.2.2"), peer("10.89.1.9", "192.0.2.3"))
	for range 2 { // the second time changes nothing
		link := output(t, "ip", "-d", "link", "show", name)
		for _, want := range []string{"vxlan id 4097", "local 127.0.0.1", "nolearning", "proxy", "mtu 1450", "master " + n.Bridge, "dstport 4789"} {
			if !strings.Contains(link, want) {
				t.Errorf("no %q in %s", want, link)
			}
		}
		fdb, neigh := output(t, "bridge", "fdb", "show", "dev", name), output(t, "ip", "neigh", "show", "dev", name)
		for _, want := range []string{macOf(netip.MustParseAddr("10.89.1.8")) + " dst 192.0.2.2", macOf(netip.MustParseAddr("10.89.1.9")) + " dst 192.0.2.3"} {
			if !strings.Contains(fdb, want) {
				t.Errorf("no %q in:\n%s", want, fdb)
			}
		}
		if strings.Count(fdb, "master "+n.Bridge+" static") != 2 || strings.Count(neigh, "PERMANENT") != 2 {
			t.Errorf("fdb:\n%s\nneighbours:\n%s", fdb, neigh)
		}
		set(peer("10.89.1.8", "192.0.2.2"), peer("10.89.1.9", "192.0.2.3"))
	}
	// One moves, one goes, one comes; entries made by hand go as well.
	output(t, "bridge", "fdb", "add", "02:00:00:00:00:01", "dev", name, "dst", "192.0.2.9", "self", "permanent")
	set(peer("10.89.1.8", "192.0.2.4"), peer("10.89.1.10", "192.0.2.3"))
	fdb, neigh := output(t, "bridge", "fdb", "show", "dev", name), output(t, "ip", "neigh", "show", "dev", name)
	if strings.Contains(fdb, "192.0.2.2") || strings.Contains(fdb, "192.0.2.9") || !strings.Contains(fdb, "192.0.2.4") || strings.Contains(fdb, macOf(netip.MustParseAddr("10.89.1.9"))) {
		t.Errorf("fdb:\n%s", fdb)
	}
	if strings.Contains(neigh, "10.89.1.9 ") || !strings.Contains(neigh, "10.89.1.10 ") {
		t.Errorf("neighbours:\n%s", neigh)
	}
	// Somebody deletes it: the next call makes it again.
	output(t, "ip", "link", "del", name)
	set(peer("10.89.1.8", "192.0.2.4"))
	if !strings.Contains(output(t, "bridge", "fdb", "show", "dev", name), "192.0.2.4") {
		t.Error("not made again")
	}
	nettest.Must(t, m.Remove(t.Context(), "over"))
	if _, err := m.links.(*netlinkLinks).host.LinkByName(name); !notFound(err) {
		t.Errorf("the link outlives its network: %v", err)
	}
}
