// SPDX-License-Identifier: BSD-2-Clause

package executor

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/api/naming"

	"satld/network"
	"satld/traffic"
)

const (
	overlayDriver = "overlay"
	// VNIOption is where Docker keeps the number of an overlay's VXLAN.
	VNIOption = "com.docker.network.driver.overlay.vxlanid_list"
	// overlayPatience is how long a task waits for this node to be told its own
	// address in a network: both are decided at once, and come by two ways.
	overlayPatience = 10 * time.Second
	overlayPoll     = 20 * time.Millisecond
)

// IsOverlay tells whether a network is one network on all nodes.
func IsOverlay(n *api.Network) bool {
	return n.Spec.Ingress || n.Spec.DriverConfig != nil && n.Spec.DriverConfig.Name == overlayDriver
}

// OverlayOf is a network's subnet and VXLAN number; ok is false where it has
// none, not being an overlay or not being complete.
func OverlayOf(n *api.Network) (subnet netip.Prefix, vni uint32, ok bool) {
	if !IsOverlay(n) || n.DriverState == nil || n.IPAM == nil || len(n.IPAM.Configs) == 0 {
		return netip.Prefix{}, 0, false
	}
	id, err := strconv.ParseUint(n.DriverState.Options[VNIOption], 10, 24)
	if err != nil {
		return netip.Prefix{}, 0, false
	}
	subnet, err = netip.ParsePrefix(n.IPAM.Configs[0].Subnet)
	return subnet.Masked(), uint32(id), err == nil
}

// AttachedAt is the address of an attachment; ok is false before it has one.
func AttachedAt(at *api.NetworkAttachment) (netip.Prefix, bool) {
	if len(at.Addresses) == 0 {
		return netip.Prefix{}, false
	}
	p, err := netip.ParsePrefix(at.Addresses[0])
	return p, err == nil
}

// takeOverlays makes the overlay networks that this node is in, with its own
// address in each.
func (n *Node) takeOverlays(ctx context.Context, node *api.Node) {
	in := make(map[string]bool, len(node.Attachments))
	for _, at := range node.Attachments {
		if at.Network != nil {
			in[at.Network.ID] = true
		}
	}
	for _, have := range n.cfg.Networks.List() {
		if have.VNI == 0 || in[have.ID] {
			continue
		}
		// One that a container is still in stays until the next time.
		if err := n.cfg.Networks.Remove(ctx, have.ID); err != nil && !cerrdefs.IsConflict(err) {
			n.log.Warn("overlay network that this node is no longer in could not be removed", "network", have.Name, "err", err)
		}
	}
	n.attachments.Store(&node.Attachments)
	n.giveBackAddresses(node)
	for _, at := range node.Attachments {
		if _, err := n.joinOverlay(ctx, at); err != nil {
			n.log.Error("overlay network could not be made; it is tried again for each task in it", "network", at.Network.Spec.Annotations.Name, "err", err)
		}
	}
}

// joinOverlay makes one network that this node is in; ok is false where the
// store does not say yet how.
func (n *Node) joinOverlay(ctx context.Context, at *api.NetworkAttachment) (ok bool, err error) {
	if at.Network == nil || len(at.Aliases) > 0 {
		return false, nil
	}
	subnet, vni, complete := OverlayOf(at.Network)
	own, has := AttachedAt(at)
	if !complete || !has {
		return false, nil
	}
	_, err = n.cfg.Networks.Ensure(ctx, network.Network{
		ID: at.Network.ID, Name: at.Network.Spec.Annotations.Name, Internal: at.Network.Spec.Internal,
		Subnet: subnet, Gateway: own.Addr(), VNI: vni, Isolated: at.Network.Spec.Ingress,
	})
	return true, err
}

// awaitOverlay waits until this node is in an overlay network of a task.
func (n *Node) awaitOverlay(ctx context.Context, of *api.Network) error {
	name := of.Spec.Annotations.Name
	if _, _, ok := OverlayOf(of); !ok {
		return fmt.Errorf("overlay network %s has no subnet yet", name)
	}
	return n.awaitNetwork(ctx, of.ID, name)
}

// awaitNetwork waits until this node is in an overlay network.
func (n *Node) awaitNetwork(ctx context.Context, id, name string) error {
	ctx, cancel := context.WithTimeout(ctx, overlayPatience)
	defer cancel()
	tick := time.NewTicker(overlayPoll)
	defer tick.Stop()
	for {
		if have, known := n.cfg.Networks.Get(id); known && have.VNI != 0 {
			return nil
		}
		if at := n.attachedTo(id); at != nil {
			if ok, err := n.joinOverlay(ctx, at); err != nil {
				return fmt.Errorf("join overlay network %s: %w", name, err)
			} else if ok {
				return nil
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("this node has no address in overlay network %s yet: %w", name, ctx.Err())
		}
	}
}

// attachedTo is this node's own attachment to a network, as it was told last.
func (n *Node) attachedTo(networkID string) *api.NetworkAttachment {
	told := n.attachments.Load()
	if told == nil {
		return nil
	}
	for _, at := range *told {
		if at.Network != nil && at.Network.ID == networkID && len(at.Aliases) == 0 {
			return at
		}
	}
	return nil
}

// takeNetworks reads a task's networks. One that publishes ports is in the
// ingress network besides those of its own, and the node's own network is for
// tasks that have none.
func (r *Record) takeNetworks(t *api.Task) {
	own := false
	r.Aliases, r.Addrs = make(map[string][]string), make(map[string]netip.Addr)
	for _, a := range t.Networks {
		if a.Network == nil {
			continue
		}
		if isHostNetwork(a.Network) {
			r.Host = true
			continue
		}
		own = own || !a.Network.Spec.Ingress
		r.NetworkIDs = append(r.NetworkIDs, a.Network.ID)
		r.Aliases[a.Network.ID] = a.Aliases
		if p, ok := AttachedAt(a); ok && IsOverlay(a.Network) {
			r.Addrs[a.Network.ID] = p.Addr()
		}
		if a.Network.Spec.Ingress {
			r.IngressID = a.Network.ID
		}
	}
	if r.Host {
		r.NetworkIDs = nil
	} else if !own {
		r.NetworkIDs = append([]string{network.DefaultID}, r.NetworkIDs...)
	}
}

// NamedIn are the networks that the names of a service are in, as takeNetworks
// has them for its tasks. get finds a network by its ID.
func NamedIn(spec *api.ServiceSpec, get func(id string) *api.Network) (ids []string) {
	attachments := spec.Task.Networks
	if len(attachments) == 0 {
		attachments = spec.Networks // where older clients put them
	}
	for _, a := range attachments {
		if n := get(a.Target); n != nil && isHostNetwork(n) {
			return nil
		}
		ids = append(ids, a.Target)
	}
	if len(ids) == 0 {
		ids = []string{network.DefaultID}
	}
	return ids
}

// places are where the container is to be.
func (r Record) places() []network.Place {
	places := network.Anywhere(r.NetworkIDs...)
	for i := range places {
		places[i].Addr = r.Addrs[places[i].NetworkID]
	}
	return places
}

// RemoteMember is a task of another node as traffic has to know it: where it
// can be reached from here, and what is sent to it. Its Serving says RUNNING
// and to go on running. ok is false for a task that nothing can be sent to.
func RemoteMember(t *api.Task) (m traffic.Member, ok bool) {
	r := Record{}
	if err := r.takeServiceLabels(t.ServiceAnnotations.Labels); err != nil {
		return m, false // it cannot be running
	}
	live := t.Status.State >= api.TaskStateStarting && t.Status.State <= api.TaskStateRunning
	m = traffic.Member{
		ContainerID: taskContainerID(t.ID), Name: naming.Task(t), TaskID: t.ID,
		ServiceID: t.ServiceID, ServiceName: t.ServiceAnnotations.Name, Slot: t.Slot,
		NotReadyNames: r.NotReady, FailOpen: r.FailOpen,
		Serving: t.Status.State == api.TaskStateRunning && t.DesiredState <= api.TaskStateRunning, Process: live,
	}
	for _, at := range t.Networks {
		p, has := AttachedAt(at)
		if at.Network == nil || !has || !IsOverlay(at.Network) {
			continue
		}
		e := traffic.Endpoint{NetworkID: at.Network.ID, Addr: p.Addr(), Aliases: at.Aliases, Nameless: at.Network.Spec.Ingress}
		if e.Nameless { // what is published is sent there
			m.Endpoints = append([]traffic.Endpoint{e}, m.Endpoints...)
		} else {
			m.Endpoints = append(m.Endpoints, e)
		}
	}
	if t.Endpoint != nil {
		for _, p := range t.Endpoint.Ports {
			if p.PublishMode == api.PublishModeIngress && p.PublishedPort != 0 {
				m.Ports = append(m.Ports, portBinding(p).traffic())
			}
		}
	}
	return m, len(m.Endpoints) > 0
}
