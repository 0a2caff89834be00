// SPDX-License-Identifier: BSD-2-Clause

// Package pfconf reads pf.conf(5) as far as a fake pfctl needs it: it accepts
// the statements that are used here, refuses what pfctl would refuse of them
// (unknown words and macros, statements out of order, names too long, ports
// without a protocol that has them), and prints rules as `pfctl -s` does. A
// statement it does not know is a syntax error, so that a test that starts to
// use it shows the gap. Pure.
package pfconf

import (
	"fmt"
	"net/netip"
	"strings"
)

// MaxTable is how long a table's name may be (PF_TABLE_NAME_SIZE less its zero).
const MaxTable = 31

// Ruleset is the content of one anchor, or of the main ruleset.
type Ruleset struct {
	Tables []Table
	Rules  []Rule
	Skip   []string // interfaces
}

// Table is a declaration.
type Table struct {
	Name    string
	Persist bool
	Addrs   []string
	// Given tells whether addresses were given, none of them too.
	Given bool
}

// Kind is which list of the kernel a rule is in.
type Kind string

// The kinds, by the words that begin them.
const (
	NAT       Kind = "nat"
	RDR       Kind = "rdr"
	Binat     Kind = "binat"
	Pass      Kind = "pass"
	Block     Kind = "block"
	Match     Kind = "match"
	Scrub     Kind = "scrub"
	Anchor    Kind = "anchor"
	NATAnchor Kind = "nat-anchor"
	RDRAnchor Kind = "rdr-anchor"
	Binanchor Kind = "binat-anchor"
)

// Translation tells whether `pfctl -s nat` lists rules of this kind.
func (k Kind) Translation() bool {
	switch k {
	case NAT, RDR, Binat, NATAnchor, RDRAnchor, Binanchor:
		return true
	}
	return false
}

// Rule is one rule, after lists were multiplied out.
type Rule struct {
	Kind   Kind
	No     bool   // no nat, no rdr
	Pass   bool   // rdr pass
	Return string // of block: drop, return, return-rst, return-icmp
	Dir    string // in, out
	Log    bool
	Quick  bool
	On     string // an interface, with "! " in front when it is any other
	AF     string // inet, inet6
	Proto  string
	From   End
	To     End
	Target *Target
	Tag    string // that a packet gets
	Tagged string // that it must have
	Name   string // of an anchor
	Tail   string // what stands behind the ends, as it is printed
}

// End is one side of what a rule matches.
type End struct {
	Host string // any, self, (self), an address or prefix, (vtnet0), <table>; with "! " in front for all others
	Port string // "", a number, or an operator and numbers
}

// Target is where a translation leads.
type Target struct {
	Host string
	Port string
	Pool string // round-robin, random, ...
}

// Table is the name of the table a host stands for.
func tableOf(host string) (string, bool) {
	if strings.HasPrefix(host, "<") {
		return strings.Trim(host, "<>"), true
	}
	return "", false
}

// Uses names the tables that a rule refers to.
func (r Rule) Uses() (names []string) {
	hosts := []string{strings.TrimPrefix(r.From.Host, "! "), strings.TrimPrefix(r.To.Host, "! ")}
	if r.Target != nil {
		hosts = append(hosts, r.Target.Host)
	}
	for _, h := range hosts {
		if t, ok := tableOf(h); ok {
			names = append(names, t)
		}
	}
	return names
}

// Uses names the tables that any rule refers to.
func (s Ruleset) Uses() (names []string) {
	for _, r := range s.Rules {
		names = append(names, r.Uses()...)
	}
	return names
}

// Error is a refusal, as pfctl words it.
type Error struct {
	Line int
	Text string
}

func (e *Error) Error() string { return fmt.Sprintf("stdin:%d: %s", e.Line, e.Text) }

// Lookup gives the addresses of a host word: for tables and interfaces the
// caller knows them.
type Lookup interface {
	Table(name string) []string
	Self() []netip.Addr
}

// Holds tells whether an address is what a host word stands for.
func Holds(host string, addr netip.Addr, in Lookup) bool {
	if rest, ok := strings.CutPrefix(host, "! "); ok {
		return !Holds(rest, addr, in)
	}
	if t, ok := tableOf(host); ok {
		return inTable(in.Table(t), addr)
	}
	switch host {
	case "any", "":
		return true
	case "self", "(self)":
		for _, a := range in.Self() {
			if a == addr {
				return true
			}
		}
		return false
	}
	return within(host, addr)
}

// inTable: the most specific entry decides, and one with "!" says no.
func inTable(entries []string, addr netip.Addr) (yes bool) {
	best := -1
	for _, e := range entries {
		bare, not := strings.CutPrefix(e, "!")
		p, err := netip.ParsePrefix(bare)
		if err != nil {
			a, err := netip.ParseAddr(bare)
			if err != nil {
				continue
			}
			p = netip.PrefixFrom(a, a.BitLen())
		}
		if p.Contains(addr) && p.Bits() > best {
			best, yes = p.Bits(), !not
		}
	}
	return yes
}

func within(prefix string, addr netip.Addr) bool {
	if p, err := netip.ParsePrefix(prefix); err == nil {
		return p.Contains(addr)
	}
	a, err := netip.ParseAddr(prefix)
	return err == nil && a == addr
}
