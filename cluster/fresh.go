// SPDX-License-Identifier: BSD-2-Clause

package cluster

import (
	"context"
	"time"
)

// farBound bounds one question to the leader, and the wait for what is missing
// here.
const farBound = 5 * time.Second

// asFar tells whether this manager's store is as far as the leader's was a
// moment ago, and waits for it, bounded. What raft calls applied is only on its
// way to the store.
func (n *member) asFar(ctx context.Context) bool {
	if !n.led() {
		return false
	}
	if n.raft.Leads() {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, farBound)
	defer cancel()
	var applied uint64
	if err := n.askLeader(ctx, "applied", struct{}{}, &applied); err != nil {
		return false // it leads no more, or not yet
	}
	n.awaitIndex(ctx, applied)
	return n.raft.GetVersion().Index >= applied
}

// howFar answers another manager.
func (n *member) howFar(context.Context, string, struct{}) (any, error) {
	return n.raft.GetVersion().Index, nil
}
