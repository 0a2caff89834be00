// SPDX-License-Identifier: BSD-2-Clause

package network

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func TestBridgeCommands(t *testing.T) {
	n := Network{ID: "n1", Bridge: "satl0", Subnet: netip.MustParsePrefix("10.88.0.0/20"), Gateway: netip.MustParseAddr("10.88.0.1")}
	check(t, bridgeCommands("01234567", n, false), `
ifconfig bridge create name satl0
ifconfig satl0 group satl01234567g description satl:01234567:n:n1
ifconfig satl0 inet 10.88.0.1/20 up`)
	if again := bridgeCommands("01234567", n, true); len(again) != 2 {
		t.Errorf("adopting makes: %v", again)
	}
}

func TestEpairCommands(t *testing.T) {
	w := wire{Bridge: "satl0", Default: true, Attachment: Attachment{
		Addr: netip.MustParsePrefix("10.88.0.2/20"), Gateway: netip.MustParseAddr("10.88.0.1"), MAC: "02:42:0a:58:00:02", Interface: "eth0"}}
	got, err := epairCommands("01234567", "cid", "epair3a", w)
	if err != nil {
		t.Fatal(err)
	}
	check(t, got, `
ifconfig epair3a group satl01234567g description satl:01234567:c:cid
ifconfig epair3b ether 02:42:0a:58:00:02
ifconfig satl0 addm epair3a
ifconfig epair3a up
ifconfig epair3b vnet cid
ifconfig -j cid lo0 up
ifconfig -j cid epair3b name eth0
ifconfig -j cid eth0 inet 10.88.0.2/20 up
route -j cid add default 10.88.0.1`)
	for _, bad := range []string{"", "epair3b", "vtnet0a"} {
		if _, err := epairCommands("01234567", "cid", bad, w); err == nil {
			t.Errorf("%q taken for a pair", bad)
		}
	}
}

func check(t *testing.T, got [][]string, want string) {
	t.Helper()
	var lines []string
	for _, c := range got {
		lines = append(lines, strings.Join(c, " "))
	}
	if g := strings.Join(lines, "\n"); g != strings.TrimSpace(want) {
		t.Errorf("got:\n%s\nwant:%s", g, want)
	}
}

// The text is what ifconfig(8) printed on a FreeBSD 15.1 host.
func TestParseIfconfig(t *testing.T) {
	got := parseIfconfig("satlnt-br0: flags=1008843<UP,BROADCAST,RUNNING,SIMPLEX,MULTICAST,LOWER_UP> metric 0 mtu 1500\n" +
		"\tdescription: satl:01234567:n:n1\n" +
		"\toptions=10<VLAN_HWTAGGING>\n" +
		"\tether 58:9c:fc:10:c5:b8\n" +
		"\tinet 10.77.77.1 netmask 0xffffff00 broadcast 10.77.77.255\n" +
		"\tbridge flags=0<>\n" +
		"\tmember: epair0a flags=143<LEARNING,DISCOVER,AUTOEDGE,AUTOPTP>\n" +
		"\t        port 5 priority 128 path cost 2000 vlan protocol 802.1q\n" +
		"\tgroups: bridge satlnt\n" +
		"lo0: flags=8049<UP,LOOPBACK,RUNNING,MULTICAST> metric 0 mtu 16384\n" +
		"\tinet6 ::1 prefixlen 128\n")
	if len(got) != 2 || got[1].Name != "lo0" || len(got[1].Inet) != 0 {
		t.Fatalf("%+v", got)
	}
	b := got[0]
	if b.Name != "satlnt-br0" || b.Description != "satl:01234567:n:n1" || !slices.Equal(b.Inet, []netip.Prefix{netip.MustParsePrefix("10.77.77.1/24")}) ||
		!slices.Equal(b.Members, []string{"epair0a"}) || !slices.Equal(b.Groups, []string{"bridge", "satlnt"}) {
		t.Errorf("%+v", b)
	}
}

func TestParseNetstat(t *testing.T) {
	got := parseNetstat(`Routing tables

Internet:
Destination        Gateway            Flags         Netif Expire
default            100.64.0.1         UGS            ice0
10.88.0.0/20       link#7             U             satl0
10.88.0.1          link#2             UHS             lo0
`)
	want := []usedPrefix{{netip.MustParsePrefix("10.88.0.0/20"), "satl0"}, {netip.MustParsePrefix("10.88.0.1/32"), "lo0"}}
	if !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
}

func FuzzParseIfconfig(f *testing.F) {
	f.Add("a: flags=1\n\tinet 1.2.3.4 netmask 0xffffff00\n")
	f.Add("\tinet x netmask")
	f.Fuzz(func(t *testing.T, text string) { parseIfconfig(text); parseNetstat(text) })
}
