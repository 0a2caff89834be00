// SPDX-License-Identifier: BSD-2-Clause

package traffic

import (
	"cmp"
	"fmt"
	"iter"
	"net/netip"
	"slices"

	"github.com/containerd/errdefs"

	"satld/redirect"
)

// serves is the one predicate.
func (m Member) serves() bool { return m.Serving && m.Process }

// group is who shares pools: the tasks of one service, or one container alone.
func (m Member) group() string {
	if m.ServiceID != "" {
		return m.ServiceID
	}
	return "container " + m.ContainerID
}

// Check refuses a member that no packet filter could hold.
func (m Member) Check() error {
	if m.ContainerID == "" {
		return fmt.Errorf("traffic member without a container ID: %w", errdefs.ErrInvalidArgument)
	}
	for _, p := range m.Ports {
		k := redirect.MakeKey(p.Proto, p.HostIP, p.Published)
		switch {
		case p.Proto != "tcp" && p.Proto != "udp" && p.Proto != "sctp":
			return fmt.Errorf("published port %s: unknown protocol %q: %w", k, p.Proto, errdefs.ErrInvalidArgument)
		case p.Published == 0 || p.Target == 0:
			return fmt.Errorf("published port %s->%d: neither may be 0: %w", k, p.Target, errdefs.ErrInvalidArgument)
		case !k.HostIP.Is4():
			return fmt.Errorf("published port %s: only IPv4 host addresses: %w", k, errdefs.ErrInvalidArgument)
		}
	}
	for _, e := range m.Endpoints {
		if !e.Addr.Is4() {
			return fmt.Errorf("address %s of container %s: only IPv4: %w", e.Addr, m.ContainerID, errdefs.ErrInvalidArgument)
		}
	}
	return nil
}

// Plan computes everything that the packet filter is to hold. It is pure:
//
//   - a pool for each port that any member publishes, empty when nobody serves;
//   - in it who serves, and of a service where nobody does and FailOpen is set,
//     those that run and are out for their health alone;
//   - one service to a pool: of two that claim a port the one that has somebody
//     to send traffic to has it, then the one with the smaller ID. Admission
//     refuses the second; it can overlap only while one goes and another comes;
//   - no address under two members: where an address is claimed twice the
//     living one has it.
func Plan(members []Member, subnets []redirect.Subnet) redirect.Rules {
	members = slices.Clone(members)
	slices.SortFunc(members, func(a, b Member) int {
		return cmp.Or(compareBool(b.Process, a.Process), cmp.Compare(a.ContainerID, b.ContainerID))
	})
	open := failsOpen(slices.Values(members))
	owner := make(map[netip.Addr]string)
	claims := make(map[redirect.Key]map[string]claim)
	for _, m := range members {
		if len(m.Endpoints) == 0 {
			continue
		}
		addr := m.Endpoints[0].Addr
		if _, claimed := owner[addr]; !claimed {
			owner[addr] = m.ContainerID
		}
		in := owner[addr] == m.ContainerID && (m.serves() || open[m.group()] && m.fallback())
		for _, p := range m.Ports {
			k := redirect.MakeKey(p.Proto, p.HostIP, p.Published)
			if claims[k] == nil {
				claims[k] = make(map[string]claim)
			}
			c := claims[k][m.group()]
			c.targets = append(c.targets, p.Target)
			if in {
				c.backends = append(c.backends, netip.AddrPortFrom(addr, p.Target))
			}
			claims[k][m.group()] = c
		}
	}
	rules := redirect.Rules{Subnets: subnets}
	for k, groups := range claims {
		winner, first := "", true
		for g, c := range groups {
			better := cmp.Or(-compareBool(len(c.backends) > 0, len(groups[winner].backends) > 0), cmp.Compare(g, winner))
			if first || better < 0 {
				winner, first = g, false
			}
		}
		rules.Pools = append(rules.Pools, redirect.Pool{Proto: k.Proto, HostIP: k.HostIP, Published: k.Published, Members: groups[winner].backends, Target: mostCommon(groups[winner].targets)})
	}
	return rules.Normalise()
}

// claim is what one group has to do with one published port.
type claim struct {
	backends []netip.AddrPort // who gets traffic
	targets  []uint16         // the container ports of all, serving or not
}

// mostCommon is the port that most have, the smaller on a tie.
func mostCommon(ports []uint16) (most uint16) {
	count := make(map[uint16]int)
	for _, p := range ports {
		count[p]++
	}
	for p, n := range count {
		if d := cmp.Or(cmp.Compare(n, count[most]), cmp.Compare(most, p)); most == 0 || d > 0 {
			most = p
		}
	}
	return most
}

// fallback tells whether fail-open may send to the member.
func (m Member) fallback() bool { return m.FailOpen && m.Unhealthy && m.Process && !m.Serving }

// failsOpen finds the services where nobody serves and somebody is there to
// fall back on.
func failsOpen(members iter.Seq[Member]) map[string]bool {
	serving, back := make(map[string]bool), make(map[string]bool)
	for m := range members {
		serving[m.group()] = serving[m.group()] || m.serves()
		back[m.group()] = back[m.group()] || m.fallback()
	}
	open := make(map[string]bool)
	for g := range back {
		if back[g] && !serving[g] {
			open[g] = true
		}
	}
	return open
}

// compareBool orders false before true.
func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// staleFlows names the connection state that a change from old to new leaves
// behind: flows through each pool whose members changed, to others than its
// members. With old unknown (the first pass), every pool counts as changed.
func staleFlows(old *redirect.Rules, now redirect.Rules) []redirect.Flow {
	type port struct {
		proto     string
		published uint16
	}
	keep, before := make(map[port][]netip.AddrPort), make(map[redirect.Key][]netip.AddrPort)
	for _, p := range now.Pools {
		at := port{p.Proto, p.Published}
		keep[at] = append(keep[at], p.Members...)
	}
	changed := make(map[redirect.Key]bool)
	if old != nil {
		for _, p := range old.Pools {
			before[p.Key()] = p.Members
			changed[p.Key()] = true
		}
	}
	for _, p := range now.Pools {
		was, known := before[p.Key()]
		changed[p.Key()] = !known || !slices.Equal(was, p.Members)
	}
	var flows []redirect.Flow
	for k := range changed {
		if changed[k] {
			flows = append(flows, redirect.Flow{Proto: k.Proto, HostIP: k.HostIP, Published: k.Published, Keep: keep[port{k.Proto, k.Published}]})
		}
	}
	slices.SortFunc(flows, func(a, b redirect.Flow) int {
		return redirect.MakeKey(a.Proto, a.HostIP, a.Published).Compare(redirect.MakeKey(b.Proto, b.HostIP, b.Published))
	})
	return flows
}

// endedFlows names all that is left to a member whose process is gone.
func endedFlows(m Member) (flows []redirect.Flow) {
	if len(m.Endpoints) == 0 {
		return nil
	}
	for _, p := range m.Ports {
		flows = append(flows, redirect.Flow{
			Proto: p.Proto, HostIP: p.HostIP, Published: p.Published,
			Backend: netip.AddrPortFrom(m.Endpoints[0].Addr, p.Target), All: true,
		})
	}
	return flows
}
