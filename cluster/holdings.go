// SPDX-License-Identifier: BSD-2-Clause

package cluster

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/moby/swarmkit/v2/api"
)

// PoolLabel is the engine label of a node that says which addresses the networks
// of its own are cut from: an overlay network with one of them could not be made
// there, and its tasks would be refused.
const PoolLabel = "satl.network-pool"

// networkPoolOf is a node's own pool; invalid if it has not said.
func networkPoolOf(node *api.Node) netip.Prefix {
	if node.Description == nil || node.Description.Engine == nil {
		return netip.Prefix{}
	}
	p, err := netip.ParsePrefix(node.Description.Engine.Labels[PoolLabel])
	if err != nil {
		return netip.Prefix{}
	}
	return p.Masked()
}

// nodeName is what people call a node.
func nodeName(node *api.Node) string {
	if node.Description == nil {
		return node.ID
	}
	return cmp.Or(node.Description.Hostname, node.ID)
}

// holdings are addresses that somebody has already.
type holdings []holding

type holding struct {
	subnet netip.Prefix
	by     string // "network web", "the network pool of node vm (its --network-pool)"
}

// add notes a holding; of an invalid prefix nothing.
func (c *holdings) add(subnet netip.Prefix, by string) {
	if subnet.IsValid() {
		*c = append(slices.Clip(*c), holding{subnet, by})
	}
}

func (c holdings) overlap(p netip.Prefix) bool {
	return slices.ContainsFunc(c, func(o holding) bool { return o.subnet.Overlaps(p) })
}

// smallestOverlay holds the addresses that are nobody's (see take), a node, and
// a few tasks; largest is what a node takes for any network.
const (
	smallestOverlay = 29
	largestOverlay  = 8
)

// checkOverlay tells what is wrong with a subnet that somebody asks for: what a
// node would refuse once it had a task in it.
func checkOverlay(subnet netip.Prefix, taken holdings) error {
	a := subnet.Addr()
	switch {
	case subnet.Bits() > smallestOverlay:
		return fmt.Errorf("subnet %s is too small for an overlay network, in which every node and every task has an address: it must be between /%d and /%d",
			subnet, largestOverlay, smallestOverlay)
	case subnet.Bits() < largestOverlay:
		return fmt.Errorf("subnet %s is too large for a network: it must be between /%d and /%d", subnet, largestOverlay, smallestOverlay)
	case a.IsLoopback() || a.IsMulticast() || a.IsLinkLocalUnicast() || a.As4()[0] == 0 || a.As4()[0] >= 240:
		return fmt.Errorf("subnet %s is no range of addresses that hosts can have", subnet)
	}
	for _, o := range taken {
		switch {
		case !o.subnet.Overlaps(subnet):
		case strings.HasPrefix(o.by, "network "):
			return fmt.Errorf("subnet %s overlaps %s of %s: choose another", subnet, o.subnet, o.by)
		default:
			return fmt.Errorf("subnet %s overlaps %s, %s: choose another", subnet, o.subnet, o.by)
		}
	}
	return nil
}
