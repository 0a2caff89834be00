// SPDX-License-Identifier: BSD-2-Clause

package fakefreebsd

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"satld/internal/fakefreebsd/world"
)

const pools = `table <satl_p8080_tcp_80> persist { 10.88.0.3, 10.88.0.2 }
table <satl_p53_udp_53> persist
no rdr on satl0 inet proto tcp from any to 10.88.0.1 port 53
rdr pass inet proto tcp from any to (self) port 8080 -> <satl_p8080_tcp_80> port 80 round-robin
rdr pass inet proto udp from any to 192.0.2.10 port 53 -> <satl_p53_udp_53> port 5353 round-robin
block return in quick inet proto tcp from any to (self) port 8081
`

func (h *host) loads(anchor, text string) {
	h.t.Helper()
	if r := h.run(text, "pfctl", "-a", anchor, "-f", "-"); r.exit != 0 {
		h.t.Fatalf("%+v", r)
	}
}

func TestPfctlPrintsRulesInItsOwnWords(t *testing.T) {
	h := newHost(t)
	h.loads("satl/rdr", pools)
	h.loads("satl/nat", "nat on vtnet0 inet from 10.88.0.0/20 to any -> (vtnet0)\n")
	for line, want := range map[string]string{
		"pfctl -a satl/nat -s nat": "nat on vtnet0 inet from 10.88.0.0/20 to any -> (vtnet0) round-robin\n",
		"pfctl -a satl/rdr -s nat -P": `no rdr on satl0 inet proto tcp from any to 10.88.0.1 port = 53
rdr pass inet proto tcp from any to (self) port = 8080 -> <satl_p8080_tcp_80> port 80 round-robin
rdr pass inet proto udp from any to 192.0.2.10 port = 53 -> <satl_p53_udp_53> port 5353 round-robin
`,
		"pfctl -a satl/rdr -sn": `no rdr on satl0 inet proto tcp from any to 10.88.0.1 port = domain
rdr pass inet proto tcp from any to (self) port = http-alt -> <satl_p8080_tcp_80> port 80 round-robin
rdr pass inet proto udp from any to 192.0.2.10 port = domain -> <satl_p53_udp_53> port 5353 round-robin
`,
		"pfctl -a satl/rdr -s rules":                     "block return in quick inet proto tcp from any to (self) port = 8081\n",
		"pfctl -a satl/rdr -t satl_p8080_tcp_80 -T show": "   10.88.0.2\n   10.88.0.3\n",
		"pfctl -a satl/rdr -s Tables":                    "satl_p53_udp_53\nsatl_p8080_tcp_80\n",
		"pfctl -s Anchors":                               "  satl\n",
		"pfctl -a satl -s Anchors":                       "  satl/nat\n  satl/rdr\n",
		"pfctl -s nat":                                   "nat-anchor \"satl/*\" all\nrdr-anchor \"satl/*\" all\n",
		"pfctl -t bruteforce -T show":                    "   192.0.2.66\n   198.51.100.0/24\n",
		"pfctl -s rules": `scrub in all fragment reassemble
anchor "satl/*" all
anchor "blacklistd/*" all
block drop in log quick from <bruteforce> to any
pass in quick proto tcp from any to any port = ssh flags S/SA keep state
pass out all flags S/SA keep state
`,
	} {
		if got := h.do(line); got != want {
			t.Errorf("%s:\n%swant\n%s", line, got, want)
		}
	}
}

func TestPfctlRefuses(t *testing.T) {
	h := newHost(t)
	for text, want := range map[string]string{
		"rdr pass inet proto tcp from any to any port 80 -> 10.0.0.1\nset skip on lo0\n":             "stdin:2: Rules must be in order",
		"block in quick all\nrdr pass inet proto tcp from any to any port 80 -> 10.0.0.1 port 80\n":  "stdin:2: Rules must be in order",
		"match in all scrub (max-mss 1400)\nnat on vtnet0 inet from 10.0.0.0/8 to any -> (vtnet0)\n": "stdin:2: Rules must be in order",
		"nat on $ext inet from 10.0.0.0/8 to any -> (vtnet0)\n":                                      "stdin:1: macro 'ext' not defined",
		"rdr pass inet from any to any port 80 -> 10.0.0.1\n":                                        "port only applies to tcp/udp/sctp",
		"table <" + strings.Repeat("x", 32) + "> persist\n":                                          "too long",
		"rdr pass inet proto tcp from any to any port 80\n":                                          "syntax error",
		"rdr pass inet proto tcp from any to any port 80 -> <t> port 80 random\n":                    "tables are only supported in round-robin",
		"rdr pass inet proto tcp from any to any port 99999 -> 10.0.0.1\n":                           "unknown port",
		"pass inn all\n": "syntax error",
		"rdr pass inet proto tcp from any to 10.0.0.300 port 80 -> 10.0.0.1\n": "could not parse host",
		"table <t> persist { 10.0.0.1, what? }\n":                              "could not parse host",
	} {
		for _, args := range [][]string{{"-a", "satl/rdr", "-nf", "-"}, {"-a", "satl/rdr", "-f", "-"}} {
			r := h.run(text, "pfctl", args...)
			if r.exit != 1 || !strings.Contains(r.err, want) || !strings.HasSuffix(r.err, "pfctl: Syntax error in config file: pf rules not loaded\n") {
				t.Errorf("%s%+v, want %q", text, r, want)
			}
		}
	}
	if _, ok := h.Anchor("satl/rdr"); ok {
		t.Error("what was refused was loaded")
	}
	if r := h.run(pools, "pfctl", "-a", "satl/rdr", "-nf", "-"); r.exit != 0 || r.err != "" {
		t.Errorf("%+v", r)
	}
	if _, ok := h.Anchor("satl/rdr"); ok {
		t.Error("-n loads")
	}
	h.refused("usage: pfctl", "pfctl -a satl/rdr -t "+strings.Repeat("x", 32)+" -T replace 10.0.0.1")
	h.Knobs(func(k *world.Knobs) { k.NoPF = true })
	h.refused("pfctl: Failed to open netlink: No such file or directory", "pfctl -s nat")
}

func TestPfctlTablesAndAnchors(t *testing.T) {
	h := newHost(t)
	h.Knobs(func(k *world.Knobs) { k.Release = 14 })
	if r := h.run("", "pfctl", "-a", "satl/rdr", "-s", "nat"); r.exit != 0 || r.out != "" || r.err != "pfctl: DIOCGETRULES: Invalid argument\n" {
		t.Errorf("%+v: an anchor that was never loaded", r)
	}
	h.Knobs(func(k *world.Knobs) { k.Release = 15 })
	h.refused("pfctl: Anchor does not exist.", "pfctl -a satl/rdr -s nat")
	h.refused("pfctl: Table does not exist.", "pfctl -a satl/rdr -t satl_p8080_tcp_80 -T show")
	h.loads("satl/rdr", pools)
	for _, step := range [][2]string{
		{"10.88.0.2 10.88.0.4", "1 addresses added.\n1 addresses deleted.\n"},
		{"", "2 addresses deleted.\n"},
		{"", "no changes.\n"}, // an empty table is no error
	} {
		args := append([]string{"-a", "satl/rdr", "-t", "satl_p8080_tcp_80", "-T", "replace"}, strings.Fields(step[0])...)
		if r := h.run("", "pfctl", args...); r.exit != 0 || r.err != step[1] {
			t.Errorf("replace with %q: %+v", step[0], r)
		}
	}
	// A table that is not declared again stays, as it is to persist.
	h.loads("satl/rdr", "rdr pass inet proto tcp from any to (self) port 80 -> 10.88.0.9 port 80\n")
	if got := h.do("pfctl -a satl/rdr -s Tables"); got != "satl_p53_udp_53\nsatl_p8080_tcp_80\n" {
		t.Errorf("%q", got)
	}
	h.do("pfctl -a satl/rdr -t satl_p53_udp_53 -T kill")
	h.do("pfctl -a satl/rdr -F all")
	if got := h.do("pfctl -s Anchors"); got != "" || len(h.Leftovers()) > 0 {
		t.Errorf("%q: an empty anchor is gone", got)
	}
	if main := h.World().PF.Main; main != MainRuleset {
		t.Errorf("the host's rules: %s", main)
	}
}

func TestFlowsThroughPools(t *testing.T) {
	h := newHost(t)
	h.loads("satl/rdr", pools)
	member := func(proto, from, to string) netip.AddrPort { t.Helper(); return h.Packet(proto, from, to).Backend }
	a, b := member("tcp", "203.0.113.7:1000", "192.0.2.10:8080"), member("tcp", "203.0.113.7:1001", "192.0.2.10:8080")
	if a == b || a.Port() != 80 || b.Port() != 80 {
		t.Errorf("%v and %v: in turns", a, b)
	}
	if got := member("tcp", "203.0.113.7:1000", "192.0.2.10:8080"); got != a {
		t.Errorf("%v: a flow keeps its member", got)
	}
	if v := h.Packet("tcp", "203.0.113.7:1002", "192.0.2.10:8081"); !v.Refused {
		t.Errorf("%+v: nobody is there", v)
	}
	if v := h.Packet("udp", "203.0.113.7:1003", "192.0.2.10:53"); !v.Dropped {
		t.Errorf("%+v: an empty table drops", v)
	}
	if v := h.Packet("tcp", "192.0.2.10:1004", "192.0.2.10:8080"); v.Backend.IsValid() {
		t.Errorf("%+v: rdr does not see what the host sends itself", v)
	}
	h.Sysctl("net.pf.filter_local", "1")
	if v := h.Packet("tcp", "192.0.2.10:1005", "192.0.2.10:8080"); !v.Backend.IsValid() {
		t.Errorf("%+v: with filter_local it does", v)
	}
	if v := h.Packet("tcp", "127.0.0.1:1006", "127.0.0.1:8080"); v.Backend.IsValid() {
		t.Errorf("%+v: never to 127.0.0.1", v)
	}
	if n := len(h.States("203.0.113.7")); n != 4 {
		t.Errorf("%d states, a redirected flow has two", n)
	}
}

// What the facts measured: a UDP flow follows its state, not the table, and
// only the end of its inbound state turns it.
func TestUDPStaysWithItsStateUntilThatIsKilledByID(t *testing.T) {
	h := newHost(t)
	h.loads("satl/rdr", pools)
	table := "pfctl -a satl/rdr -t satl_p53_udp_53 -T replace "
	h.do(table + "10.88.0.2")
	send := func() string { return h.Packet("udp", "203.0.113.7:4445", "192.0.2.10:53").Backend.String() }
	send()
	h.do(table + "10.88.0.3")
	if got := send(); got != "10.88.0.2:5353" {
		t.Errorf("%s", got)
	}
	sample(t, "states.txt", h.do("pfctl -ss -vv"))
	h.do("pfctl -k 0.0.0.0/0 -k 10.88.0.2")
	if states := h.States("10.88.0.2"); len(states) != 1 || !states[0].In {
		t.Errorf("%+v: only the outbound one goes", states)
	}
	if got := send(); got != "10.88.0.2:5353" || len(h.States("10.88.0.2")) != 2 {
		t.Errorf("%s: and the next packet makes it anew", got)
	}
	at := slices.IndexFunc(h.States("10.88.0.2"), world.State.Redirected)
	h.do("pfctl -k id -k " + h.States("10.88.0.2")[at].ID)
	if got := send(); got != "10.88.0.3:5353" {
		t.Errorf("%s", got)
	}
}
