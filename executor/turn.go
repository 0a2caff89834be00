// SPDX-License-Identifier: BSD-2-Clause

package executor

import (
	"context"
	"time"
)

const (
	// askEvery is how long a task that waits for its turn to be replaced lets
	// pass between two questions.
	askEvery = time.Second
	// askBound is how long one question may take.
	askBound = 2 * time.Second
)

// waitsForTurn tells whether an unhealthy task may have to wait until others
// of its service are replaced (service label satl.health.replace-parallelism;
// cases/budget.md, budget-7). Without the label nobody is asked. Neither is
// anybody for a task that never passed: it has served nobody, so nothing is
// kept by keeping it.
func (n *Node) waitsForTurn(r Record) bool { return r.InTurn && r.Proved && n.cfg.Leader != nil }

// askForTurn asks the leader, until it agrees or the task recovers or ends.
// The task is out of traffic and is probed meanwhile.
func (n *Node) askForTurn(c *Container) {
	c.mu.Lock()
	asking := c.asking
	c.asking = true
	c.mu.Unlock()
	if !asking {
		n.wg.Go(func() { n.awaitTurn(c) })
	}
}

func (n *Node) awaitTurn(c *Container) {
	rec := c.record()
	log := n.logger(rec)
	_, done := c.run()
	for failed := ""; ; {
		if !n.stillWaits(c) {
			return
		}
		var may bool
		err := boundedCtx(n.ctx, askBound, func(ctx context.Context) (err error) {
			may, err = n.cfg.Leader.MayReplace(ctx, rec.TaskID)
			return err
		})
		if err != nil && n.ctx.Err() == nil && err.Error() != failed {
			failed = err.Error()
			log.Warn("nobody could say whether the task may be replaced; it stays out of traffic, and asking goes on", "err", err)
		}
		if err == nil && may {
			if n.claimTurn(c) {
				log.Info("the task's turn to be replaced has come")
				n.stopUnhealthy(c)
			}
			return
		}
		if wait(n.ctx, done, askEvery) || n.ctx.Err() != nil {
			return
		}
	}
}

// stillWaits tells whether the task is still to be replaced; where it is not,
// a later verdict asks anew.
func (n *Node) stillWaits(c *Container) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asking = c.rec.State.Live() && c.rec.Unhealthy != "" && !c.rec.Stopping
	return c.asking
}

// claimTurn turns a task that may be replaced into one that stops. From here
// on no pass saves it.
func (n *Node) claimTurn(c *Container) bool {
	c.mu.Lock()
	c.asking = false
	if c.rec.Unhealthy == "" || c.rec.Stopping || !c.rec.State.Live() {
		c.mu.Unlock()
		return false
	}
	c.rec.begin(c.rec.recordedStop())
	c.tell()
	c.mu.Unlock()
	n.saveSoon(c)
	return true
}
