// SPDX-License-Identifier: BSD-2-Clause

package cluster

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"

	gogotypes "github.com/gogo/protobuf/types"
	"github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/ca"
	swarmid "github.com/moby/swarmkit/v2/identity"
	"github.com/moby/swarmkit/v2/manager/dispatcher"
	"github.com/moby/swarmkit/v2/manager/state/store"
)

// taskHistoryLimit is how many tasks of a slot are kept, the running one
// included: Docker's default.
const taskHistoryLimit = 5

// ingressName is the network that SwarmKit's API wants to see before it takes
// a service with published ports: the overlay that such tasks are in, so that
// every node's redirects reach them.
const ingressName = "ingress"

// seed puts into the store what every cluster has and what is not there yet:
// the cluster object with its keys and join tokens, this node, the ingress
// network.
func (n *member) seed() error {
	err := n.store.Update(func(tx store.Tx) error {
		if store.GetCluster(tx, n.id.clusterID()) == nil {
			if err := n.checkOthers(tx); err != nil {
				return err
			}
			if err := store.CreateCluster(tx, newCluster(n.id, n.cfg.OverlayPool)); err != nil {
				return fmt.Errorf("make cluster %s in the store: %w", n.id.clusterID(), err)
			}
		}
		if store.GetNode(tx, n.id.nodeID()) == nil {
			if err := store.CreateNode(tx, newManagerNode(n.id.nodeID())); err != nil {
				return fmt.Errorf("make node %s in the store: %w", n.id.nodeID(), err)
			}
		}
		networks, err := store.FindNetworks(tx, store.ByName(ingressName))
		if err == nil && len(networks) == 0 {
			err = store.CreateNetwork(tx, newIngress())
		}
		if err != nil {
			return fmt.Errorf("make network %s in the store: %w", ingressName, err)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("write what every cluster has: %w", err)
	}
	var cluster *api.Cluster
	n.store.View(func(tx store.ReadTx) { cluster = store.GetCluster(tx, n.id.clusterID()) })
	if cluster == nil || len(cluster.RootCA.CAKey) == 0 {
		return errors.New("the cluster has no root key in its store, so that no certificate can be renewed")
	}
	return n.id.forgetRootKey()
}

// checkOthers refuses a store that is of another cluster than this node's
// certificate: they come from different copies.
func (n *member) checkOthers(tx store.ReadTx) error {
	clusters, err := store.FindClusters(tx, store.All)
	if err != nil || len(clusters) == 0 {
		return err
	}
	return fmt.Errorf("the store in %s is of cluster %s, but the certificates in %s are of cluster %s: put both directories back from one copy",
		filepath.Join(n.cfg.StateDir, "raft"), clusters[0].ID, filepath.Join(n.cfg.StateDir, "certificates"), n.id.clusterID())
}

func newCluster(id *identity, pool netip.Prefix) *api.Cluster {
	root := id.sec.RootCA()
	return &api.Cluster{
		ID: id.clusterID(),
		Spec: api.ClusterSpec{
			Annotations:   api.Annotations{Name: store.DefaultClusterName},
			Orchestration: api.OrchestrationConfig{TaskHistoryRetentionLimit: taskHistoryLimit},
			Dispatcher:    api.DispatcherConfig{HeartbeatPeriod: gogotypes.DurationProto(dispatcher.DefaultHeartBeatPeriod)},
			// Shown by `docker info`; hashicorp/raft has its own.
			Raft:     api.RaftConfig{KeepOldSnapshots: 1, SnapshotInterval: 10000, LogEntriesForSlowFollowers: 500, HeartbeatTick: 1, ElectionTick: 10},
			CAConfig: ca.DefaultCAConfig(),
		},
		RootCA: api.RootCA{
			CAKey:      id.rootKey(),
			CACert:     root.Certs,
			CACertHash: root.Digest.String(),
			JoinTokens: api.JoinTokens{
				Worker:  ca.GenerateJoinToken(root, false),
				Manager: ca.GenerateJoinToken(root, false),
			},
		},
		DefaultAddressPool: []string{pool.String()},
		SubnetSize:         overlayBits,
	}
}

func newIngress() *api.Network {
	return &api.Network{
		ID: swarmid.NewID(),
		Spec: api.NetworkSpec{
			Annotations:  api.Annotations{Name: ingressName},
			DriverConfig: &api.Driver{},
			Ingress:      true,
		},
	}
}

func newManagerNode(id string) *api.Node {
	return &api.Node{
		ID:   id,
		Role: api.NodeRoleManager,
		Certificate: api.Certificate{
			CN:     id,
			Role:   api.NodeRoleManager,
			Status: api.IssuanceStatus{State: api.IssuanceStateIssued},
		},
		Spec: api.NodeSpec{
			DesiredRole:  api.NodeRoleManager,
			Membership:   api.NodeMembershipAccepted,
			Availability: api.NodeAvailabilityActive,
		},
	}
}
