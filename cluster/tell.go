// SPDX-License-Identifier: BSD-2-Clause

package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	"github.com/containerd/errdefs"
	"github.com/moby/swarmkit/v2/agent/exec"
	"github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/manager/state/store"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
)

// AddrLabel is the engine label of a node that says at which host:port other
// nodes reach it. Of a worker SwarmKit knows a host alone.
const AddrLabel = "satl.addr"

// located is an executor whose node is described with its address.
type located struct {
	exec.Executor
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
	m.store.View(func(tx store.ReadTx) {
		if node := store.GetNode(tx, nodeID); node != nil && node.Description != nil && node.Description.Engine != nil {
			addr = node.Description.Engine.Labels[AddrLabel]
		}
	})
	if addr == "" {
		return fmt.Errorf("address of node %s: %w", nodeID, errdefs.ErrNotFound)
	}
	if err := m.askNode(ctx, nodeID, addr, "health", serviceID, out); err != nil {
		return fmt.Errorf("ask node %s for the health of its tasks: %w", nodeID, err)
	}
	return nil
}

// askNode makes a call to any node, over a connection of its own: those that
// are kept open demand the certificate of a manager, this one that of the node.
func (n *member) askNode(ctx context.Context, nodeID, addr, name string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	tls := n.id.sec.ClientTLSCreds.Config().Clone()
	tls.ServerName = nodeID
	conn, err := grpc.NewClient("passthrough:///"+addr, grpc.WithNoProxy(),
		grpc.WithTransportCredentials(credentials.NewTLS(tls)),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)))
	if err != nil {
		return err
	}
	return errors.Join(invoke(ctx, conn, name, body, out), conn.Close())
}

// tellHealth answers a manager's question for the health of a service's tasks
// on this node.
func (n *member) tellHealth(_ context.Context, _ string, serviceID string) (any, error) {
	if n.cfg.Health == nil {
		return nil, errdefs.ErrUnavailable.WithMessage("this node does not tell of its tasks' health")
	}
	return n.cfg.Health(serviceID), nil
}
