// SPDX-License-Identifier: BSD-2-Clause

// Package redirect says what a packet filter is to hold for this node: pools of
// published ports and the networks to route out. traffic computes it; nft and pf
// write it. It is data only.
package redirect

import "net/netip"

// Pool is one published port and who gets its traffic. Its text does not
// depend on who is in it.
type Pool struct {
	Proto     string
	HostIP    netip.Addr // unspecified: every address of the host
	Published uint16
	Members   []netip.AddrPort // sorted, no duplicates; empty refuses connections
}

// Subnet is one network whose tasks are to be routed out (masqueraded).
type Subnet struct {
	Bridge   string
	Prefix   netip.Prefix
	Internal bool
}

// Rules is everything that the packet filter is to hold for this node.
type Rules struct {
	Pools   []Pool   // sorted by Proto, HostIP, Published; one per key
	Subnets []Subnet // sorted by Bridge
}

// Flow names connection state to cut: through a published port to a backend.
type Flow struct {
	Proto     string
	Published uint16
	Backend   netip.AddrPort
	All       bool // established TCP too: the backend's process is gone
}
