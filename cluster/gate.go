// SPDX-License-Identifier: BSD-2-Clause

package cluster

import (
	"context"
	"time"

	"github.com/containerd/errdefs"
)

// readyPoll is how often a node looks for a leader that it waits for.
const readyPoll = 20 * time.Millisecond

var errLeaderless = errdefs.ErrUnavailable.WithMessage("the cluster has no leader: too few of its managers reach each other")

// ready waits until a leader is known and, if it is this node, takes calls.
func (n *member) ready(ctx context.Context) error {
	tick := time.NewTicker(readyPoll)
	defer tick.Stop()
	for !n.led() {
		select {
		case <-ctx.Done():
			return n.leaderless()
		case <-tick.C:
		}
	}
	return nil
}

// led tells whether a leader is known that takes calls, as far as this node
// can tell. A worker leaves that to the managers.
func (n *member) led() bool {
	if n.raft == nil {
		return true
	}
	if id, _ := n.raft.Leader(); id != n.id.nodeID() {
		return id != ""
	}
	select {
	case <-n.up:
		return n.raft.Leads()
	default:
		return false
	}
}

// leaderless says why there is no leader.
func (n *member) leaderless() error {
	if n.raft != nil {
		if err := n.raft.Trouble(); err != nil {
			return err
		}
	}
	return errLeaderless
}

// load opens the gate for reads, once: after a start the store holds no more
// than the last snapshot did. What this node knew before, and told its clients,
// is in a log of which it has yet to learn from a leader how much is valid.
func (n *member) load(ctx context.Context) error {
	tick := time.NewTicker(readyPoll)
	defer tick.Stop()
	for n.raft != nil && !n.asFar(ctx) {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
	close(n.loaded)
	return nil
}
