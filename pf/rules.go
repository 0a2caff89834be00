// SPDX-License-Identifier: BSD-2-Clause

package pf

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"satld/redirect"
)

// maxTable is how long a table's name may be (pf.conf(5), TABLES).
const maxTable = 31

// pool is one published port as pf holds it: a table of addresses and a rule
// whose text does not depend on them. pf translates to one port only; of
// members on several, those on the most common one are used (the smaller on a
// tie), which happens only while an update changes the target port.
type pool struct {
	redirect.Pool
	target uint16 // 0: nobody, connections are refused
	addrs  []netip.Addr
}

func newPool(p redirect.Pool) pool {
	count := make(map[uint16]int)
	for _, m := range p.Members {
		count[m.Port()]++
	}
	out := pool{Pool: p}
	for port, n := range count {
		if d := cmp.Or(cmp.Compare(n, count[out.target]), -cmp.Compare(port, out.target)); out.target == 0 || d > 0 {
			out.target = port
		}
	}
	for _, m := range p.Members {
		if m.Port() == out.target {
			out.addrs = append(out.addrs, m.Addr())
		}
	}
	return out
}

// table names the pool's table: satl_p8080_tcp_80, with the host's address in
// hexadecimal where the port is published on one only.
func (p pool) table() string {
	name := fmt.Sprintf("satl_p%d_%s_%d", p.Published, p.Proto, p.target)
	if !p.Key().Any() {
		name = fmt.Sprintf("satl_%x_%d_%s_%d", p.HostIP.As4(), p.Published, p.Proto, p.target)
	}
	return name
}

// to is the destination that the pool's rule selects: the host's addresses as
// they are at each packet (pf.conf(5), "self" in parentheses). With "any" a
// task's own connection to that port of somebody else would be caught too.
func (p pool) to() string {
	if p.Key().Any() {
		return "(self)"
	}
	return p.HostIP.String()
}

// poolsOf puts pools of one address before those of every address: the first
// translation rule that matches wins.
func poolsOf(r redirect.Rules) []pool {
	var out []pool
	for _, p := range r.Normalise().Pools {
		out = append(out, newPool(p))
	}
	slices.SortStableFunc(out, func(a, b pool) int {
		any := func(p pool) int {
			if p.Key().Any() {
				return 1
			}
			return 0
		}
		return cmp.Compare(any(a), any(b))
	})
	return out
}

// rdrText is the whole of the anchor satl/rdr, in pf.conf(5)'s order: tables,
// translation, filter. With members the tables hold them, so that loading it is
// one step; without, it is what the rules look like whoever is in.
func rdrText(r redirect.Rules, members bool) string {
	var tables, translation, filter strings.Builder
	for _, s := range r.Normalise().Subnets {
		// A task's questions to its gateway are for our DNS.
		for _, proto := range []string{"tcp", "udp"} {
			fmt.Fprintf(&translation, "no rdr on %s inet proto %s from any to %s port 53\n", s.Bridge, proto, s.Gateway())
		}
	}
	for _, p := range poolsOf(r) {
		if p.target == 0 {
			// rdr to an empty table drops; this refuses.
			fmt.Fprintf(&translation, "no rdr inet proto %s from any to %s port %d\n", p.Proto, p.to(), p.Published)
			fmt.Fprintf(&filter, "block return in quick inet proto %s from any to %s port %d\n", p.Proto, p.to(), p.Published)
			continue
		}
		fmt.Fprintf(&tables, "table <%s> persist", p.table())
		if members {
			fmt.Fprintf(&tables, " { %s }", join(p.addrs, ", "))
		}
		tables.WriteString("\n")
		fmt.Fprintf(&translation, "rdr pass inet proto %s from any to %s port %d -> <%s> port %d round-robin\n", p.Proto, p.to(), p.Published, p.table(), p.target)
	}
	return tables.String() + translation.String() + filter.String()
}

// natText is the whole of the anchor satl/nat.
func natText(r redirect.Rules, egress string) string {
	var b strings.Builder
	for _, s := range r.Normalise().Subnets {
		if !s.Internal {
			fmt.Fprintf(&b, "nat on %s inet from %s to any -> (%s)\n", egress, s.Prefix, egress)
		}
	}
	return b.String()
}

func join(addrs []netip.Addr, sep string) string {
	parts := make([]string, len(addrs))
	for i, a := range addrs {
		parts[i] = a.String()
	}
	return strings.Join(parts, sep)
}

// command is one call of pfctl(8).
type command struct {
	args  []string
	stdin string
}

// commands bring the anchors from what was written last (nil: unknown) to what
// is wanted: the whole text where it changed, else only the tables whose
// members did. force writes everything.
func commands(a anchors, old *redirect.Rules, now redirect.Rules, force bool) (out []command) {
	load := func(anchor, text string) {
		out = append(out, command{args: []string{"-a", anchor, "-f", "-"}, stdin: text})
	}
	if force || old == nil || natText(*old, a.egress) != natText(now, a.egress) {
		load(a.nat, natText(now, a.egress))
	}
	if force || old == nil || rdrText(*old, false) != rdrText(now, false) {
		load(a.rdr, rdrText(now, true))
		return out
	}
	before := make(map[string]string)
	for _, p := range poolsOf(*old) {
		before[p.table()] = join(p.addrs, " ")
	}
	for _, p := range poolsOf(now) {
		if p.target == 0 || before[p.table()] == join(p.addrs, " ") {
			continue
		}
		args := []string{"-a", a.rdr, "-t", p.table(), "-T", "replace"}
		for _, m := range p.addrs {
			args = append(args, m.String())
		}
		out = append(out, command{args: args})
	}
	return out
}

// anchors are where a daemon writes, and the interface that leads out.
type anchors struct{ nat, rdr, egress string }

// hooks are the lines that the operator's pf.conf must have, in this order.
var hooks = []string{`nat-anchor "satl/*"`, `rdr-anchor "satl/*"`, `anchor "satl/*"`}

// missingHooks finds which of them the main ruleset lacks, out of what
// `pfctl -s nat` and `pfctl -s rules` print.
func missingHooks(nat, rules string) (missing []string) {
	for i, h := range hooks {
		text := nat
		if i == 2 {
			text = rules
		}
		found := false
		for line := range strings.Lines(text) {
			found = found || strings.HasPrefix(strings.TrimSpace(line), h)
		}
		if !found {
			missing = append(missing, h)
		}
	}
	return missing
}

// egressOf reads the interface out of `route -n get default`.
func egressOf(text string) (string, bool) {
	for line := range strings.Lines(text) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "interface: "); ok {
			return name, true
		}
	}
	return "", false
}

// check refuses rules that the anchors cannot hold.
func check(r redirect.Rules) error {
	for _, p := range poolsOf(r) {
		switch {
		case p.Proto != "tcp" && p.Proto != "udp" && p.Proto != "sctp":
			return fmt.Errorf("pool %s: unknown protocol %q", p.Key(), p.Proto)
		case !p.Key().HostIP.Is4():
			return fmt.Errorf("pool %s: only IPv4 addresses can be published", p.Key())
		case len(p.table()) > maxTable:
			return fmt.Errorf("pool %s: table name %s is longer than %d characters", p.Key(), p.table(), maxTable)
		}
		for _, m := range p.Members {
			if !m.Addr().Is4() || m.Port() == 0 {
				return fmt.Errorf("pool %s: member %s is not an IPv4 address with a port", p.Key(), m)
			}
		}
	}
	return nil
}
