// SPDX-License-Identifier: BSD-2-Clause

package cluster

import (
	"context"
	"fmt"
	"maps"

	"github.com/containerd/errdefs"
	"github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/manager/state/store"
)

// AddrLabel is the engine label of a node that says at which host:port other
// nodes reach it. Of a worker SwarmKit knows a host alone.
const AddrLabel = "satl.addr"

// addrOf is where a node says that it is reached, "" if it has not said.
func addrOf(node *api.Node) string {
	if node == nil || node.Description == nil || node.Description.Engine == nil {
		return ""
	}
	return node.Description.Engine.Labels[AddrLabel]
}

// located is an executor whose node is described with its address.
type located struct {
	Executor
	addr string
}

// Describe implements exec.Executor.
func (l located) Describe(ctx context.Context) (*api.NodeDescription, error) {
	d, err := l.Executor.Describe(ctx)
	if err != nil {
		return nil, err
	}
	d = d.Copy()
	if d.Engine == nil {
		d.Engine = new(api.EngineDescription)
	}
	labels := maps.Clone(d.Engine.Labels)
	if labels == nil {
		labels = make(map[string]string)
	}
	labels[AddrLabel] = l.addr
	d.Engine.Labels = labels
	return d, nil
}

// AskHealth asks another node for the health of its tasks of a service, which
// it keeps to itself otherwise: out takes what Config.Health of that node
// answers. A node that is not in the store, or has not said where it is
// reached, is ErrNotFound. This node is a manager.
func (n *Node) AskHealth(ctx context.Context, nodeID, serviceID string, out any) error {
	m := n.member.Load()
	var addr string
	m.store.View(func(tx store.ReadTx) { addr = addrOf(store.GetNode(tx, nodeID)) })
	if addr == "" {
		return fmt.Errorf("address of node %s: %w", nodeID, errdefs.ErrNotFound)
	}
	if err := m.askNode(ctx, nodeID, addr, "health", serviceID, out); err != nil {
		return fmt.Errorf("ask node %s for the health of its tasks: %w", nodeID, err)
	}
	return nil
}

// tellHealth answers a manager's question for the health of a service's tasks
// on this node.
func (n *member) tellHealth(_ context.Context, _ string, serviceID string) (any, error) {
	if n.cfg.Health == nil {
		return nil, errdefs.ErrUnavailable.WithMessage("this node does not tell of its tasks' health")
	}
	return n.cfg.Health(serviceID), nil
}
