// SPDX-License-Identifier: BSD-2-Clause

package nft

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"satld/redirect"
)

// rule is one rule of one chain. Its comment is a hash of its text, so that a
// listing of the table, in whatever form this version of nft prints it, can be
// compared with what was written.
type rule struct{ chain, text string }

func (r rule) comment() string {
	sum := sha256.Sum256([]byte(r.chain + "\x00" + r.text))
	return "satl:" + hex.EncodeToString(sum[:6])
}

// baseChain is a chain that the kernel calls. Ours only ever drop or reject;
// an accept of ours would not overrule a drop of the host's own rules.
type baseChain struct {
	name, kind, hook string
	priority         int
}

var baseChains = []baseChain{
	{"prerouting", "nat", "prerouting", -100},
	{"output", "nat", "output", -100},
	{"postrouting", "nat", "postrouting", 100},
	{"input", "filter", "input", 0},
	{"forward", "filter", "forward", 0},
}

// poolsChain holds the redirects, once, for prerouting and output.
const poolsChain = "pools"

// plan is every rule that the table is to hold, in order.
//
// No rule uses a map or a set. A transaction swaps the rules in one step, but
// the elements of an anonymous map are taken out for packets that are half way
// through the old rules too (nft_map_deactivate in net/netfilter/nf_tables_api.c,
// and a lookup reads the generation anew): with `dnat to numgen ... map` a few
// connections in ten thousand were not redirected while rules were rewritten.
func plan(r redirect.Rules) (out []rule) {
	r = r.Normalise()
	add := func(chain, format string, args ...any) {
		out = append(out, rule{chain, fmt.Sprintf(format, args...)})
	}
	// A task's questions to its gateway are for our DNS, also when a service
	// publishes port 53 on every address.
	dns := func(chain string) {
		for _, s := range r.Subnets {
			add(chain, `iifname %q ip daddr %s udp dport 53 accept`, s.Bridge, s.Gateway())
			add(chain, `iifname %q ip daddr %s tcp dport 53 accept`, s.Bridge, s.Gateway())
		}
	}

	for _, p := range bySpecific(r.Pools) {
		for i, m := range p.Members {
			// Every n-th of what is left: 1 of 3, then 1 of 2, then the rest.
			nth := ""
			if left := len(p.Members) - i; left > 1 {
				nth = fmt.Sprintf("numgen inc mod %d 0 ", left)
			}
			add(poolsChain, `%s%sdnat to %s`, match(p), nth, m)
		}
		if len(p.Members) == 0 && !p.Key().Any() {
			// Not the pool of every address either.
			add(poolsChain, `%saccept`, match(p))
		}
	}

	dns("prerouting")
	// 127.0.0.1 is the host's alone: what comes for it over a wire is not
	// redirected, also not where a port is published on every address.
	add("prerouting", `ip daddr 127.0.0.0/8 accept`)
	add("prerouting", `fib daddr type local jump %s`, poolsChain)
	add("output", `fib daddr type local jump %s`, poolsChain)

	if len(r.Subnets) > 0 {
		// The host speaks to an address of its own, as with the resolver on a
		// bridge: that stays as it is.
		add("postrouting", `oifname "lo" accept`)
	}
	for _, s := range r.Subnets {
		// From the host's 127.0.0.1; and a task that reaches a neighbour, or
		// itself, through a published port, whose answer would else not come
		// back this way.
		add("postrouting", `ip saddr 127.0.0.0/8 oifname %q masquerade`, s.Bridge)
		if s.Overlay {
			// A member on another node would answer through its own node.
			add("postrouting", `oifname %q ct status dnat masquerade`, s.Bridge)
		} else {
			add("postrouting", `ip saddr %s oifname %q ct status dnat masquerade`, s.Prefix, s.Bridge)
		}
		if s.Internal {
			continue
		}
		for _, ports := range serverPorts(r.Pools) {
			add("postrouting", `ip saddr %s oifname != %q udp sport %s masquerade to :32768-60999 fully-random`, s.Prefix, s.Bridge, ports)
		}
		add("postrouting", `ip saddr %s oifname != %q masquerade`, s.Prefix, s.Bridge)
	}

	// route_localnet on the bridges lets 127.0.0.1 be redirected into them; it
	// must not let tasks reach what listens on the host's loopback.
	for _, s := range r.Subnets {
		add("input", `iifname %q ip saddr 127.0.0.0/8 drop`, s.Bridge)
		add("input", `iifname %q ip daddr 127.0.0.0/8 ct state invalid,new,untracked drop`, s.Bridge)
	}
	dns("input")
	for _, p := range bySpecific(r.Pools) {
		if len(p.Members) > 0 && p.Proto == "tcp" {
			// What conntrack cannot place, as a segment that comes from outside
			// of the window, is not redirected; the host would answer it with a
			// reset, and so end a connection to a task.
			add("input", `ct state invalid %sdrop`, match(p))
		}
		if len(p.Members) == 0 {
			add("input", `ct state new %s%s`, match(p), refusal(p.Proto))
		} else if !p.Key().Any() {
			// Served; the pool of every address may be empty.
			add("input", `%saccept`, match(p))
		}
	}

	for _, s := range r.Subnets {
		add("forward", `iifname %q ip saddr 127.0.0.0/8 drop`, s.Bridge)
		if s.Internal {
			add("forward", `iifname %q oifname != %q drop`, s.Bridge, s.Bridge)
			add("forward", `iifname != %q oifname %q drop`, s.Bridge, s.Bridge)
			continue
		}
		// The other way such a segment would go out with the task's own address,
		// and the client answer that with a reset.
		add("forward", `iifname %q oifname != %q ct state invalid drop`, s.Bridge, s.Bridge)
		// Into a network only what was asked for from inside, and what came
		// through a published port: not from our other networks, nor from
		// neighbours of the host that made themselves a route.
		add("forward", `iifname != %q oifname %q ct state invalid,untracked drop`, s.Bridge, s.Bridge)
		add("forward", `iifname != %q oifname %q ct state new ct status ! dnat drop`, s.Bridge, s.Bridge)
	}
	return out
}

// serverPorts are the UDP source ports that masquerading must not keep: those
// of servers. When a member is withdrawn and its flows are cut, an answer of its
// that was still under way is a new flow from inside; masqueraded from the
// published port it would claim the client's next datagrams for the withdrawn
// member, for as long as the client goes on (seen in one of five withdrawals).
// From another port it claims nothing. Clients' own ports are kept.
func serverPorts(pools []redirect.Pool) []string {
	ports := []string{"< 32768"}
	for _, p := range pools {
		if p.Proto == "udp" && p.Published >= 32768 {
			ports = append(ports, fmt.Sprint(p.Published))
		}
	}
	return slices.Compact(ports)
}

// bySpecific puts pools of one address before those of every address.
func bySpecific(pools []redirect.Pool) []redirect.Pool {
	out := slices.Clone(pools)
	slices.SortStableFunc(out, func(a, b redirect.Pool) int {
		any := func(p redirect.Pool) int {
			if p.Key().Any() {
				return 1
			}
			return 0
		}
		return cmp.Compare(any(a), any(b))
	})
	return out
}

// match is the part of a rule that selects the pool's packets.
func match(p redirect.Pool) string {
	if p.Key().Any() {
		return fmt.Sprintf("%s dport %d ", p.Proto, p.Published)
	}
	return fmt.Sprintf("ip daddr %s %s dport %d ", p.HostIP, p.Proto, p.Published)
}

func refusal(proto string) string {
	if proto == "tcp" {
		return "reject with tcp reset"
	}
	return "reject with icmp type port-unreachable"
}

// script makes the table hold exactly the rules, in one transaction: chains
// are declared (nothing happens to those that are there), all rules flushed
// and the new ones added. Nothing that another rule refers to is deleted
// (cases/pool.md, pool-10).
func script(table string, rules []rule) string {
	var b strings.Builder
	fmt.Fprintf(&b, "table ip %s {\n\tchain %s {\n\t}\n", table, poolsChain)
	for _, c := range baseChains {
		fmt.Fprintf(&b, "\tchain %s {\n\t\ttype %s hook %s priority %d; policy accept;\n\t}\n", c.name, c.kind, c.hook, c.priority)
	}
	fmt.Fprintf(&b, "}\nflush table ip %s\ntable ip %s {\n", table, table)
	for _, chain := range chainNames() {
		fmt.Fprintf(&b, "\tchain %s {\n", chain)
		for _, r := range rules {
			if r.chain == chain {
				fmt.Fprintf(&b, "\t\t%s comment %q\n", r.text, r.comment())
			}
		}
		b.WriteString("\t}\n")
	}
	b.WriteString("}\n")
	return b.String()
}

// removal deletes the table whether it is there or not.
func removal(table string) string {
	return fmt.Sprintf("table ip %s {\n}\ndelete table ip %s\n", table, table)
}

func chainNames() []string {
	names := []string{poolsChain}
	for _, c := range baseChains {
		names = append(names, c.name)
	}
	return names
}

// Check refuses rules that the table cannot hold: IPv4 only, and names that
// would need quoting.
func check(r redirect.Rules) error {
	for _, p := range r.Pools {
		if p.Proto != "tcp" && p.Proto != "udp" && p.Proto != "sctp" {
			return fmt.Errorf("pool %s: unknown protocol %q", p.Key(), p.Proto)
		}
		if !p.Key().HostIP.Is4() {
			return fmt.Errorf("pool %s: only IPv4 addresses can be published", p.Key())
		}
		for _, m := range p.Members {
			if !m.Addr().Is4() || m.Port() == 0 {
				return fmt.Errorf("pool %s: member %s is not an IPv4 address with a port", p.Key(), m)
			}
		}
	}
	for _, s := range r.Subnets {
		if !s.Prefix.IsValid() || !s.Prefix.Addr().Is4() || s.Bridge == "" || strings.ContainsAny(s.Bridge, "\"\\*\n\t ") {
			return fmt.Errorf("network %q with subnet %s: not an IPv4 network on a plainly named bridge", s.Bridge, s.Prefix)
		}
	}
	return nil
}
