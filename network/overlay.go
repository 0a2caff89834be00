// SPDX-License-Identifier: BSD-2-Clause

package network

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
)

const (
	// vxlanPort is VXLAN's own (RFC 7348).
	vxlanPort = 4789
	// vxlanHeaders is what VXLAN over IPv4 adds to a frame's payload (RFC 7348).
	vxlanHeaders = 50
	// overlayMTU is what is left of an Ethernet frame.
	overlayMTU = 1500 - vxlanHeaders
	// leastMTU and mostMTU bound what follows a carrier: every host takes a
	// datagram of the least (RFC 791), and a vxlan of Linux no more than the most.
	leastMTU = 576
	mostMTU  = 65535 - vxlanHeaders
)

// mtu is the network's, in bytes; 0 is the system's own.
func (n Network) mtu() int {
	if n.VNI != 0 {
		return cmp.Or(n.MTU, overlayMTU)
	}
	return 0
}

// tunnel names the link that carries a network to other nodes.
func (m mark) tunnel(networkID string) string { return "sx" + hash(10, string(m), networkID, "vxlan") }

// SetPeers makes every overlay network of this node reach exactly the given
// addresses on other nodes, by the network's ID. local is this node's own
// address outside the overlays. It is meant to be called with the whole at
// each change, and again now and then: what is right already stays untouched.
// The networks' MTU is brought to what the interface with that address leaves.
func (m *Manager) SetPeers(ctx context.Context, local netip.Addr, peers map[string][]Peer) error {
	defer m.byWork.lock(bridgesKey)()
	errs := []error{m.followCarrier(ctx, local)}
	for _, n := range m.List() {
		if n.VNI == 0 {
			continue
		}
		of := slices.DeleteFunc(slices.Clone(peers[n.ID]), func(p Peer) bool {
			return !n.Subnet.Contains(p.Addr) || p.Addr == n.Gateway || p.Host == local || !p.Host.Is4()
		})
		slices.SortFunc(of, func(a, b Peer) int { return a.Addr.Compare(b.Addr) })
		of = slices.CompactFunc(of, func(a, b Peer) bool { return a.Addr == b.Addr })
		if err := m.links.tunnel(ctx, n, local, of); err != nil {
			errs = append(errs, fmt.Errorf("network %s: %w", n.Name, err))
		}
	}
	return errors.Join(errs...)
}

// Anywhere is a place in each network, at whatever address the node picks.
func Anywhere(networkIDs ...string) []Place {
	places := make([]Place, 0, len(networkIDs))
	for _, id := range networkIDs {
		places = append(places, Place{NetworkID: id})
	}
	return places
}
