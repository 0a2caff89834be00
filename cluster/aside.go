// SPDX-License-Identifier: BSD-2-Clause

package cluster

import (
	"context"
	"sync"
	"time"
)

const (
	// asideAfter is how long this manager may know of no leader until its own
	// agent turns to the others: longer than most elections, and short enough
	// for the node not to be taken for Down.
	asideAfter = 3 * time.Second
	asidePoll  = 250 * time.Millisecond
)

// ownManager is whether this node's agent asks the manager on its own node,
// rather than any other.
type ownManager struct {
	mu   sync.Mutex
	gone bool // for good: this node is no manager any more
}

// useOwn has the agent ask this node's own manager from now on, or the others.
func (n *member) useOwn(use bool) {
	n.own.mu.Lock()
	defer n.own.mu.Unlock()
	if use && !n.own.gone {
		n.broker.SetLocalConn(n.conn)
	} else {
		n.broker.SetLocalConn(nil)
	}
}

// keepOwn sends the agent to the other managers while this one has no part in
// the cluster (its disk is full, or it does not reach the leader), until ctx is
// done: they may have, and the node would be taken for Down, and its tasks be
// made anew elsewhere while they run here.
func (n *member) keepOwn(ctx context.Context) error {
	tick := time.NewTicker(asidePoll)
	defer tick.Stop()
	led, using := time.Now(), true
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-tick.C:
			if n.led() && n.raft.Trouble() == nil {
				led = now
			}
			if use := now.Sub(led) < asideAfter; use != using {
				n.log.Info("this node's agent changes the manager that it asks", "own", use)
				n.useOwn(use)
				using = use
			}
		}
	}
}
