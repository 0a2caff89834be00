// SPDX-License-Identifier: BSD-2-Clause

package cluster

import (
	"context"
	"fmt"

	"github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/manager/state/store"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"satld/executor"
	"satld/orchestrator"
)

var _ executor.Leader = (*Node)(nil)

// MayReplace tells whether an unhealthy task of this node may be stopped and
// replaced now; the leader answers. It is the other half of executor.Leader.
func (n *Node) MayReplace(ctx context.Context, taskID string) (bool, error) {
	var may bool
	if err := n.member.Load().askLeader(ctx, "may-replace", taskID, &may); err != nil {
		return false, fmt.Errorf("ask whether task %s may be replaced: %w", taskID, err)
	}
	return may, nil
}

// mayReplace answers on the leader, to the node that the task is on.
func (n *member) mayReplace(ctx context.Context, caller, taskID string) (any, error) {
	var t *api.Task
	n.store.View(func(tx store.ReadTx) { t = store.GetTask(tx, taskID) })
	if t != nil && t.NodeID != caller {
		return nil, status.Errorf(codes.PermissionDenied, "task %s is not one of node %s", taskID, caller)
	}
	return orchestrator.New(n.store, n.log).MayReplace(ctx, taskID)
}
