// SPDX-License-Identifier: BSD-2-Clause

// Package redirect says what a packet filter is to hold for this node: pools of
// published ports and the networks to route out. traffic computes it; nft and pf
// write it. It is data only.
package redirect

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Pool is one published port and who gets its traffic. Its text does not
// depend on who is in it.
type Pool struct {
	Proto     string
	HostIP    netip.Addr // unspecified: every address of the host
	Published uint16
	Members   []netip.AddrPort // sorted, no duplicates; empty refuses connections
	// Target is the containers' port, also while there is no member: pf's rule
	// names it, and its text must not change with who is in.
	Target uint16
}

// Key is what makes a pool one: a packet filter holds one rule for it.
type Key struct {
	Proto     string
	HostIP    netip.Addr
	Published uint16
}

// Key of the pool. Invalid and unspecified host addresses are the same key.
func (p Pool) Key() Key { return MakeKey(p.Proto, p.HostIP, p.Published) }

// MakeKey builds a key; "every address" is always 0.0.0.0 in it.
func MakeKey(proto string, hostIP netip.Addr, published uint16) Key {
	if !hostIP.IsValid() || hostIP.IsUnspecified() {
		hostIP = netip.IPv4Unspecified()
	}
	return Key{Proto: proto, HostIP: hostIP.Unmap(), Published: published}
}

// Any tells whether the key stands for every address of the host.
func (k Key) Any() bool { return !k.HostIP.IsValid() || k.HostIP.IsUnspecified() }

// String is how the key is written in a log line: 8080/tcp or 192.0.2.1:8080/tcp.
func (k Key) String() string {
	if k.Any() {
		return fmt.Sprintf("%d/%s", k.Published, k.Proto)
	}
	return fmt.Sprintf("%s/%s", netip.AddrPortFrom(k.HostIP, k.Published), k.Proto)
}

// Compare orders keys by protocol, host address and port.
func (k Key) Compare(o Key) int {
	return cmp.Or(cmp.Compare(k.Proto, o.Proto), k.HostIP.Compare(o.HostIP), cmp.Compare(k.Published, o.Published))
}

// Subnet is one network whose tasks are to be routed out (masqueraded).
type Subnet struct {
	Bridge   string
	Prefix   netip.Prefix
	Internal bool
	// Own is the bridge's own address; invalid is the first of the subnet.
	Own netip.Addr
	// Overlay says that members of pools in it may be on other nodes: what is
	// redirected there must come back this way.
	Overlay bool
}

// Gateway is the bridge's own address, as package network gives it.
func (s Subnet) Gateway() netip.Addr {
	if s.Own.IsValid() {
		return s.Own
	}
	return s.Prefix.Masked().Addr().Next()
}

// Rules is everything that the packet filter is to hold for this node.
type Rules struct {
	Pools   []Pool   // sorted by Proto, HostIP, Published; one per key
	Subnets []Subnet // sorted by Bridge
}

// Normalise returns the rules in their canonical order, members sorted and
// without duplicates, keys written one way. Two pools of one key become one.
func (r Rules) Normalise() Rules {
	pools := make(map[Key]Pool, len(r.Pools))
	for _, p := range r.Pools {
		k := p.Key()
		was := pools[k]
		pools[k] = Pool{Proto: k.Proto, HostIP: k.HostIP, Published: k.Published, Members: append(was.Members, p.Members...), Target: cmp.Or(was.Target, p.Target)}
	}
	out := Rules{Subnets: slices.Clone(r.Subnets)}
	for _, p := range pools {
		slices.SortFunc(p.Members, netip.AddrPort.Compare)
		p.Members = slices.Compact(p.Members)
		out.Pools = append(out.Pools, p)
	}
	slices.SortFunc(out.Pools, func(a, b Pool) int { return a.Key().Compare(b.Key()) })
	slices.SortFunc(out.Subnets, func(a, b Subnet) int { return strings.Compare(a.Bridge, b.Bridge) })
	return out
}

// Equal compares two normalised sets of rules.
func (r Rules) Equal(o Rules) bool {
	return slices.Equal(r.Subnets, o.Subnets) && slices.EqualFunc(r.Pools, o.Pools, func(a, b Pool) bool {
		return a.Key() == b.Key() && a.Target == b.Target && slices.Equal(a.Members, b.Members)
	})
}

// Flow names connection state to cut: through a published port to a backend.
//
// With a Backend it names the flows to that one. Without one it names every
// flow through the port whose other end is not in Keep: to members that left,
// and those that were not redirected at all because the port had no rule yet
// (cases/pool.md, pool-1, both ways).
type Flow struct {
	Proto     string
	HostIP    netip.Addr // as in Pool
	Published uint16
	Backend   netip.AddrPort
	Keep      []netip.AddrPort // only without Backend
	All       bool             // established TCP too: the backend's process is gone
}
