// SPDX-License-Identifier: BSD-2-Clause

package cluster

import (
	"errors"

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
// a service with published ports. Nothing is ever attached to it: traffic is
// redirected on each node.
const ingressName = "ingress"

// seed puts into the store what every cluster has and what is not there yet:
// the cluster object with its keys and join tokens, this node, the ingress
// network.
func (n *Node) seed() error {
	err := n.store.Update(func(tx store.Tx) error {
		if store.GetCluster(tx, n.id.clusterID()) == nil {
			if err := store.CreateCluster(tx, newCluster(n.id)); err != nil {
				return err
			}
		}
		if store.GetNode(tx, n.id.nodeID()) == nil {
			if err := store.CreateNode(tx, newManagerNode(n.id.nodeID())); err != nil {
				return err
			}
		}
		networks, err := store.FindNetworks(tx, store.ByName(ingressName))
		if err == nil && len(networks) == 0 {
			err = store.CreateNetwork(tx, newIngress())
		}
		return err
	})
	if err != nil {
		return err
	}
	var cluster *api.Cluster
	n.store.View(func(tx store.ReadTx) { cluster = store.GetCluster(tx, n.id.clusterID()) })
	if cluster == nil || len(cluster.RootCA.CAKey) == 0 {
		return errors.New("the cluster has no root key in its store, so that no certificate can be renewed")
	}
	return n.id.forgetRootKey()
}

func newCluster(id *identity) *api.Cluster {
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
