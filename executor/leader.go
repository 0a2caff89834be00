// SPDX-License-Identifier: BSD-2-Clause

package executor

import (
	"context"
	"net/netip"
)

// Leader is what a node asks of the cluster's leader while it acts on health.
// The cluster implements it, wherever the leader is.
type Leader interface {
	// MayReplace tells whether an unhealthy task may be stopped and replaced
	// now. It is asked again until it says so; a task that recovers meanwhile
	// is no longer asked for. An error means that nobody could say: the caller
	// keeps the task out of traffic and asks again.
	//
	// Without the service label satl.health.replace-parallelism the answer is
	// always yes (spec/healthchecks.txt, "The second difference").
	MayReplace(ctx context.Context, taskID string) (bool, error)
	// KeepReport stores why a task of a rollout failed, beside the version of
	// the service that it belongs to. One report a task is kept; a second one
	// of the same task changes nothing.
	KeepReport(ctx context.Context, taskID string, report []byte) error
	// AttachContainer gives a container that is no task an address in an
	// overlay network, the same one each time. A network that containers may
	// not join is PermissionDenied.
	AttachContainer(ctx context.Context, networkID, containerID string) (netip.Addr, error)
	// DetachContainer gives that address back. It may be called again.
	DetachContainer(ctx context.Context, networkID, containerID string) error
}
