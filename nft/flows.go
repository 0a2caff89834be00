// SPDX-License-Identifier: BSD-2-Clause

package nft

import (
	"net/netip"
	"slices"

	"satld/redirect"
)

// entry is one tracked connection: whom the client dialled, and who answers.
type entry struct {
	proto    string
	dialled  netip.AddrPort
	answers  netip.AddrPort
	halfOpen bool // TCP: SYN sent, nothing came back
}

// host is what telling our flows from others' needs to know.
type hostView struct {
	local   func(netip.Addr) bool // an address of this host
	subnets []redirect.Subnet     // of our networks
}

func (h hostView) ours(a netip.Addr) bool {
	return slices.ContainsFunc(h.subnets, func(s redirect.Subnet) bool { return s.Prefix.Contains(a) })
}

// cuts tells whether the entry is one that the flow names. TCP (and SCTP) that
// is established goes only with All; UDP always, as each of its packets renews
// the entry and it would never end by itself (cases/pool.md, pool-1, pool-2).
// What only passes through the host, or was redirected by somebody else, is
// never named.
func cuts(f redirect.Flow, e entry, h hostView) bool {
	if e.proto != f.Proto || e.dialled.Port() != f.Published {
		return false
	}
	if k := redirect.MakeKey(f.Proto, f.HostIP, f.Published); k.Any() {
		if !h.local(e.dialled.Addr()) {
			return false
		}
	} else if e.dialled.Addr() != k.HostIP {
		return false
	}
	if !f.All && f.Proto != "udp" && !e.halfOpen {
		return false
	}
	if f.Backend.IsValid() {
		return e.answers == f.Backend
	}
	if slices.Contains(f.Keep, e.answers) {
		return false
	}
	if e.answers == e.dialled {
		// Not redirected: only UDP outlives the coming of a rule.
		return f.Proto == "udp"
	}
	return h.ours(e.answers.Addr())
}
