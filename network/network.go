// SPDX-License-Identifier: BSD-2-Clause

// Package network makes bridges, namespaces, links and addresses for the
// containers of this node. It owns the node's address pool and who has which
// address; it publishes no port, writes no packet filter and answers no name.
//
// IPv4 only: bridges and the links of containers carry no IPv6 address (a
// container's own lo keeps ::1).
//
// The pool is cut into blocks (see Blocks). The node's own network, DefaultID,
// has the first block and the bridge named in Config; each further network
// without a subnet of its own gets the next free block. Every interface bears
// a mark (Linux: its alias; FreeBSD: its description and group) made of the
// state directory, so that several daemons on a host never touch each other's
// and a sweep finds its own and nothing else.
package network

import (
	"context"
	"net/netip"
)

var _ Networks = (*Manager)(nil)

// DefaultID is the ID of the node's own network, the same on every node.
const DefaultID = "satldefaultnetwork0000000"

// Network is one bridge network of this node.
type Network struct {
	ID       string       // as in the store; DefaultID for the node's own
	Name     string       // as users name it
	Bridge   string       // interface name, at most 15 characters
	Subnet   netip.Prefix // 10.88.0.0/20
	Gateway  netip.Addr   // the bridge's own address: default route and DNS server of its tasks
	Internal bool         // no route out
	// VNI is the number of the VXLAN that makes it one network on all nodes; 0
	// is a network of this node alone. With one, Subnet and Gateway are given:
	// the gateway is this node's own address, and differs from node to node.
	VNI uint32
	// Isolated keeps its containers on this node from reaching each other.
	Isolated bool
	// MTU of an overlay, in bytes, is what its carrier leaves (see SetPeers).
	// Ensure keeps it; 0 is not known yet.
	MTU int `json:",omitempty"`
}

// Place is a network to be in. Addr is the address to have there; invalid is
// one that the node picks, which only a network of its own lets it do.
type Place struct {
	NetworkID string
	Addr      netip.Addr
}

// Peer is an address of an overlay network that is on another node.
type Peer struct {
	Addr netip.Addr
	Host netip.Addr // the node's own address, outside the overlay
}

// Attachment is one container's place in one network.
type Attachment struct {
	NetworkID string
	Addr      netip.Prefix // the container's address with the subnet's length
	Gateway   netip.Addr
	MAC       string
	Interface string // name inside the container: eth0, eth1, ...
}

// Networks is what the rest of the program uses of this package; *Manager
// implements it. Everything is recorded under the state directory before it
// is made, marked as ours, and swept when nobody owns it.
type Networks interface {
	// Ensure makes the bridge of a network if it is missing; idempotent.
	// A zero Subnet is filled in from the node's pool; a subnet that overlaps
	// another network or one of the host's routes is refused (ErrConflict).
	Ensure(ctx context.Context, n Network) (Network, error)
	// Remove deletes a network's bridge. ErrConflict while attached.
	Remove(ctx context.Context, id string) error
	Get(id string) (Network, bool)
	List() []Network
	// Attach gives the container a network namespace (the same path each
	// time) with one interface for each network, addresses and routes set.
	// It is idempotent: the same container keeps its addresses.
	Attach(ctx context.Context, containerID string, places []Place) (netns string, at []Attachment, err error)
	// Attachments tells what Attach gave, also after a restart of the daemon.
	Attachments(containerID string) []Attachment
	// Detach removes interfaces and namespace; its addresses are not given
	// out again for ReuseDelay, so that no stale DNS answer reaches a
	// stranger (cases/gate-dns.md, gate-dns-4). Idempotent.
	Detach(ctx context.Context, containerID string) error
	// Sweep detaches every container that keep does not name.
	Sweep(ctx context.Context, keep map[string]bool) error
}
