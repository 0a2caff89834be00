// SPDX-License-Identifier: BSD-2-Clause

package pf

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"satld/redirect"
)

// flow is one state of a packet that came in, as `pfctl -ss -vv` prints it. A
// flow through a published port has two states; the inbound one names the
// backend, the address that was dialled in parentheses, and the client:
//
//	all udp 10.89.0.2:5300 (10.89.0.1:5300) <- 10.89.0.4:4445       MULTIPLE:SINGLE
//	   ...
//	   id: a48e0c6b00000001 creatorid: 5242698a
//
// Killing that one by its ID makes the flow's next packet go to a member as
// they are then; killing by address does not (facts/freebsd.md). A flow that was
// not redirected has the dialled address alone.
type flow struct {
	proto    string
	backend  netip.AddrPort // who answers; dialled itself when it was not redirected
	dialled  netip.AddrPort
	id       string
	halfOpen bool // TCP: no answer came yet
}

// parseStates finds the inbound states with IPv4 addresses.
func parseStates(text string) (out []flow) {
	var last *flow
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		if line[0] == ' ' || line[0] == '\t' {
			for i := 0; last != nil && i+1 < len(f); i++ {
				if f[i] == "id:" {
					last.id = f[i+1]
				}
			}
			continue
		}
		last = nil
		at := slices.Index(f, "<-")
		if at < 3 || at > 4 || len(f) < at+3 {
			continue
		}
		backend, err1 := netip.ParseAddrPort(f[2])
		dialled, err2 := backend, error(nil)
		if at == 4 {
			dialled, err2 = netip.ParseAddrPort(strings.Trim(f[3], "()"))
		}
		if err1 != nil || err2 != nil {
			continue
		}
		// Both ends' states: who was dialled, and the client.
		answered, _, _ := strings.Cut(f[len(f)-1], ":")
		out = append(out, flow{proto: f[1], backend: backend, dialled: dialled, halfOpen: f[1] == "tcp" && answered == "CLOSED"})
		last = &out[len(out)-1]
	}
	return slices.DeleteFunc(out, func(s flow) bool { return s.id == "" })
}

// hostView is what telling our flows from others' needs to know.
type hostView struct {
	local   map[netip.Addr]bool // addresses of this host
	subnets []redirect.Subnet   // of our networks
}

func (h hostView) ours(a netip.Addr) bool {
	return slices.ContainsFunc(h.subnets, func(n redirect.Subnet) bool { return n.Prefix.Contains(a) })
}

// cuts tells whether the state is of a flow that the Flow names. Established TCP
// (and SCTP) goes only with All; UDP always, as each of its packets renews it
// and it would never end by itself (cases/pool.md, pool-1, pool-2). What only
// passes through the host, or was redirected by somebody else, is never named.
func cuts(f redirect.Flow, s flow, h hostView) bool {
	if s.proto != f.Proto || s.dialled.Port() != f.Published {
		return false
	}
	if k := redirect.MakeKey(f.Proto, f.HostIP, f.Published); k.Any() {
		if !h.local[s.dialled.Addr()] {
			return false
		}
	} else if s.dialled.Addr() != k.HostIP {
		return false
	}
	if !f.All && f.Proto != "udp" && !s.halfOpen {
		return false
	}
	switch {
	case f.Backend.IsValid():
		return s.backend == f.Backend
	case slices.Contains(f.Keep, s.backend):
		return false
	case s.backend == s.dialled: // not redirected: only UDP outlives the coming of a rule
		return f.Proto == "udp"
	}
	return h.ours(s.backend.Addr())
}

// kills are the IDs of the states that the flows name.
func kills(states []flow, flows []redirect.Flow, h hostView) (ids []string) {
	for _, s := range states {
		if slices.ContainsFunc(flows, func(f redirect.Flow) bool { return cuts(f, s, h) }) {
			ids = append(ids, s.id)
		}
	}
	return ids
}

// cutBound is how long one Cut may kill states, one call of pfctl each: changes
// of the pools wait for it. What is left is cut by the next try.
const cutBound = 2 * time.Second

// Cut kills the states that the flows name, one by one by their IDs.
func (r *Redirector) Cut(ctx context.Context, flows []redirect.Flow) error {
	if len(flows) == 0 || r.cfg.CheckOnly {
		return nil
	}
	r.mu.Lock()
	h := hostView{subnets: r.subnets}
	r.mu.Unlock()
	var err error
	if h.local, err = r.local(); err != nil {
		return fmt.Errorf("cut flows: list the host's addresses: %w", err)
	}
	out, err := r.pfctl(ctx, call{args: []string{"-ss", "-vv"}})
	if err != nil {
		return fmt.Errorf("list pf states: %w", err)
	}
	ids := kills(parseStates(out), flows, h)
	until := time.Now().Add(cutBound)
	for i, id := range ids {
		if time.Now().After(until) {
			return fmt.Errorf("kill pf states: %d of %d are left after %s", len(ids)-i, len(ids), cutBound)
		}
		if _, err := r.pfctl(ctx, call{args: []string{"-k", "id", "-k", id}}); err != nil {
			return fmt.Errorf("kill pf state %s: %w", id, err)
		}
	}
	return nil
}

// interfaceAddrs are the host's own IPv4 addresses.
func interfaceAddrs() (map[netip.Addr]bool, error) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	local := make(map[netip.Addr]bool)
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok {
			if ip, ok := netip.AddrFromSlice(n.IP.To4()); ok {
				local[ip] = true
			}
		}
	}
	return local, nil
}
