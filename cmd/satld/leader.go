// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"context"
	"fmt"
	"net/netip"
	"sync/atomic"

	"github.com/containerd/errdefs"

	"satld/cluster"
	"satld/executor"
)

// leader is the cluster's leader as the executor asks it. The executor is open
// before the cluster is: until then nobody can say.
type leader struct{ joined *atomic.Pointer[cluster.Node] }

var _ executor.Leader = leader{}

func (l leader) MayReplace(ctx context.Context, taskID string) (bool, error) {
	member, err := l.member()
	if err != nil {
		return false, err
	}
	return member.MayReplace(ctx, taskID)
}

func (l leader) KeepReport(ctx context.Context, taskID string, report []byte) error {
	member, err := l.member()
	if err != nil {
		return err
	}
	return member.KeepReport(ctx, taskID, report)
}

func (l leader) AttachContainer(ctx context.Context, networkID, containerID string) (netip.Addr, error) {
	member, err := l.member()
	if err != nil {
		return netip.Addr{}, err
	}
	return member.AttachContainer(ctx, networkID, containerID)
}

func (l leader) DetachContainer(ctx context.Context, networkID, containerID string) error {
	member, err := l.member()
	if err != nil {
		return err
	}
	return member.DetachContainer(ctx, networkID, containerID)
}

func (l leader) member() (*cluster.Node, error) {
	if member := l.joined.Load(); member != nil {
		return member, nil
	}
	return nil, fmt.Errorf("this node has not joined its cluster yet: %w", errdefs.ErrUnavailable)
}
