// SPDX-License-Identifier: BSD-2-Clause

package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	"github.com/moby/swarmkit/v2/api"

	"satld/executor"
)

// Overlay networks are one network on all nodes: the store says which subnet
// one has, which number its VXLAN, and who has which address, nodes among
// them. A node's own address in it is where its tasks are routed out, and what
// its redirected traffic comes from.
const (
	overlayDriver = "overlay"
	firstVNI      = 4097

	// overlayBits is how large a network without a subnet of its own is, in
	// Docker; ingressBits is that of the one that every published task is in.
	overlayBits = 24
	ingressBits = 20
)

// DefaultOverlayPool is where overlay networks get their subnets from.
var DefaultOverlayPool = netip.MustParsePrefix("10.89.0.0/16")

// poolOf is where the cluster's overlay networks get their subnets from.
func poolOf(clusters []*api.Cluster, unset netip.Prefix) (netip.Prefix, error) {
	for _, c := range clusters {
		if len(c.DefaultAddressPool) > 0 {
			p, err := netip.ParsePrefix(c.DefaultAddressPool[0])
			if err != nil {
				return p, fmt.Errorf("the cluster's address pool: %w", err)
			}
			return p.Masked(), nil
		}
	}
	return unset, nil
}

// errPoolEmpty is a pool without a free subnet.
var errPoolEmpty = errors.New("no subnet is free for another overlay network: give it one with --subnet")

// subnetOf is the subnet that a network has or asks for; invalid if it has none.
func subnetOf(n *api.Network) netip.Prefix {
	for _, ipam := range []*api.IPAMOptions{n.IPAM, n.Spec.IPAM} {
		if ipam != nil && len(ipam.Configs) > 0 && ipam.Configs[0].Subnet != "" {
			p, err := netip.ParsePrefix(ipam.Configs[0].Subnet)
			if err == nil {
				return p.Masked()
			}
		}
	}
	return netip.Prefix{}
}

// settleOverlay completes a network that is an overlay and has no subnet or
// number yet. others are all other networks; nodes are those that will be in it.
func settleOverlay(n *api.Network, others []*api.Network, nodes []*api.Node, pool netip.Prefix) error {
	if _, _, done := executor.OverlayOf(n); done || !executor.IsOverlay(n) {
		return nil
	}
	numbers := map[uint32]bool{}
	var taken holdings
	for _, o := range others {
		if o.ID == n.ID {
			continue
		}
		taken.add(subnetOf(o), "network "+o.Spec.Annotations.Name)
		if _, vni, ok := executor.OverlayOf(o); ok {
			numbers[vni] = true
		}
	}
	known := taken
	for _, node := range nodes {
		known.add(networkPoolOf(node), fmt.Sprintf("the network pool of node %s (its --network-pool)", nodeName(node)))
	}
	subnet := subnetOf(n)
	if subnet.IsValid() {
		if err := checkOverlay(subnet, known); err != nil {
			return err
		}
	} else {
		bits := overlayBits
		if n.Spec.Ingress {
			bits = ingressBits
		}
		bits = max(bits, pool.Bits())
		var ok bool
		if subnet, ok = freeSubnet(pool, bits, known.overlap); !ok {
			// Better one that some node cannot be in than none.
			if subnet, ok = freeSubnet(pool, bits, taken.overlap); !ok {
				return errPoolEmpty
			}
		}
	}
	vni := uint32(firstVNI)
	for numbers[vni] {
		vni++
	}
	n.IPAM = &api.IPAMOptions{
		Driver:  &api.Driver{Name: "default"},
		Configs: []*api.IPAMConfig{{Subnet: subnet.String(), Gateway: subnet.Addr().Next().String()}},
	}
	n.DriverState = &api.Driver{Name: overlayDriver, Options: map[string]string{executor.VNIOption: strconv.FormatUint(uint64(vni), 10)}}
	return nil
}

// freeSubnet is the first prefix of the pool with so many bits that does not
// overlap.
func freeSubnet(pool netip.Prefix, bits int, overlaps func(netip.Prefix) bool) (netip.Prefix, bool) {
	for p := netip.PrefixFrom(pool.Masked().Addr(), bits); pool.Contains(p.Addr()); {
		if !overlaps(p) {
			return p, true
		}
		next, ok := after(p)
		if !ok {
			break
		}
		p = next
	}
	return netip.Prefix{}, false
}

// after is the prefix of the same size that follows.
func after(p netip.Prefix) (netip.Prefix, bool) {
	a := p.Addr().As4()
	n := uint64(a[0])<<24 | uint64(a[1])<<16 | uint64(a[2])<<8 | uint64(a[3])
	if n += 1 << (32 - p.Bits()); n > 1<<32-1 {
		return netip.Prefix{}, false
	}
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}), p.Bits()), true
}

// addresses are those in use in one overlay network.
type addresses struct {
	subnet  netip.Prefix
	used    map[netip.Addr]bool
	cooling map[netip.Addr]bool // of tasks that ended: taken only when there is nothing else
	last    netip.Addr          // given most recently: the next comes after it, so that names are not answered with a stranger's address
}

// newAddresses reads what nodes and tasks have in a network.
func newAddresses(n *api.Network, subnet netip.Prefix, nodes []*api.Node, tasks []*api.Task) *addresses {
	a := &addresses{subnet: subnet, used: map[netip.Addr]bool{}, cooling: map[netip.Addr]bool{}}
	for _, node := range nodes {
		for _, at := range node.Attachments {
			if at.Network != nil && at.Network.ID == n.ID {
				a.use(at, true)
			}
		}
	}
	var newest uint64
	for _, t := range tasks {
		for _, at := range t.Networks {
			if at.Network == nil || at.Network.ID != n.ID {
				continue
			}
			live := t.Status.State <= api.TaskStateRunning
			addr, ok := a.use(at, live)
			if ok && t.Meta.Version.Index >= newest {
				newest, a.last = t.Meta.Version.Index, addr
			}
		}
	}
	return a
}

// use notes the address of an attachment.
func (a *addresses) use(at *api.NetworkAttachment, live bool) (netip.Addr, bool) {
	p, ok := executor.AttachedAt(at)
	if !ok || !a.subnet.Contains(p.Addr()) {
		return netip.Addr{}, false
	}
	if live {
		a.used[p.Addr()] = true
	} else {
		a.cooling[p.Addr()] = true
	}
	return p.Addr(), true
}

// take gives an address. The network's, the first (shown as its gateway) and
// the last are nobody's.
func (a *addresses) take() (netip.Prefix, bool) {
	first := a.subnet.Addr().Next().Next()
	start := first
	if a.last.IsValid() && a.subnet.Contains(a.last.Next().Next()) {
		start = a.last.Next()
	}
	for _, cooling := range []bool{false, true} {
		for addr, wrapped := start, false; ; {
			if !a.subnet.Contains(addr.Next()) { // addr is the broadcast address
				if wrapped {
					break
				}
				addr, wrapped = first, true
				continue
			}
			if !a.used[addr] && (cooling || !a.cooling[addr]) {
				a.used[addr], a.last = true, addr
				return netip.PrefixFrom(addr, a.subnet.Bits()), true
			}
			addr = addr.Next()
			if wrapped && addr == start {
				break
			}
		}
	}
	return netip.Prefix{}, false
}

// overlayPlan is what is to be written so that every overlay network has its
// subnet, and every node its address in each.
type overlayPlan struct {
	networks []*api.Network
	nodes    []*api.Node
	// pools are the addresses of each network by its ID, for tasks to take from.
	pools map[string]*addresses
}

// planOverlays decides on networks and nodes. tasks are all of the store.
func planOverlays(networks []*api.Network, nodes []*api.Node, tasks []*api.Task, pool netip.Prefix) (p overlayPlan, err error) {
	p.pools = make(map[string]*addresses)
	networks = slices.Clone(networks)
	// The oldest first, so that two that claim one subnet are told apart the
	// same way each time.
	slices.SortFunc(networks, func(a, b *api.Network) int {
		return cmp.Or(cmp.Compare(created(a.Meta), created(b.Meta)), cmp.Compare(a.ID, b.ID))
	})
	var overlays []*api.Network
	for i, n := range networks {
		if !executor.IsOverlay(n) {
			continue
		}
		if _, _, done := executor.OverlayOf(n); !done {
			n = n.Copy()
			if serr := settleOverlay(n, networks, nodes, pool); serr != nil {
				err = errors.Join(err, fmt.Errorf("network %s: %w", n.Spec.Annotations.Name, serr))
				continue
			}
			networks[i] = n
			p.networks = append(p.networks, n)
		}
		subnet, _, _ := executor.OverlayOf(n)
		p.pools[n.ID] = newAddresses(n, subnet, nodes, tasks)
		overlays = append(overlays, n)
	}
	for _, node := range nodes {
		next, changed, aerr := attachNode(node, overlays, p.pools)
		err = errors.Join(err, aerr)
		if changed {
			p.nodes = append(p.nodes, next)
		}
	}
	return p, err
}

func created(m api.Meta) int64 {
	if m.CreatedAt == nil {
		return 0
	}
	return m.CreatedAt.Seconds*1e9 + int64(m.CreatedAt.Nanos)
}

// attachNode gives a node its address in each overlay network and takes those
// of networks that are gone.
func attachNode(node *api.Node, overlays []*api.Network, pools map[string]*addresses) (next *api.Node, changed bool, err error) {
	has := make(map[string]bool)
	next = node.Copy()
	next.Attachments = slices.DeleteFunc(next.Attachments, func(at *api.NetworkAttachment) bool {
		gone := at.Network == nil || pools[at.Network.ID] == nil
		if !gone && len(at.Aliases) == 0 { // those with one are of a container
			has[at.Network.ID] = true
		}
		changed = changed || gone
		return gone
	})
	for _, n := range overlays {
		if has[n.ID] {
			continue
		}
		addr, ok := pools[n.ID].take()
		if !ok {
			err = errors.Join(err, fmt.Errorf("network %s has no address left for node %s", n.Spec.Annotations.Name, node.ID))
			continue
		}
		next.Attachments = append(next.Attachments, &api.NetworkAttachment{Network: n.Copy(), Addresses: []string{addr.String()}})
		changed = true
	}
	return next, changed, err
}
