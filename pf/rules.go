// SPDX-License-Identifier: BSD-2-Clause

package pf

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"satld/redirect"
)

// maxTable is how long a table's name may be (pf.conf(5), TABLES).
const maxTable = 31

// tag is borne by a packet that was redirected, until it leaves the host.
const tag = "satl"

// everybody is what the table of a closed pool holds.
const everybody = "0.0.0.0/0"

// pool is one published port as pf holds it: one rule, and two tables whose
// contents are all that changes with the members. One has their addresses; the
// other has everybody while there is no member, and turns the rule off.
//
// It takes the second one to refuse: an rdr rule whose table is empty lets the
// packet through to the host's own ports up to FreeBSD 14, and drops it without
// a word from FreeBSD 15 on (sys/netpfil/pf/pf_lb.c). Turned off, the packet
// goes on to the filter, where it is refused.
//
// pf translates to one port only; of members on several, those on the most
// common one are used (the smaller on a tie), which happens only while an update
// changes the target port.
type pool struct {
	redirect.Pool
	target uint16
	addrs  []string
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
			out.addrs = append(out.addrs, m.Addr().String())
		}
	}
	out.target = cmp.Or(out.target, p.Target, p.Published)
	return out
}

// table names the pool's table: satl_p8080_tcp_80, with the host's address in
// hexadecimal where the port is published on one only.
func (p pool) table() string {
	return fmt.Sprintf("satl_%s_%s_%d", p.at("p"), p.Proto, p.target)
}

// closed names the table that turns the pool's rule off.
func (p pool) closed() string { return fmt.Sprintf("satl_%s_%s", p.at("c"), p.Proto) }

func (p pool) at(kind string) string {
	if p.Key().Any() {
		return fmt.Sprintf("%s%d", kind, p.Published)
	}
	return fmt.Sprintf("%s%x_%d", kind, p.HostIP.As4(), p.Published)
}

// shut is what the closed table is to hold.
func (p pool) shut() []string {
	if len(p.addrs) == 0 {
		return []string{everybody}
	}
	return nil
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
// translation rule that matches wins. What is published on a loopback address
// is left out: no packet from outside may reach it, and pf sees no other.
func poolsOf(r redirect.Rules) []pool {
	var out []pool
	for _, p := range r.Normalise().Pools {
		if !p.HostIP.IsLoopback() {
			out = append(out, newPool(p))
		}
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

// table is a table and what it is to hold.
type table struct {
	name  string
	holds []string
}

// tablesOf are the tables of the pools.
func tablesOf(r redirect.Rules) (out []table) {
	for _, p := range poolsOf(r) {
		out = append(out, table{p.table(), p.addrs}, table{p.closed(), p.shut()})
	}
	return out
}

// place is what of the host the texts depend on.
type place struct {
	group   string   // of our bridges and of the hosts' ends of our links
	uplinks []string // interfaces that lead out, sorted
	local   bool     // pf sees the host's own connections (net.pf.filter_local)
}

func (p place) equal(o place) bool {
	return p.group == o.group && p.local == o.local && slices.Equal(p.uplinks, o.uplinks)
}

// rdrText is the whole of the anchor satl/rdr, in pf.conf(5)'s order: tables,
// translation, filter. With members the pools' tables hold them, so that loading
// it is one step; without, it is what the rules look like whoever is in.
func rdrText(r redirect.Rules, at place, members bool) string {
	r = r.Normalise()
	var tables, translation, filter strings.Builder
	for _, t := range tablesOf(r) {
		fmt.Fprintf(&tables, "table <%s> persist", t.name)
		if members && len(t.holds) > 0 {
			fmt.Fprintf(&tables, " { %s }", strings.Join(t.holds, ", "))
		}
		tables.WriteString("\n")
	}
	for _, s := range r.Subnets {
		// A task's questions to its gateway are for our DNS.
		for _, proto := range []string{"tcp", "udp"} {
			fmt.Fprintf(&translation, "no rdr on %s inet proto %s from any to %s port 53\n", s.Bridge, proto, s.Gateway())
		}
	}
	// A connection of the host to itself comes in on lo0. Redirected there it
	// goes nowhere, unless pf filters local traffic, and to 127.0.0.1 never: that
	// is the host's alone, also where it comes over a wire.
	on := "on ! lo0 "
	if at.local {
		on = ""
	}
	if len(r.Pools) > 0 {
		translation.WriteString("no rdr inet from any to 127.0.0.0/8\n")
	}
	dns := func(p pool) {
		for _, s := range r.Subnets {
			if p.Published == 53 && (p.Key().Any() || p.HostIP == s.Gateway()) {
				fmt.Fprintf(&filter, "pass in quick on %s inet proto %s from %s to %s port 53\n", s.Bridge, p.Proto, s.Prefix, s.Gateway())
			}
		}
	}
	for _, p := range poolsOf(r) {
		dns(p)
		fmt.Fprintf(&translation, "no rdr inet proto %s from <%s> to %s port %d\n", p.Proto, p.closed(), p.to(), p.Published)
		fmt.Fprintf(&translation, "rdr pass %sinet proto %s from any to %s port %d tag %s -> <%s> port %d round-robin\n", on, p.Proto, p.to(), p.Published, tag, p.table(), p.target)
		// What is redirected passes by; what is not is refused.
		fmt.Fprintf(&filter, "block return in quick on ! lo0 inet proto %s from any to %s port %d\n", p.Proto, p.to(), p.Published)
	}
	isolate(&tables, &filter, r.Subnets, at)
	return tables.String() + translation.String() + filter.String()
}

// isolate keeps the networks apart, as nft does: into a network only what was
// asked for from inside and what was redirected, not from our other networks
// nor from neighbours of the host that made themselves a route; out of an
// internal network nothing. Redirected packets pass the inbound rules by. The
// group stands for the bridges and their ports: where net.link.bridge.pfil_member
// is set, what tasks send each other within a bridge comes in on a port.
func isolate(tables, filter *strings.Builder, subnets []redirect.Subnet, at place) {
	if len(subnets) == 0 {
		return
	}
	var inside, internal []string
	for _, s := range subnets {
		inside = append(inside, tasksOf(s)...)
		if s.Internal {
			internal = append(internal, tasksOf(s)...)
		}
	}
	fmt.Fprintf(tables, "table <satl_inside> const { %s }\n", strings.Join(inside, ", "))
	fmt.Fprintf(filter, "block drop in quick on ! %s inet from any to <satl_inside>\n", at.group)
	if len(subnets) > 1 {
		for i, s := range subnets {
			others := slices.Concat(inside[:2*i], inside[2*i+2:])
			fmt.Fprintf(tables, "table <satl_x_%s> const { %s }\n", s.Bridge, strings.Join(others, ", "))
			fmt.Fprintf(filter, "block drop in quick on %s inet from any to <satl_x_%s>\n", s.Bridge, s.Bridge)
		}
	}
	if len(internal) > 0 {
		fmt.Fprintf(tables, "table <satl_internal> const { %s }\n", strings.Join(internal, ", "))
		fmt.Fprintf(filter, "block drop out quick on ! %s inet from <satl_internal> to any\n", at.group)
	}
	for _, s := range subnets {
		if s.Internal {
			fmt.Fprintf(filter, "block drop out quick on %s inet from ! %s to any\n", s.Bridge, s.Prefix)
		}
	}
}

// tasksOf is a subnet without the host's own address, as entries of a table.
func tasksOf(s redirect.Subnet) []string {
	return []string{s.Prefix.String(), "!" + s.Gateway().String()}
}

// natText is the whole of the anchor satl/nat: the way out, and the way back of
// a task that reaches a neighbour, or itself, through a published port: without
// a change of the source the answer would go to it directly, from an address
// that it never called. Of an overlay the member may be on another node, which
// would answer whoever asked through its own uplink: there all that was
// redirected has this node's address in it. Into an internal network nothing is
// redirected but what comes from it.
func natText(r redirect.Rules, at place) string {
	var b strings.Builder
	for _, s := range r.Normalise().Subnets {
		from := s.Prefix.String()
		if s.Overlay && !s.Internal {
			from = "any"
		}
		fmt.Fprintf(&b, "nat on %s inet from %s to %s tagged %s -> %s\n", s.Bridge, from, s.Prefix, tag, s.Gateway())
		if s.Internal {
			continue
		}
		for _, up := range at.uplinks {
			fmt.Fprintf(&b, "nat on %s inet from %s to any -> (%s)\n", up, s.Prefix, up)
		}
	}
	return b.String()
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
	for _, s := range r.Subnets {
		if !plain(s.Bridge) || !s.Prefix.IsValid() || !s.Prefix.Addr().Is4() {
			return fmt.Errorf("network %q with subnet %s: not an IPv4 network on a plainly named bridge", s.Bridge, s.Prefix)
		}
	}
	return nil
}

// plain tells whether an interface's name can stand in a rule as it is.
func plain(name string) bool {
	for i, c := range []byte(name) {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_'
		if !letter && (i == 0 || c != '.' && c != '-' && (c < '0' || c > '9')) {
			return false
		}
	}
	return name != ""
}
