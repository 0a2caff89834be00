// SPDX-License-Identifier: BSD-2-Clause

package pf

import (
	"net/netip"
	"slices"
	"strings"

	"satld/redirect"
)

// state is one redirected flow as `pfctl -ss -vv` prints it. A flow through a
// published port has two states; the inbound one names the backend, the address
// that was dialled in parentheses, and the client:
//
//	all udp 10.89.0.2:5300 (10.89.0.1:5300) <- 10.89.0.4:4445       MULTIPLE:SINGLE
//	   ...
//	   id: a48e0c6b00000001 creatorid: 5242698a
//
// Killing that one by its ID makes the flow's next packet go to a member as
// they are then; killing by address does not (the facts measured).
type state struct {
	proto    string
	backend  netip.AddrPort
	dialled  netip.AddrPort
	id       string
	halfOpen bool
}

// parseStates finds the redirected inbound states.
func parseStates(text string) (out []state) {
	var last *state
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
		if len(f) < 6 || f[4] != "<-" || !strings.HasPrefix(f[3], "(") {
			continue
		}
		backend, err1 := netip.ParseAddrPort(f[2])
		dialled, err2 := netip.ParseAddrPort(strings.Trim(f[3], "()"))
		if err1 != nil || err2 != nil {
			continue
		}
		out = append(out, state{proto: f[1], backend: backend, dialled: dialled, halfOpen: strings.Contains(f[len(f)-1], "SYN_SENT")})
		last = &out[len(out)-1]
	}
	return slices.DeleteFunc(out, func(s state) bool { return s.id == "" })
}

// kills are the IDs of the states that the flows name. Established TCP goes
// only with All (cases/pool.md, pool-2).
func kills(states []state, flows []redirect.Flow, subnets []redirect.Subnet) (ids []string) {
	for _, s := range states {
		ours := slices.ContainsFunc(subnets, func(n redirect.Subnet) bool { return n.Prefix.Contains(s.backend.Addr()) })
		for _, f := range flows {
			k := redirect.MakeKey(f.Proto, f.HostIP, f.Published)
			match := s.proto == f.Proto && s.dialled.Port() == f.Published && (k.Any() || s.dialled.Addr() == k.HostIP)
			soft := f.All || f.Proto == "udp" || s.halfOpen
			named := s.backend == f.Backend || !f.Backend.IsValid() && ours && !slices.Contains(f.Keep, s.backend)
			if match && soft && named {
				ids = append(ids, s.id)
				break
			}
		}
	}
	return ids
}
