// SPDX-License-Identifier: BSD-2-Clause

package network

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// The texts are what ifconfig(8) printed on FreeBSD hosts.
func TestParseIfconfig(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("testdata", "ifconfig-a.txt"))
	if err != nil {
		t.Fatal(err)
	}
	got := parseIfconfig(string(text))
	want := []ifInfo{
		{Name: "satlnt-br0", Description: "satl:01234567:n:n1", Up: true, MTU: 1500, Inet: []netip.Prefix{netip.MustParsePrefix("10.77.77.1/24")}, Members: []string{"epair0a", "sv0"}, Groups: []string{"bridge", "satlnt"}},
		{Name: "lo0", Up: true, Loopback: true, MTU: 16384, Inet: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/8")}, Groups: []string{"lo"}},
		{Name: "seabcdef012345", Description: "satl:01234567:c:cid", MTU: 1450, Groups: []string{"epair"}},
		{Name: "tun0", Up: true, MTU: 1500, Inet: []netip.Prefix{netip.MustParsePrefix("192.168.9.2/32")}, Groups: []string{"tun"}},
	}
	if len(got) != len(want) {
		t.Fatalf("%+v", got)
	}
	for i := range want {
		if g, w := got[i], want[i]; g.Name != w.Name || g.Description != w.Description || g.Up != w.Up || g.Loopback != w.Loopback || g.MTU != w.MTU ||
			!slices.Equal(g.Inet, w.Inet) || !slices.Equal(g.Members, w.Members) || !slices.Equal(g.Groups, w.Groups) {
			t.Errorf("got  %+v\nwant %+v", g, w)
		}
	}
	m := mark("01234567")
	if up := m.uplinks(got); !slices.Equal(up, []string{"tun0"}) {
		t.Errorf("uplinks: %v", up)
	}
}

// What is ours is told by address: netstat cuts names off after eight characters.
func TestUsedBy(t *testing.T) {
	routes := parseNetstat(`Routing tables

Internet:
Destination        Gateway            Flags         Netif Expire
default            100.64.0.1         UGS            ice0
10.88.0.0/20       link#7             U          sb012345
10.88.0.1          link#2             UHS             lo0
10.99.0.0/16       100.64.0.9         UGS            ice0
127.0.0.1          link#2             UH              lo0
`)
	all := []ifInfo{
		{Name: "sb0123456789", Description: "satl:01234567:n:n1", Inet: []netip.Prefix{netip.MustParsePrefix("10.88.0.1/20")}},
		{Name: "satl9", Description: "satl:76543210:n:n1", Inet: []netip.Prefix{netip.MustParsePrefix("10.66.0.1/20")}},
	}
	want := []usedPrefix{
		{netip.MustParsePrefix("10.66.0.0/20"), "interface satl9"},
		{netip.MustParsePrefix("10.99.0.0/16"), "a route through interface ice0"},
		{netip.MustParsePrefix("127.0.0.1/32"), "a route through interface lo0"},
	}
	if got := mark("01234567").usedBy(all, routes); !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
}

// Names hold 15 characters and do not meet, whoever and whatever they are for.
func TestBSDNames(t *testing.T) {
	seen := make(map[string]string)
	take := func(name, whose string) {
		t.Helper()
		if len(name) > maxIfName || seen[name] != "" {
			t.Errorf("%s of %s: %d characters, also %s", name, whose, len(name), seen[name])
		}
		seen[name] = whose
	}
	for _, m := range []mark{"01234567", "fedcba98"} {
		if g := m.group(); len(g) > maxIfName || g[len(g)-1] >= '0' && g[len(g)-1] <= '9' {
			t.Errorf("group %s", g)
		}
		for _, id := range []string{"c", "c-2", "e0", "e"} {
			take(m.bridge(id, 0), string(m)+id)
			for _, inside := range []string{"eth0", "eth1", "th0"} {
				take(m.veth(id, inside), string(m)+id+inside+" outer")
				take(m.inner(id, inside), string(m)+id+inside+" inner")
			}
			for attempt := range makeAttempts {
				if u := m.unit(unfinished{For: id, As: "sv"}, attempt); u < 1000 || u > 32766 {
					t.Errorf("unit %d", u)
				}
			}
		}
	}
}

func FuzzParseIfconfig(f *testing.F) {
	f.Add("a: flags=1<UP> metric 0 mtu 1500\n\tinet 1.2.3.4 netmask 0xffffff00\n")
	f.Add("\tinet x netmask")
	f.Add("a: flags=\n\tinet 1.2.3.4 netmask 1 netmask\n\tdescription: \n\tmember: x\n\tgroups: a b")
	f.Fuzz(func(t *testing.T, text string) { parseIfconfig(text); parseNetstat(text) })
}
