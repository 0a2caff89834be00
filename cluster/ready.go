// SPDX-License-Identifier: BSD-2-Clause

package cluster

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"
	"github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/manager/state/store"
)

// ReadyLabel is an operator's word on a task (a label of the task itself, not
// of its spec) or on a node (a label of its spec): "false" keeps it out of
// traffic until it is taken back. It is an instruction and no inference, so
// it does not fail open (spec/application-health.txt, "How the gateway uses it").
const ReadyLabel = "satl.ready"

// SetTaskReady puts a task out of traffic or back. It reaches the task's node
// with the next assignment, and ends with the task: its successor is ready. A
// task that is not in the store is ErrNotFound, one that is to end
// ErrFailedPrecondition.
func (n *Node) SetTaskReady(ctx context.Context, taskID string, ready bool) error {
	return n.member.Load().askLeader(ctx, "task-ready", readiness{taskID, ready}, nil)
}

// readiness is an operator's word on its way to the leader.
type readiness struct {
	Task  string
	Ready bool
}

func (n *member) taskReady(ctx context.Context, _ string, in readiness) (any, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := setTaskReady(n.store, in.Task, in.Ready); err != nil {
		return nil, fmt.Errorf("task %s: %w", in.Task, err)
	}
	return nil, nil
}

func setTaskReady(s *store.MemoryStore, taskID string, ready bool) error {
	return s.Update(func(tx store.Tx) error {
		t := store.GetTask(tx, taskID)
		switch {
		case t == nil:
			return errdefs.ErrNotFound.WithMessage("no such task")
		case t.DesiredState > api.TaskStateRunning || t.Status.State > api.TaskStateRunning:
			return errdefs.ErrFailedPrecondition.WithMessage("it has ended, or is to end")
		case !SetReady(&t.Annotations, ready):
			return nil
		}
		return store.UpdateTask(tx, t)
	})
}

// Ready tells whether an operator lets a task or node have traffic.
func Ready(a api.Annotations) bool { return a.Labels[ReadyLabel] != "false" }

// SetReady puts an operator's word into the annotations and tells whether that
// changed them.
func SetReady(a *api.Annotations, ready bool) (changed bool) {
	if Ready(*a) == ready {
		return false
	}
	if ready {
		delete(a.Labels, ReadyLabel)
		return true
	}
	if a.Labels == nil {
		a.Labels = make(map[string]string)
	}
	a.Labels[ReadyLabel] = "false"
	return true
}
