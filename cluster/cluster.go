// SPDX-License-Identifier: BSD-2-Clause

package cluster

import (
	"context"
	"io"
	"time"

	"github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/manager/state/store"
)

// Cluster is what the API uses of this package; *Node implements it.
type Cluster interface {
	// NodeID is this node's random, stored ID.
	NodeID() string
	// Manager tells whether this node is a manager, Leader whether it leads now.
	Manager() bool
	Leader() bool
	// Loaded blocks until this node's store holds what the cluster's did when
	// this node opened it: from then on it is read, whoever leads.
	Loaded(ctx context.Context) error
	// Ready blocks until a leader is known, so that the store can be written.
	Ready(ctx context.Context) error
	// Store is the replicated store, for reading and watching. Writes go
	// through Control, which is forwarded to the leader.
	Store() *store.MemoryStore
	// Control is SwarmKit's control API (CreateService, UpdateService, ...):
	// errors are gRPC statuses.
	Control() api.ControlClient
	// Logs is SwarmKit's log service: the output of tasks on any node.
	Logs() api.LogsClient
	// Ended is closed when this node leaves its cluster, joins another or
	// changes its role: Store and Control are then of what comes next.
	Ended() <-chan struct{}
	// Init, Join, Leave and ForceNewCluster: see Node.
	Init(ctx context.Context, advertise string) error
	ForceNewCluster(ctx context.Context) error
	Join(ctx context.Context, j Joining) error
	Leave(ctx context.Context, force bool) error
	// Backup writes what a cluster can be restored from: see Node.
	Backup(w io.Writer, now time.Time) error
	// Managers are the managers that this node knows.
	Managers() []api.Peer
	// AdvertiseAddr is the host:port other nodes reach this one at.
	AdvertiseAddr() string
	// CreateNetwork and RemoveNetwork change networks in the store; they are
	// not in Control because SwarmKit's refuses drivers it does not know.
	CreateNetwork(ctx context.Context, n *api.Network) error
	RemoveNetwork(ctx context.Context, id string) error
	// Reports are why tasks of a service's rollouts failed.
	Reports(serviceID string) ([]Report, error)
	// SetTaskReady is an operator's word on a task: see ReadyLabel.
	SetTaskReady(ctx context.Context, taskID string, ready bool) error
}
