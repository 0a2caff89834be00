// SPDX-License-Identifier: BSD-2-Clause

package pf

import (
	"context"
	"errors"
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

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
	internal = redirect.Subnet{Bridge: "sb9876543210", Prefix: netip.MustParsePrefix("10.88.32.0/20"), Internal: true}
	where    = anchors{nat: "satl/nat", rdr: "satl/rdr", egress: "vtnet0"}
)

func web(members ...string) redirect.Pool {
	return redirect.Pool{Proto: "tcp", Published: 8080, Members: ports(members...)}
}

func TestGolden(t *testing.T) {
	hostIP := netip.MustParseAddr("192.0.2.1")
	for name, r := range map[string]redirect.Rules{
		"nothing": {},
		"pools": {Subnets: []redirect.Subnet{internal, front}, Pools: []redirect.Pool{
			web("10.88.0.3:80", "10.88.0.2:80"),
			{Proto: "udp", Published: 53, Members: ports("10.88.0.5:5353")},
			{Proto: "tcp", Published: 8081},
			{Proto: "tcp", Published: 8082, Members: ports("10.88.0.2:80", "10.88.0.3:81", "10.88.0.4:81")},
			{Proto: "tcp", HostIP: hostIP, Published: 8080, Members: ports("10.88.0.9:80")},
		}},
	} {
		got := "# satl/nat\n" + natText(r, "vtnet0") + "# satl/rdr\n" + rdrText(r, true)
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

func TestCommands(t *testing.T) {
	rules := func(p ...redirect.Pool) redirect.Rules {
		return redirect.Rules{Pools: p, Subnets: []redirect.Subnet{front}}
	}
	a := rules(web("10.88.0.2:80"))
	text := func(cs []command) string {
		var b strings.Builder
		for _, c := range cs {
			b.WriteString(strings.Join(c.args, " ") + "\n")
		}
		return b.String()
	}
	for i, c := range []struct {
		old   *redirect.Rules
		now   redirect.Rules
		force bool
		want  string
	}{
		{nil, a, false, "-a satl/nat -f -\n-a satl/rdr -f -\n"},
		{&a, a, false, ""},
		{&a, a, true, "-a satl/nat -f -\n-a satl/rdr -f -\n"},
		{&a, rules(web("10.88.0.2:80", "10.88.0.3:80")), false, "-a satl/rdr -t satl_p8080_tcp_80 -T replace 10.88.0.2 10.88.0.3\n"},
		{&a, rules(web("10.88.0.2:81")), false, "-a satl/rdr -f -\n"}, // another target port
		{&a, rules(web()), false, "-a satl/rdr -f -\n"},               // refuses now
		{&a, rules(), false, "-a satl/rdr -f -\n"},
		{&a, redirect.Rules{Pools: a.Pools, Subnets: []redirect.Subnet{front, internal}}, false, "-a satl/rdr -f -\n"}, // its DNS; no way out
	} {
		if got := text(commands(where, c.old, c.now, c.force)); got != c.want {
			t.Errorf("row %d:\n%swant:\n%s", i, got, c.want)
		}
	}
	for _, c := range commands(where, nil, a, false) {
		if c.args[0] != "-a" || !strings.HasPrefix(c.args[1], "satl/") {
			t.Errorf("outside our anchors: %v", c.args)
		}
	}
}

func TestStates(t *testing.T) {
	states := parseStates(`all udp 10.89.0.2:5300 (10.89.0.1:5300) <- 10.89.0.4:4445       MULTIPLE:SINGLE
   age 00:00:03, expires in 00:00:27, 3:0 pkts, 87:0 bytes, rule 1
   id: a48e0c6b00000001 creatorid: 5242698a
all udp 10.89.0.4:4445 -> 10.89.0.2:5300       SINGLE:MULTIPLE
   age 00:00:03, expires in 00:00:27, 3:0 pkts, 87:0 bytes
   id: a48e0c6b00000002 creatorid: 5242698a
all tcp 10.89.0.2:80 (192.0.2.1:8080) <- 198.51.100.7:51000       ESTABLISHED:ESTABLISHED
   [0 + 1] wscale 6  [0 + 1] wscale 6
   id: a48e0c6b00000003 creatorid: 5242698a gateway: 0.0.0.0
all tcp 10.89.0.2:80 (192.0.2.1:8080) <- 198.51.100.7:51001       CLOSED:SYN_SENT
   id: a48e0c6b00000004 creatorid: 5242698a
all tcp 192.0.2.1:22 <- 198.51.100.7:51002       ESTABLISHED:ESTABLISHED
   id: a48e0c6b00000005 creatorid: 5242698a
`)
	if len(states) != 3 || states[0].id != "a48e0c6b00000001" || states[0].backend.String() != "10.89.0.2:5300" || states[0].dialled.String() != "10.89.0.1:5300" || !states[2].halfOpen {
		t.Fatalf("%+v", states)
	}
	subnets := []redirect.Subnet{{Prefix: netip.MustParsePrefix("10.89.0.0/24")}}
	udp := redirect.Flow{Proto: "udp", Published: 5300}
	tcp := redirect.Flow{Proto: "tcp", Published: 8080}
	gone := redirect.Flow{Proto: "tcp", Published: 8080, Backend: ports("10.89.0.2:80")[0], All: true}
	for i, c := range []struct {
		flow redirect.Flow
		keep string
		want string
	}{
		{udp, "", "a48e0c6b00000001"},
		{udp, "10.89.0.2:5300", ""},
		{tcp, "", "a48e0c6b00000004"},
		{tcp, "10.89.0.2:80", ""},
		{gone, "", "a48e0c6b00000003 a48e0c6b00000004"},
		{redirect.Flow{Proto: "udp", HostIP: netip.MustParseAddr("192.0.2.1"), Published: 5300}, "", ""},
	} {
		if c.keep != "" {
			c.flow.Keep = ports(c.keep)
		}
		if got := strings.Join(kills(states, []redirect.Flow{c.flow}, subnets), " "); got != c.want {
			t.Errorf("row %d: %s", i, got)
		}
	}
}

func FuzzParseStates(f *testing.F) {
	f.Add("all udp 10.89.0.2:5300 (10.89.0.1:5300) <- 10.89.0.4:4445 A:B\n   id: 1 creatorid: 2\n")
	f.Fuzz(func(t *testing.T, text string) { parseStates(text); egressOf(text); missingHooks(text, text) })
}

// host is a FreeBSD in memory, as far as the commands go.
type host struct {
	calls []string
	out   map[string]string
	fail  string
}

func (h *host) run(_ context.Context, _ string, argv ...string) (string, error) {
	c := strings.Join(argv, " ")
	h.calls = append(h.calls, c)
	if h.fail != "" && strings.Contains(c, h.fail) {
		return "", errors.New(c + ": exit status 1")
	}
	return h.out[c], nil
}

func newHost() *host {
	return &host{out: map[string]string{
		"route -n get default": "   route to: 0.0.0.0\n    gateway: 100.64.0.1\n  interface: ice0\n",
		"pfctl -s nat":         "nat-anchor \"satl/*\" all\nrdr-anchor \"satl/*\" all\n",
		"pfctl -s rules":       "anchor \"satl/*\" all\n",
	}}
}

func TestNewWantsTheHooks(t *testing.T) {
	h := newHost()
	r, err := newWith(t.Context(), Config{}, h.run)
	if err != nil || r.anchors.egress != "ice0" {
		t.Fatalf("%+v, %v", r, err)
	}
	h.out["pfctl -s nat"] = "nat-anchor \"satl/*\" all\n"
	h.out["pfctl -s rules"] = "block all\n"
	if _, err := newWith(t.Context(), Config{}, h.run); err == nil || !strings.Contains(err.Error(), `rdr-anchor "satl/*"; anchor "satl/*"`) {
		t.Errorf("%v", err)
	}
	h.out["route -n get default"] = ""
	if _, err := newWith(t.Context(), Config{}, h.run); err == nil {
		t.Error("without a way out")
	}
}

func TestApplyAndAudit(t *testing.T) {
	h := newHost()
	r, err := newWith(t.Context(), Config{Suffix: "b"}, h.run)
	if err != nil {
		t.Fatal(err)
	}
	rules := redirect.Rules{Pools: []redirect.Pool{web("10.88.0.2:80", "10.88.0.3:80")}, Subnets: []redirect.Subnet{front}}
	h.calls = nil
	if err := r.Apply(t.Context(), rules); err != nil {
		t.Fatal(err)
	}
	for _, c := range h.calls {
		if !strings.HasPrefix(c, "pfctl -a satl/") || !strings.Contains(c, "_b ") {
			t.Errorf("outside our anchors: %s", c)
		}
	}
	audit := func(want bool) {
		t.Helper()
		if same, err := r.Audit(t.Context()); same != want || err != nil {
			t.Errorf("%t, %v", same, err)
		}
	}
	table := "pfctl -a satl/rdr_b -t satl_p8080_tcp_80 -T show"
	h.out[table] = "   10.88.0.3\n   10.88.0.2\n"
	audit(true)
	h.out[table] = "   10.88.0.3\n"
	audit(false)
	h.out[table] = "   10.88.0.3\n   10.88.0.2\n"
	h.out["pfctl -a satl/rdr_b -P -s nat"] = "rdr something else\n"
	audit(false)
	// A failed write is unknown, so the next one writes everything.
	h.fail = "-T replace"
	rules.Pools = []redirect.Pool{web("10.88.0.2:80")}
	if err := r.Apply(t.Context(), rules); err == nil {
		t.Error("a failure is swallowed")
	}
	h.fail, h.calls = "", nil
	if err := r.Apply(t.Context(), rules); err != nil || !slices.Contains(h.calls, "pfctl -a satl/rdr_b -f -") {
		t.Errorf("%v, %v", h.calls, err)
	}
	h.out["pfctl -ss -vv"] = "all udp 10.88.0.3:80 (192.0.2.1:8080) <- 192.0.2.9:1 SINGLE:SINGLE\n   id: 7 creatorid: 8\n"
	if err := r.Cut(t.Context(), []redirect.Flow{{Proto: "udp", Published: 8080}}); err != nil || h.calls[len(h.calls)-1] != "pfctl -k id -k 7" {
		t.Errorf("%v, %v", h.calls, err)
	}
	if err := r.Clear(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestCheck(t *testing.T) {
	for _, p := range []redirect.Pool{
		{Proto: "icmp", Published: 1}, web("[2001:db8::1]:80"), web("10.0.0.1:0"),
		{Proto: "tcp", HostIP: netip.MustParseAddr("2001:db8::1"), Published: 1},
	} {
		if check(redirect.Rules{Pools: []redirect.Pool{p}}) == nil {
			t.Errorf("%+v passes", p)
		}
	}
	longest := redirect.Pool{Proto: "sctp", HostIP: netip.MustParseAddr("255.255.255.255"), Published: 65535, Members: ports("10.0.0.1:65535")}
	if err := check(redirect.Rules{Pools: []redirect.Pool{longest}}); err != nil {
		t.Error(err)
	}
}
