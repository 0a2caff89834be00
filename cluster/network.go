// SPDX-License-Identifier: BSD-2-Clause

package cluster

import (
	"context"
	"errors"

	"github.com/moby/swarmkit/v2/api"
	swarmid "github.com/moby/swarmkit/v2/identity"
	"github.com/moby/swarmkit/v2/manager/state/store"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// CreateNetwork implements Cluster. network gets an ID unless it has one, and
// is afterwards as stored. A name that is taken is AlreadyExists.
func (n *Node) CreateNetwork(ctx context.Context, network *api.Network) error {
	if network.Spec.Annotations.Name == "" {
		return status.Error(codes.InvalidArgument, "a network needs a name")
	}
	if network.ID == "" {
		network.ID = swarmid.NewID()
	}
	in, err := network.Marshal()
	if err != nil {
		return err
	}
	var out []byte
	if err := n.member.Load().askLeader(ctx, "create-network", in, &out); err != nil {
		return err
	}
	*network = api.Network{}
	return network.Unmarshal(out)
}

// storeNetwork is the leader's part of CreateNetwork.
func (n *member) storeNetwork(ctx context.Context, _ string, in []byte) (any, error) {
	network := new(api.Network)
	if err := network.Unmarshal(in); err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "read the network: %v", err)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	err := n.store.Update(func(tx store.Tx) error {
		others, err := store.FindNetworks(tx, store.All)
		if err != nil {
			return err
		}
		clusters, err := store.FindClusters(tx, store.All)
		if err != nil {
			return err
		}
		pool, err := poolOf(clusters, n.cfg.OverlayPool)
		if err != nil {
			return err
		}
		nodes, err := store.FindNodes(tx, store.All)
		if err != nil {
			return err
		}
		if err := settleOverlay(network, others, nodes, pool); err != nil {
			return status.Error(codes.InvalidArgument, err.Error())
		}
		return store.CreateNetwork(tx, network)
	})
	switch {
	case errors.Is(err, store.ErrNameConflict), errors.Is(err, store.ErrExist):
		return nil, status.Errorf(codes.AlreadyExists, "network with name %s already exists", network.Spec.Annotations.Name)
	case err != nil:
		return nil, err
	}
	return network.Marshal()
}

// RemoveNetwork implements Cluster. A network in use is FailedPrecondition.
func (n *Node) RemoveNetwork(ctx context.Context, id string) error {
	_, err := n.Control().RemoveNetwork(ctx, &api.RemoveNetworkRequest{NetworkID: id})
	return err
}
