// SPDX-License-Identifier: BSD-2-Clause

package cluster

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/manager/state/store"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"satld/executor"
)

// A container that is no task has its address in an overlay network as one
// more attachment of its node, with the container's ID as its alias.

// attachment is a container in a network, on its way to the leader.
type attachment struct {
	Network   string
	Container string
}

func (a attachment) of(at *api.NetworkAttachment) bool {
	return at.Network != nil && at.Network.ID == a.Network && slices.Equal(at.Aliases, []string{a.Container})
}

// AttachContainer implements executor.Leader.
func (n *Node) AttachContainer(ctx context.Context, networkID, containerID string) (netip.Addr, error) {
	var addr netip.Addr
	if err := n.member.Load().askLeader(ctx, "attach-container", attachment{networkID, containerID}, &addr); err != nil {
		return addr, fmt.Errorf("ask for an address in network %s: %w", networkID, err)
	}
	return addr, nil
}

// DetachContainer implements executor.Leader.
func (n *Node) DetachContainer(ctx context.Context, networkID, containerID string) error {
	if err := n.member.Load().askLeader(ctx, "detach-container", attachment{networkID, containerID}, nil); err != nil {
		return fmt.Errorf("give back the address in network %s: %w", networkID, err)
	}
	return nil
}

// attachContainer answers on the leader, to the node that the container is on.
func (n *member) attachContainer(ctx context.Context, caller string, in attachment) (any, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return attachContainer(n.store, caller, in)
}

func attachContainer(s *store.MemoryStore, nodeID string, in attachment) (addr netip.Addr, err error) {
	if in.Container == "" {
		return addr, status.Error(codes.InvalidArgument, "no container is named")
	}
	err = s.Update(func(tx store.Tx) error {
		network, node := store.GetNetwork(tx, in.Network), store.GetNode(tx, nodeID)
		if network == nil || node == nil {
			return status.Error(codes.NotFound, "no such network")
		}
		name := network.Spec.Annotations.Name
		subnet, _, ok := executor.OverlayOf(network)
		switch {
		case network.Spec.Ingress || !network.Spec.Attachable:
			return status.Errorf(codes.PermissionDenied, "network %s not manually attachable", name)
		case !ok:
			return status.Errorf(codes.FailedPrecondition, "network %s is no overlay network, or not ready yet", name)
		}
		for _, at := range node.Attachments {
			if p, has := executor.AttachedAt(at); has && in.of(at) {
				addr = p.Addr()
				return nil
			}
		}
		nodes, err := store.FindNodes(tx, store.All)
		if err != nil {
			return err
		}
		tasks, err := store.FindTasks(tx, store.All)
		if err != nil {
			return err
		}
		p, ok := newAddresses(network, subnet, nodes, tasks).take()
		if !ok {
			return status.Errorf(codes.ResourceExhausted, "network %s has no address left", name)
		}
		addr = p.Addr()
		node = node.Copy()
		node.Attachments = append(node.Attachments, &api.NetworkAttachment{Network: network.Copy(), Addresses: []string{p.String()}, Aliases: []string{in.Container}})
		return store.UpdateNode(tx, node)
	})
	return addr, err
}

// detachContainer answers on the leader. What is not attached is fine.
func (n *member) detachContainer(ctx context.Context, caller string, in attachment) (any, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return nil, n.store.Update(func(tx store.Tx) error {
		node := store.GetNode(tx, caller)
		if node == nil || !slices.ContainsFunc(node.Attachments, in.of) {
			return nil
		}
		node = node.Copy()
		node.Attachments = slices.DeleteFunc(node.Attachments, in.of)
		return store.UpdateNode(tx, node)
	})
}

// containersIn tells which node has a container that is no task in a network,
// "" if none has.
func containersIn(tx store.ReadTx, networkID string) (nodeID string, err error) {
	nodes, err := store.FindNodes(tx, store.All)
	for _, node := range nodes {
		for _, at := range node.Attachments {
			if at.Network != nil && at.Network.ID == networkID && len(at.Aliases) > 0 {
				return node.ID, nil
			}
		}
	}
	return "", err
}
