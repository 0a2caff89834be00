// SPDX-License-Identifier: BSD-2-Clause

package nft

import (
	"net/netip"
	"strings"
	"testing"

	"satld/network/nettest"
	"satld/redirect"
)

// TestForeignTableUntouched: cases/pool.md, pool-5 and pool-10, for nftables.
func TestForeignTableUntouched(t *testing.T) {
	l := newLab(t)
	nft(t, `table ip foreign {
	set blocked {
		type ipv4_addr
		elements = { 203.0.113.1, 203.0.113.2 }
	}
	chain input {
		type filter hook input priority 0; policy accept;
		ip saddr @blocked counter drop
		tcp dport 18081 accept
	}
	chain pools {
	}
}
`)
	t.Cleanup(func() { nft(t, "delete table ip foreign\n") })
	before := ruleset(t, "foreign")
	for i := range 100 {
		if i%2 == 0 {
			l.apply(t, l.pool("tcp", l.addrA))
		} else {
			l.apply(t, l.pool("udp", l.addrB))
		}
	}
	nettest.Must(t, l.r.Clear(t.Context()))
	if after := ruleset(t, "foreign"); after != before || before == "" {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
}

func TestAuditSeesDrift(t *testing.T) {
	l := newLab(t)
	audit := func(what string, want bool) {
		t.Helper()
		if same, err := l.r.Audit(t.Context()); same != want || err != nil {
			t.Errorf("%s: %t, %v", what, same, err)
		}
	}
	audit("before any Apply", true)
	p := []redirect.Pool{l.pool("tcp", l.addrA, l.addrB), l.pool("udp")}
	p[1].HostIP = netip.MustParseAddr("192.0.2.1")
	table := l.r.table
	l.apply(t, p...)
	audit("after Apply", true)
	whole := ruleset(t, table)
	for what, change := range map[string]string{
		"everything flushed": "flush ruleset\n",
		"table flushed":      "flush table ip " + table + "\n",
		"table deleted":      "delete table ip " + table + "\n",
		"a rule added":       "add rule ip " + table + " forward drop\n",
		"a rule inserted":    "insert rule ip " + table + " pools tcp dport 18081 accept\n",
		"a chain added":      "add chain ip " + table + " x\nadd rule ip " + table + " x drop\n",
		"the policy changed": "add chain ip " + table + " forward { policy drop; }\n",
	} {
		nft(t, change)
		audit(what, false)
		nettest.Must(t, l.r.Apply(t.Context(), l.rules(p...)))
		if what == "a chain added" {
			// Not a chain of ours; emptied, so it does nothing.
			nft(t, "delete chain ip "+table+" x\n")
		}
		audit(what+", repaired", true)
		if now := ruleset(t, table); stripHandles(now) != stripHandles(whole) {
			t.Errorf("%s: repaired to\n%s", what, now)
		}
	}
	// A chain of ours that hangs elsewhere, as an older version might leave.
	nft(t, "delete table ip "+table+"\n")
	nft(t, "table ip "+table+" {\n chain forward { type filter hook forward priority 10; policy drop;\n }\n}\n")
	audit("elsewhere", false)
	nettest.Must(t, l.r.Apply(t.Context(), l.rules(p...)))
	audit("elsewhere, repaired", true)
	// Another daemon's table is not ours to judge.
	other, err := New(Config{Table: table + "b"})
	nettest.Must(t, err)
	nettest.Must(t, other.Apply(t.Context(), l.rules()))
	audit("another daemon's table", true)
	nettest.Must(t, other.Clear(t.Context()))
	nettest.Must(t, other.Clear(t.Context())) // twice is fine
	audit("another daemon left", true)
}

func stripHandles(s string) string {
	var out []string
	for line := range strings.Lines(s) {
		text, _, _ := strings.Cut(line, " # handle")
		out = append(out, strings.TrimRight(text, "\n"))
	}
	return strings.Join(out, "\n")
}

func TestForwardDropIsReported(t *testing.T) {
	l := newLab(t)
	l.apply(t)
	if w := l.r.Warnings(t.Context(), []string{"nf0"}); len(w) > 0 {
		t.Errorf("on a clean host: %v", w)
	}
	nft(t, "table ip filter {\n chain DOCKER-USER {\n }\n chain FORWARD { type filter hook forward priority 0; policy drop;\n jump DOCKER-USER\n }\n}\n")
	t.Cleanup(func() { nft(t, "delete table ip filter\n") })
	w := l.r.Warnings(t.Context(), []string{"nf0", "nf1"})
	if len(w) != 2 || !strings.Contains(w[0], "iptables -I DOCKER-USER -i nf0 -j ACCEPT") {
		t.Errorf("%v", w)
	}
	if got, err := l.b.Ask("tcp4", "192.0.2.9:80"); err == nil {
		t.Errorf("the drop that is warned about does not drop: %q", got)
	}
	nft(t, "add rule ip filter DOCKER-USER iifname \"nf0\" counter accept\nadd rule ip filter DOCKER-USER oifname \"nf0\" counter accept\n")
	if w := l.r.Warnings(t.Context(), []string{"nf0"}); len(w) > 0 {
		t.Errorf("after the operator let it pass: %v", w)
	}
	if got, err := l.b.Ask("tcp4", "192.0.2.9:80"); got != "r" {
		t.Errorf("after the operator let it pass: %q, %v", got, err)
	}
}
