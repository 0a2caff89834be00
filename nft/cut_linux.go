// SPDX-License-Identifier: BSD-2-Clause

package nft

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"satld/redirect"
)

// synSent is TCP_CONNTRACK_SYN_SENT (linux/netfilter/nf_conntrack_tcp.h).
const synSent = 1

var protocols = map[uint8]string{unix.IPPROTO_TCP: "tcp", unix.IPPROTO_UDP: "udp", unix.IPPROTO_SCTP: "sctp"}

// flowFilter deletes what any of the flows names.
type flowFilter struct {
	flows []redirect.Flow
	host  hostView
}

// MatchConntrackFlow implements netlink.CustomConntrackFilter.
func (f flowFilter) MatchConntrackFlow(c *netlink.ConntrackFlow) bool {
	dialled, ok1 := netip.AddrFromSlice(c.Forward.DstIP)
	answers, ok2 := netip.AddrFromSlice(c.Reverse.SrcIP)
	proto, ok3 := protocols[c.Forward.Protocol]
	if !ok1 || !ok2 || !ok3 {
		return false
	}
	e := entry{
		proto:   proto,
		dialled: netip.AddrPortFrom(dialled.Unmap(), c.Forward.DstPort),
		answers: netip.AddrPortFrom(answers.Unmap(), c.Reverse.SrcPort),
	}
	if tcp, ok := c.ProtoInfo.(*netlink.ProtoInfoTCP); ok {
		e.halfOpen = tcp.State == synSent
	}
	for _, flow := range f.flows {
		if cuts(flow, e, f.host) {
			return true
		}
	}
	return false
}

// Cut deletes the conntrack entries that the flows name. The next packet of
// such a connection meets the rules as they are now.
func (r *Redirector) Cut(ctx context.Context, flows []redirect.Flow) error {
	if len(flows) == 0 {
		return nil
	}
	r.mu.Lock()
	subnets := r.subnets
	r.mu.Unlock()
	h, err := netlink.NewHandle(unix.NETLINK_NETFILTER, unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("cut flows: open netlink: %w", err)
	}
	defer h.Close()
	if err := h.SetSocketTimeout(Timeout); err != nil {
		return fmt.Errorf("cut flows: %w", err)
	}
	addrs, err := h.AddrList(nil, netlink.FAMILY_V4)
	if err != nil {
		return fmt.Errorf("cut flows: list the host's addresses: %w", err)
	}
	local := make(map[netip.Addr]bool)
	for _, a := range addrs {
		if ip, ok := netip.AddrFromSlice(a.IP.To4()); ok {
			local[ip] = true
		}
	}
	filter := flowFilter{flows: flows, host: hostView{
		local:   func(a netip.Addr) bool { return a.IsLoopback() || local[a] },
		subnets: subnets,
	}}
	// A table that changes while it is dumped may hide entries from one pass.
	for attempt := 0; ; attempt++ {
		_, err = h.ConntrackDeleteFilters(netlink.ConntrackTable, unix.AF_INET, filter)
		if !errors.Is(err, netlink.ErrDumpInterrupted) || attempt == 4 || ctx.Err() != nil {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("cut flows: delete conntrack entries: %w", err)
	}
	return nil
}
