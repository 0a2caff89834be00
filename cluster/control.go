// SPDX-License-Identifier: BSD-2-Clause

package cluster

import (
	"context"
	"errors"
	"log/slog"

	"github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/ca"
	"github.com/moby/swarmkit/v2/manager/controlapi"
	"github.com/moby/swarmkit/v2/manager/drivers"
	"github.com/moby/swarmkit/v2/manager/state/store"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// control is SwarmKit's control API with the calls replaced that ask its own
// raft about managers.
type control struct {
	*controlapi.Server
	store   *store.MemoryStore
	members *members
	log     *slog.Logger
	// writing is held, by a value in it, over a service's create or update:
	// SwarmKit looks for another service with the same published port before
	// the transaction, not in it, so two at once would both find none. The
	// leader alone runs these calls, so that one lock does for the cluster.
	writing chan struct{}
}

var _ api.ControlServer = (*control)(nil)

func newControl(m *members, sec *ca.SecurityConfig, log *slog.Logger) *control {
	return &control{
		Server:  controlapi.NewServer(m.MemoryStore(), nil, sec, nil, drivers.New(nil)),
		store:   m.MemoryStore(),
		members: m,
		log:     log,
		writing: make(chan struct{}, 1),
	}
}

// CreateService lets one service at a time be checked and written.
func (c *control) CreateService(ctx context.Context, r *api.CreateServiceRequest) (*api.CreateServiceResponse, error) {
	if err := c.lock(ctx); err != nil {
		return nil, err
	}
	defer c.unlock()
	return c.Server.CreateService(ctx, r)
}

// UpdateService lets one service at a time be checked and written.
func (c *control) UpdateService(ctx context.Context, r *api.UpdateServiceRequest) (*api.UpdateServiceResponse, error) {
	if err := c.lock(ctx); err != nil {
		return nil, err
	}
	defer c.unlock()
	return c.Server.UpdateService(ctx, r)
}

// lock waits for writing until ctx is done.
func (c *control) lock(ctx context.Context) error {
	select {
	case c.writing <- struct{}{}:
		return nil
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
}

func (c *control) unlock() { <-c.writing }

// GetNode adds the manager's status to SwarmKit's answer.
func (c *control) GetNode(ctx context.Context, r *api.GetNodeRequest) (*api.GetNodeResponse, error) {
	resp, err := c.Server.GetNode(ctx, r)
	if err == nil {
		resp.Node.ManagerStatus = c.members.status(resp.Node.ID)
	}
	return resp, err
}

// ListNodes adds the managers' status to SwarmKit's answer.
func (c *control) ListNodes(ctx context.Context, r *api.ListNodesRequest) (*api.ListNodesResponse, error) {
	resp, err := c.Server.ListNodes(ctx, r)
	if err == nil {
		for _, n := range resp.Nodes {
			n.ManagerStatus = c.members.status(n.ID)
		}
	}
	return resp, err
}

// UpdateCluster refuses heartbeats that are too frequent.
func (c *control) UpdateCluster(ctx context.Context, r *api.UpdateClusterRequest) (*api.UpdateClusterResponse, error) {
	if r.Spec != nil {
		if err := admitHeartbeat(r.Spec); err != nil {
			return nil, err
		}
	}
	return c.Server.UpdateCluster(ctx, r)
}

// UpdateNode refuses to demote while that would leave no manager, or a
// majority that cannot be reached.
func (c *control) UpdateNode(ctx context.Context, r *api.UpdateNodeRequest) (*api.UpdateNodeResponse, error) {
	if r.Spec == nil || r.Spec.DesiredRole != api.NodeRoleWorker {
		return c.Server.UpdateNode(ctx, r)
	}
	var node *api.Node
	c.store.View(func(tx store.ReadTx) { node = store.GetNode(tx, r.NodeID) })
	if node == nil || node.Spec.DesiredRole != api.NodeRoleManager {
		return c.Server.UpdateNode(ctx, r)
	}
	if members := c.members.raft.Members(); len(members) <= 1 {
		return nil, status.Error(codes.FailedPrecondition, "attempting to demote the last manager of the swarm")
	}
	if !canLeave(c.members.raft.Members(), r.NodeID) {
		return nil, status.Error(codes.FailedPrecondition, "can't remove member from the raft: this would result in a loss of quorum")
	}
	return c.demote(r)
}

// demote is SwarmKit's UpdateNode without its question to a raft of its own.
func (c *control) demote(r *api.UpdateNodeRequest) (*api.UpdateNodeResponse, error) {
	if r.NodeVersion == nil {
		return nil, status.Error(codes.InvalidArgument, "a node's version is required")
	}
	var node *api.Node
	err := c.store.Update(func(tx store.Tx) error {
		node = store.GetNode(tx, r.NodeID)
		if node == nil {
			return status.Errorf(codes.NotFound, "node %s not found", r.NodeID)
		}
		node = node.Copy()
		node.Meta.Version = *r.NodeVersion
		node.Spec = *r.Spec.Copy()
		return store.UpdateNode(tx, node)
	})
	if errors.Is(err, store.ErrSequenceConflict) {
		return nil, status.Error(codes.InvalidArgument, "update out of sequence")
	}
	if err != nil {
		return nil, err
	}
	return &api.UpdateNodeResponse{Node: node}, nil
}

// RemoveNode refuses managers, which have to be demoted first, and nodes that
// are not Down, also those that a new dispatcher has not heard of yet.
func (c *control) RemoveNode(ctx context.Context, r *api.RemoveNodeRequest) (*api.RemoveNodeResponse, error) {
	if c.members.status(r.NodeID) != nil {
		return nil, status.Errorf(codes.FailedPrecondition,
			"node %s is a cluster manager and is a member of the raft cluster. It must be demoted to worker before removal", r.NodeID)
	}
	var node *api.Node
	c.store.View(func(tx store.ReadTx) { node = store.GetNode(tx, r.NodeID) })
	if node != nil && !r.Force && node.Status.State != api.NodeStatus_DOWN {
		return nil, status.Errorf(codes.FailedPrecondition, "node %s is not down and can't be removed", node.ID)
	}
	return c.Server.RemoveNode(ctx, r)
}

// RemoveNetwork keeps the ingress network, without which no port could be
// published.
func (c *control) RemoveNetwork(ctx context.Context, r *api.RemoveNetworkRequest) (*api.RemoveNetworkResponse, error) {
	var network *api.Network
	var user string
	var err error
	c.store.View(func(tx store.ReadTx) {
		network = store.GetNetwork(tx, r.NetworkID)
		user, err = containersIn(tx, r.NetworkID)
	})
	switch {
	case err != nil:
		return nil, err
	case user != "":
		return nil, status.Errorf(codes.FailedPrecondition, "network %s is in use by a container on node %s", r.NetworkID, user)
	}
	if network != nil && network.Spec.Ingress {
		return nil, status.Errorf(codes.FailedPrecondition, "network %s is the cluster's own and cannot be removed", network.Spec.Annotations.Name)
	}
	return c.Server.RemoveNetwork(ctx, r)
}
