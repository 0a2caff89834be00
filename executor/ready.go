// SPDX-License-Identifier: BSD-2-Clause

package executor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/moby/swarmkit/v2/api"

	"satld/platform/atomicfile"
)

// An operator's word on a task or a node takes it out of pools and names
// though it is healthy, and does not fail open; it stays reachable by its own
// address. The word is in the store; what is kept here is its copy, for the
// time between this daemon's start and the cluster's first message.

// heed takes over what the cluster says of a task besides its spec: the
// operator's word on it and its service's labels. It tells whether traffic has
// to hear of it.
func (n *Node) heed(c *Container, t *api.Task) bool {
	c.mu.Lock()
	before := c.rec
	err := c.rec.takeServiceLabels(t.ServiceAnnotations.Labels)
	c.rec.takeTaskLabels(t.Annotations.Labels)
	same := before.Unready == c.rec.Unready && before.InRollout == c.rec.InRollout && before.Restarts == c.rec.Restarts &&
		before.Drain == c.rec.Drain && before.FailOpen == c.rec.FailOpen && before.NotReady == c.rec.NotReady && before.InTurn == c.rec.InTurn
	if !same {
		c.tell()
	}
	rec := c.rec
	c.mu.Unlock()
	log := n.logger(rec)
	if err != nil {
		log.Warn("a service label is not heeded", "err", err)
	}
	if same {
		return false
	}
	if before.Unready != rec.Unready {
		log.Info("operator's word on the task", "ready", !rec.Unready)
	}
	n.saveSoon(c)
	return rec.State.Live()
}

// Configure takes note of the node object: its ID is shown with containers,
// it says which overlay networks the node is in, and an operator may have
// taken the node out of traffic.
func (n *Node) Configure(ctx context.Context, node *api.Node) error {
	n.mu.Lock()
	n.nodeID = node.ID
	n.mu.Unlock()
	n.takeOverlays(ctx, node)
	unready := node.Spec.Annotations.Labels[labelReady] == "false"
	if n.nodeUnready.Swap(unready) == unready {
		return nil
	}
	n.log.Info("operator's word on this node", "ready", !unready)
	n.wg.Go(func() { // traffic waits for no disk
		if err := n.saveNodeState(); err != nil {
			n.log.Warn("operator's word on this node is not recorded; it is heard again from the cluster after a restart", "err", err)
		}
	})
	for _, c := range n.all() {
		if rec := c.record(); rec.State.Live() && rec.TaskID != "" {
			n.wg.Go(func() {
				c.mu.Lock()
				c.tell()
				c.mu.Unlock()
				n.expose(context.WithoutCancel(n.ctx), c)
			})
		}
	}
	return nil
}

// nodeState is what is kept of the node itself.
type nodeState struct{ Unready bool }

func (n *Node) nodeFile() string { return filepath.Join(n.dir, "node.json") }

// saveNodeState writes it as it is when its turn comes.
func (n *Node) saveNodeState() error {
	n.nodeSaving.Lock()
	defer n.nodeSaving.Unlock()
	data, err := json.Marshal(nodeState{Unready: n.nodeUnready.Load()})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(n.dir, 0o700); err != nil {
		return err
	}
	return atomicfile.Write(n.nodeFile(), data, fileMode)
}

// loadNodeState reads it; what cannot be read is not known yet.
func (n *Node) loadNodeState() error {
	data, err := os.ReadFile(n.nodeFile())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var s nodeState
	if err := json.Unmarshal(data, &s); err != nil {
		return fmt.Errorf("read %s: %w", n.nodeFile(), err)
	}
	n.nodeUnready.Store(s.Unready)
	return nil
}
