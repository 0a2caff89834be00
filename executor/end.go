// SPDX-License-Identifier: BSD-2-Clause

package executor

import (
	"context"
	"fmt"
	"time"

	dockerevents "github.com/docker/docker/api/types/events"

	"satld/healthcheck"
	"satld/jail"
)

// awaitGone closes the returned channel when the first process is gone, which is
// before it is known how it ended.
func (n *Node) awaitGone(ctx context.Context, id string) <-chan struct{} {
	ch := make(chan struct{})
	go func() {
		if n.cfg.Runtime.AwaitGone(ctx, id) == nil {
			close(ch)
		}
	}()
	return ch
}

// supervise watches one run of a container until no process of it is left.
func (n *Node) supervise(c *Container, id string) {
	type ended struct {
		exit jail.Exit
		err  error
	}
	end := make(chan ended, 1)
	go func() {
		exit, err := n.cfg.Runtime.Wait(n.ctx, id)
		end <- ended{exit, err}
	}()
	ctx, cancel := context.WithCancel(n.ctx)
	defer cancel()
	gone := n.awaitGone(ctx, id)
	for {
		select {
		case <-gone:
			gone = nil
			if err := n.conceal(context.WithoutCancel(n.ctx), c); err != nil {
				n.logger(c.record()).Warn("traffic change not confirmed yet; it is retried", "err", err)
			}
		case <-c.verdicts:
			if all := c.takeVerdicts(); len(all) > 0 {
				n.onVerdicts(c, all)
			}
		case e := <-end:
			if n.ctx.Err() != nil {
				return
			}
			if e.err != nil {
				n.logger(c.record()).Error("exit status lost", "err", e.err)
				n.unseen(c, fmt.Sprintf("its end was not seen: %v", e.err))
				e.exit = lost
			}
			n.ended(c, id, e.exit)
			return
		case <-n.ctx.Done():
			<-end
			return
		}
	}
}

// ended takes a container down after its main process ended. The task is
// reported ended as soon as no process of it is left, never when its jail,
// root or interfaces are gone (facts/freebsd.md, "A dying jail").
func (n *Node) ended(c *Container, id string, exit jail.Exit) {
	if exit.At.IsZero() {
		exit.At = time.Now()
	}
	rec := c.record()
	log := n.logger(rec)
	rebooted := exit.Code < 0 && rec.Boot != "" && n.cfg.Boot != "" && rec.Boot != n.cfg.Boot
	if rebooted {
		n.unseen(c, healthcheck.Restarted)
	}
	n.unwatch(c)
	err := n.conceal(context.WithoutCancel(n.ctx), c)
	if err != nil {
		log.Warn("traffic change not confirmed yet; it is retried", "err", err)
	}
	err = n.within(killBound, func(ctx context.Context) error { return n.cfg.Runtime.Delete(ctx, id) })
	if err != nil {
		log.Warn("processes may be left; taking them down is retried", "err", err)
	}
	err = c.step(Exited, func(r *Record) {
		r.Finished, r.ExitCode, r.OOMKilled = exit.At, exit.Code, exit.OOMKilled
	})
	if err != nil {
		log.Error("container ended in a state that it cannot be in", "err", err)
	}
	n.saveSoon(c)
	c.mu.Lock()
	c.pid = 0
	c.mu.Unlock()
	if exit.OOMKilled {
		n.event(rec, dockerevents.ActionOOM)
	}
	if !rec.Stopping && !rebooted && (exit.Code != 0 || !rec.Proved || rec.Unhealthy != "") {
		n.reportFailure(c, "")
	}
	// Now, so that whoever inspects it on this event sees it ended, and before
	// the stop that waits for it is told of.
	n.event(rec, dockerevents.ActionDie, "exitCode", fmt.Sprint(exit.Code))
	c.mu.Lock()
	closeOnce(c.done)
	c.awaitRun()
	c.mu.Unlock()
	log.Info("container ended", "exit_code", exit.Code, "oom_killed", exit.OOMKilled)

	n.takeDown(c, id)
}

// unseen notes why nobody knows how a container ended; that it has ended is
// recorded with it.
func (n *Node) unseen(c *Container, why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rec.Error = why
}

// lost is the exit of a container whose end nobody saw.
var lost = jail.Exit{Code: -1}
