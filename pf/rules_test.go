// SPDX-License-Identifier: BSD-2-Clause

package pf

import (
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"satld/redirect"
)

var update = flag.Bool("update", false, "write the golden files anew")

func ports(list ...string) (out []netip.AddrPort) {
	for _, s := range list {
		out = append(out, netip.MustParseAddrPort(s))
	}
	return out
}

var (
	front    = redirect.Subnet{Bridge: "satl0", Prefix: netip.MustParsePrefix("10.88.0.0/20")}
	back     = redirect.Subnet{Bridge: "sb0123456789", Prefix: netip.MustParsePrefix("10.88.16.0/20")}
	internal = redirect.Subnet{Bridge: "sb9876543210", Prefix: netip.MustParsePrefix("10.88.32.0/20"), Internal: true}
	// Networks that are on other nodes too; the first address is another's.
	across = redirect.Subnet{Bridge: "sbaaaaaaaaaa", Prefix: netip.MustParsePrefix("10.0.1.0/24"), Own: netip.MustParseAddr("10.0.1.7"), Overlay: true}
	closed = redirect.Subnet{Bridge: "sbbbbbbbbbbb", Prefix: netip.MustParsePrefix("10.0.2.0/24"), Own: netip.MustParseAddr("10.0.2.7"), Overlay: true, Internal: true}
	here   = place{group: "satl01234567g", uplinks: []string{"vtnet0"}}
	wide   = place{group: "satl01234567g", uplinks: []string{"ice0", "vtnet0.7"}, local: true}
)

func web(members ...string) redirect.Pool {
	return redirect.Pool{Proto: "tcp", Published: 8080, Target: 80, Members: ports(members...)}
}

func TestGolden(t *testing.T) {
	hostIP := netip.MustParseAddr("192.0.2.1")
	pools := []redirect.Pool{
		web("10.88.0.3:80", "10.88.0.2:80"),
		{Proto: "udp", Published: 53, Members: ports("10.88.0.5:5353")},
		{Proto: "tcp", Published: 8081, Target: 81},
		{Proto: "tcp", Published: 8082, Members: ports("10.88.0.2:80", "10.88.0.3:81", "10.88.0.4:81")},
		{Proto: "tcp", HostIP: hostIP, Published: 8080, Members: ports("10.88.0.9:80")},
		{Proto: "tcp", HostIP: netip.MustParseAddr("127.0.0.1"), Published: 9000, Members: ports("10.88.0.9:80")},
	}
	for name, c := range map[string]struct {
		rules redirect.Rules
		at    place
	}{
		"nothing":  {redirect.Rules{}, here},
		"one":      {redirect.Rules{Subnets: []redirect.Subnet{front}, Pools: pools[:1]}, here},
		"pools":    {redirect.Rules{Subnets: []redirect.Subnet{front, back, internal}, Pools: pools}, here},
		"overlay":  {redirect.Rules{Subnets: []redirect.Subnet{front, across, closed}, Pools: []redirect.Pool{web("10.0.1.20:80", "10.0.1.21:80")}}, here},
		"local":    {redirect.Rules{Subnets: []redirect.Subnet{front}, Pools: pools[:1]}, wide},
		"stranded": {redirect.Rules{Subnets: []redirect.Subnet{front, internal}}, place{group: "satl01234567g"}},
	} {
		got := "# satl/nat\n" + natText(c.rules, c.at) + "# satl/rdr\n" + rdrText(c.rules, c.at, true)
		path := filepath.Join("testdata", name+".conf")
		if *update {
			if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if got != string(want) {
			t.Errorf("%s (go test -update writes it anew):\n%s", path, got)
		}
	}
}

var someRules = rapid.Custom(func(t *rapid.T) redirect.Rules {
	member := rapid.Custom(func(t *rapid.T) netip.AddrPort {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 88, 0, byte(rapid.IntRange(2, 6).Draw(t, "addr"))}), uint16(rapid.IntRange(80, 81).Draw(t, "port")))
	})
	pool := rapid.Custom(func(t *rapid.T) redirect.Pool {
		return redirect.Pool{
			Proto:     rapid.SampledFrom([]string{"tcp", "udp"}).Draw(t, "proto"),
			HostIP:    rapid.SampledFrom([]netip.Addr{{}, netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("127.0.0.1")}).Draw(t, "host"),
			Published: uint16(rapid.IntRange(8080, 8082).Draw(t, "published")),
			Members:   rapid.SliceOfN(member, 0, 4).Draw(t, "members"),
			Target:    80,
		}
	})
	subnets := rapid.SampledFrom([][]redirect.Subnet{nil, {front}, {front, back}, {front, back, internal}, {front, across, closed}}).Draw(t, "subnets")
	return redirect.Rules{Pools: rapid.SliceOfN(pool, 0, 6).Draw(t, "pools"), Subnets: subnets}.Normalise()
})

var rdrRule = regexp.MustCompile(`^rdr pass .* to (\S+) port (\d+) .*-> <(\S+)> port \d+ round-robin$`)

// One rule for each address, port and protocol, each with its table; the order
// is pf's; what is published on one address goes before what is on every one;
// and members are in no line but the tables'.
func TestRulesText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := someRules.Draw(t, "rules")
		at := rapid.SampledFrom([]place{here, wide}).Draw(t, "place")
		seen, part, any := map[string]bool{}, 0, map[string]bool{}
		for line := range strings.Lines(rdrText(r, at, true)) {
			line = strings.TrimSpace(line)
			kind := map[string]int{"table": 0, "no": 1, "rdr": 1, "block": 2, "pass": 2}[strings.Fields(line)[0]]
			if kind < part {
				t.Fatalf("out of order: %s", line)
			}
			part = kind
			m := rdrRule.FindStringSubmatch(line)
			if strings.HasPrefix(line, "rdr") && m == nil {
				t.Fatalf("not a rule of a pool: %s", line)
			}
			if m == nil {
				continue
			}
			proto := strings.Fields(strings.SplitAfter(line, "proto ")[1])[0]
			key := proto + " " + m[1] + " " + m[2]
			if seen[key] {
				t.Fatalf("two rules: %s", line)
			}
			seen[key] = true
			if m[1] == "(self)" {
				any[proto+m[2]] = true
			} else if any[proto+m[2]] {
				t.Fatalf("the pool of every address wins: %s", line)
			}
			if strings.Contains(line, "127.0.0.1") {
				t.Fatalf("reachable from outside: %s", line)
			}
		}
		for _, p := range r.Pools {
			key := p.Proto + " (self) " + itoa(p.Published)
			if !p.Key().Any() {
				key = p.Proto + " " + p.HostIP.String() + " " + itoa(p.Published)
			}
			if seen[key] == p.HostIP.IsLoopback() {
				t.Fatalf("%s: rule %t", key, seen[key])
			}
		}
	})
}

func itoa(p uint16) string {
	return netip.AddrPortFrom(netip.IPv4Unspecified(), p).String()[len("0.0.0.0:"):]
}

func TestCheck(t *testing.T) {
	for _, r := range []redirect.Rules{
		{Pools: []redirect.Pool{{Proto: "icmp", Published: 1}}},
		{Pools: []redirect.Pool{web("[2001:db8::1]:80")}},
		{Pools: []redirect.Pool{web("10.0.0.1:0")}},
		{Pools: []redirect.Pool{{Proto: "tcp", HostIP: netip.MustParseAddr("2001:db8::1"), Published: 1}}},
		{Subnets: []redirect.Subnet{{Bridge: "a b", Prefix: front.Prefix}}},
		{Subnets: []redirect.Subnet{{Bridge: "7up", Prefix: front.Prefix}}},
		{Subnets: []redirect.Subnet{{Bridge: "satl0"}}},
	} {
		if check(r) == nil {
			t.Errorf("%+v passes", r)
		}
	}
	longest := redirect.Pool{Proto: "sctp", HostIP: netip.MustParseAddr("255.255.255.255"), Published: 65535, Members: ports("10.0.0.1:65535")}
	r := redirect.Rules{Pools: []redirect.Pool{longest}, Subnets: []redirect.Subnet{front, back, internal}}
	if err := check(r); err != nil {
		t.Error(err)
	}
	for _, word := range strings.FieldsFunc(rdrText(r, here, true), func(c rune) bool { return strings.ContainsRune("<> \n", c) }) {
		if strings.HasPrefix(word, "satl_") && len(word) > maxTable {
			t.Errorf("table %s has %d characters", word, len(word))
		}
	}
}
