// SPDX-License-Identifier: BSD-2-Clause

package pf

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"satld/redirect"
)

// flow is one state as `pfctl -ss -vv` prints it. A flow through a published
// port has two of them. That of the packet that came in names the backend, the
// address that was dialled in parentheses, and the client; that of the packet
// that went on to the backend has the client on the left, in parentheses when
// its address was changed:
//
//	all udp 10.89.0.2:5300 (10.89.0.1:5300) <- 10.89.0.4:4445       MULTIPLE:SINGLE
//	   ...
//	   id: a48e0c6b00000001 creatorid: 5242698a
//	all udp 10.89.0.1:59208 (10.89.0.4:4445) -> 10.89.0.2:5300       SINGLE:MULTIPLE
//
// Killing the first one by its ID makes the flow's next packet go to a member as
// they are then; killing by address does not (facts/freebsd.md). A flow that was
// not redirected has the dialled address alone.
type flow struct {
	proto    string
	in       bool
	client   netip.AddrPort
	backend  netip.AddrPort // who answers; dialled itself when it was not redirected
	dialled  netip.AddrPort // only of one that came in
	via      netip.AddrPort // of one that went on: what the backend sees as the client
	id       string
	halfOpen bool // TCP: no answer came yet
}

// ends tells both of a flow's states from those of others.
type ends struct {
	proto           string
	client, backend netip.AddrPort
}

func (f flow) ends() ends { return ends{f.proto, f.client, f.backend} }

// parseStates finds the states with IPv4 addresses and ports.
func parseStates(text string) (out []flow) {
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		if line[0] == ' ' || line[0] == '\t' {
			for i := 0; len(out) > 0 && out[len(out)-1].id == "" && i+1 < len(f); i++ {
				if f[i] == "id:" {
					out[len(out)-1].id = f[i+1]
				}
			}
			continue
		}
		// A state that cannot be read stands for itself, so that its ID is no
		// other's.
		s, _ := parseState(f)
		out = append(out, s)
	}
	return slices.DeleteFunc(out, func(s flow) bool { return s.id == "" || !s.client.IsValid() })
}

func parseState(f []string) (flow, bool) {
	at := slices.IndexFunc(f, func(w string) bool { return w == "<-" || w == "->" })
	if at < 3 || at > 4 || len(f) < at+3 {
		return flow{}, false
	}
	left, err := netip.ParseAddrPort(f[2])
	changed := left
	if at == 4 && err == nil {
		changed, err = netip.ParseAddrPort(strings.Trim(f[3], "()"))
	}
	right, rightErr := netip.ParseAddrPort(f[at+1])
	if err != nil || rightErr != nil {
		return flow{}, false
	}
	if f[at] == "->" {
		return flow{proto: f[1], client: changed, backend: right, via: left}, true
	}
	// The states of both ends: who was dialled, and the client.
	answered, _, _ := strings.Cut(f[len(f)-1], ":")
	return flow{proto: f[1], in: true, client: right, backend: left, dialled: changed, halfOpen: f[1] == "tcp" && answered == "CLOSED"}, true
}

// hostView is what telling our flows from others' needs to know.
type hostView struct {
	local   []netip.Addr      // addresses of this host
	subnets []redirect.Subnet // of our networks
}

func (h hostView) ours(a netip.Addr) bool {
	return slices.ContainsFunc(h.subnets, func(n redirect.Subnet) bool { return n.Prefix.Contains(a) })
}

// cuts tells whether the state is of a flow that the Flow names. Established TCP
// (and SCTP) goes only with All; UDP always, as each of its packets renews it
// and it would never end by itself (cases/pool.md, pool-1, pool-2). What only
// passes through the host, or was redirected by somebody else, is never named.
func cuts(f redirect.Flow, s flow, h hostView) bool {
	if !s.in || s.proto != f.Proto || s.dialled.Port() != f.Published {
		return false
	}
	if k := redirect.MakeKey(f.Proto, f.HostIP, f.Published); k.Any() {
		if !slices.Contains(h.local, s.dialled.Addr()) {
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

// gateway tells whether the address is one of ours in our networks.
func (h hostView) gateway(a netip.Addr) bool {
	return slices.ContainsFunc(h.subnets, func(n redirect.Subnet) bool { return n.Gateway() == a })
}

// kills are the IDs of the states that the flows name: those that came in, and
// then the other halves of them, also those that an earlier try left. Nothing
// else goes into our networks from outside, so a UDP state that does so without
// its other half is one of those; of another protocol it is one for sure where
// its source was changed to our address, as only our own rule does that.
func kills(states []flow, flows []redirect.Flow, h hostView) (ids []string) {
	cut, live := make(map[ends]bool), make(map[ends]bool)
	for _, s := range states {
		switch {
		case slices.ContainsFunc(flows, func(f redirect.Flow) bool { return cuts(f, s, h) }):
			ids = append(ids, s.id)
			cut[s.ends()] = true
		case s.in:
			live[s.ends()] = true
		}
	}
	for _, s := range states {
		known := s.proto == "udp" || s.via != s.client && h.gateway(s.via.Addr())
		orphan := known && h.ours(s.backend.Addr()) && !slices.Contains(h.local, s.client.Addr()) && !live[s.ends()]
		if !s.in && (cut[s.ends()] || orphan) {
			ids = append(ids, s.id)
		}
	}
	return ids
}

// cutBound is how long one Cut may kill states, one call of pfctl each and so
// many at a time: changes of the pools wait for it. What is left is cut by the
// next try.
const (
	cutBound   = 2 * time.Second
	cutsAtOnce = 4
)

// Cut kills the states that the flows name, one by one by their IDs.
func (r *Redirector) Cut(ctx context.Context, flows []redirect.Flow) error {
	if len(flows) == 0 || r.cfg.CheckOnly {
		return nil
	}
	r.mu.Lock()
	h := hostView{subnets: r.subnets}
	r.mu.Unlock()
	var err error
	if h.local, err = r.cfg.Addrs(); err != nil {
		return fmt.Errorf("cut flows: list the host's addresses: %w", err)
	}
	out, err := r.pfctl(ctx, call{args: []string{"-ss", "-vv"}})
	if err != nil {
		return fmt.Errorf("list pf states: %w", err)
	}
	ids := kills(parseStates(out), flows, h)
	until := time.Now().Add(cutBound)
	var work errgroup.Group
	work.SetLimit(cutsAtOnce)
	for i, id := range ids {
		if time.Now().After(until) {
			return errors.Join(work.Wait(), fmt.Errorf("kill pf states: %d of %d are left after %s", len(ids)-i, len(ids), cutBound))
		}
		work.Go(func() error {
			if _, err := r.pfctl(ctx, call{args: []string{"-k", "id", "-k", id}}); err != nil {
				return fmt.Errorf("kill pf state %s: %w", id, err)
			}
			return nil
		})
	}
	return work.Wait()
}

// HostAddrs are the host's own IPv4 addresses but for its loopback.
func HostAddrs() (out []netip.Addr, err error) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	for _, a := range all {
		n, ok := a.(*net.IPNet)
		if !ok || n.IP.To4() == nil || n.IP.IsLoopback() {
			continue
		}
		if ip, ok := netip.AddrFromSlice(n.IP.To4()); ok {
			out = append(out, ip)
		}
	}
	return out, nil
}
