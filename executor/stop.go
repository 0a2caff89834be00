// SPDX-License-Identifier: BSD-2-Clause

package executor

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	dockerevents "github.com/docker/docker/api/types/events"
)

// stopOrder is how a container is to be stopped.
type stopOrder struct {
	signal syscall.Signal
	grace  time.Duration // from the signal to SIGKILL; negative: it is never killed
	drain  time.Duration // from the withdrawal to the signal
}

// plannedStop is the stop of a container that nothing is wrong with: its
// signal, its grace, and its service's drain. One that was never in traffic, or
// is out of it for its health, has nothing to be drained of.
func (r Record) plannedStop() stopOrder {
	o := stopOrder{signal: r.stopSignal(), grace: r.grace()}
	if r.Proved && r.Unhealthy == "" {
		o.drain = r.Drain
	}
	return o
}

// killOrder ends a container without asking it.
var killOrder = stopOrder{signal: syscall.SIGKILL}

// recordedStop is what is left of a stop that an earlier daemon began, or the
// stop of a container that is unhealthy.
func (r Record) recordedStop() stopOrder {
	o := r.plannedStop()
	if !r.Stopping {
		return o
	}
	if r.StopSignal != 0 {
		o.signal = syscall.Signal(r.StopSignal)
	}
	if o.signal == syscall.SIGKILL {
		o.drain = 0
	}
	o.grace = r.StopGrace
	if !r.StopBy.IsZero() {
		o.grace = left(r.StopBy, positive(r.StopGrace))
	}
	return o
}

// begin takes note of an order. A stop that is under way goes on as it was
// ordered: another one may hasten it and never draws it out.
func (r *Record) begin(o stopOrder) {
	under := r.Stopping
	r.Stopping, r.Withdrawn = true, true
	if under && o.signal != syscall.SIGKILL {
		return
	}
	r.StopSignal, r.StopGrace, r.StopBy = int(o.signal), o.grace, time.Time{}
}

// stopRun ends a container: out of traffic, drain, signal, grace, SIGKILL. It
// returns when no process is left. It may be called again at any time, by a
// later daemon too, and goes on where the last call was.
func (n *Node) stopRun(ctx context.Context, c *Container, o stopOrder) error {
	rec := c.record()
	if !rec.State.Live() {
		return nil
	}
	_, done := c.run()
	log := n.logger(rec)
	n.note(c, func(r *Record) { r.begin(o) })
	n.expose(ctx, c)
	n.unwatch(c)
	if ended, err := n.drain(ctx, c, o, done); ended || err != nil {
		return err
	}
	// A daemon started anew would take an end of which it knows no stop for the
	// task's own, and an unhealthy one that exits 0 for complete. Nobody would
	// hear of the end earlier: its exit status goes to the same disk.
	if ended, err := n.awaitSaved(ctx, c, done); ended || err != nil {
		return err
	}
	grace := n.signal(ctx, c, o)
	if !wait(ctx, done, grace) {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if c.kills() {
			log.Info("stop signal had no effect in time; killing", "grace", o.grace.String())
		}
		if err := n.kill(ctx, c, done); err != nil {
			return err
		}
	}
	n.event(rec, dockerevents.ActionStop)
	return nil
}

// drain waits between the withdrawal and the stop signal, so that whoever was
// sent here a moment ago is served (cases/update.md, update-6).
func (n *Node) drain(ctx context.Context, c *Container, o stopOrder, done <-chan struct{}) (ended bool, err error) {
	rec := c.record()
	if o.drain <= 0 || !rec.StopBy.IsZero() {
		return false, nil
	}
	by := rec.DrainBy
	if by.IsZero() {
		by = time.Now().Add(o.drain)
		n.note(c, func(r *Record) { r.DrainBy = by })
	}
	rest := left(by, o.drain)
	n.logger(rec).Info("draining before the stop signal", "for", rest.String())
	ended = wait(ctx, done, rest)
	if !ended {
		err = ctx.Err()
	}
	return ended, err
}

// signal sends the stop signal, once in a stop, and tells how long to wait
// for its effect.
func (n *Node) signal(ctx context.Context, c *Container, o stopOrder) (grace time.Duration) {
	c.mu.Lock()
	rec := c.rec
	sent := c.signalled == o.signal || !rec.StopBy.IsZero() && syscall.Signal(rec.StopSignal) == o.signal
	c.signalled = o.signal
	c.mu.Unlock()
	grace = o.grace
	if !rec.StopBy.IsZero() {
		grace = left(rec.StopBy, positive(o.grace))
	}
	if sent {
		return grace
	}
	log := n.logger(rec)
	if err := n.cfg.Runtime.Kill(ctx, rec.runtimeID(), int(o.signal)); err != nil {
		log.Warn("stop signal not delivered", "signal", o.signal.String(), "err", err)
	}
	if rec.State == Paused {
		// A frozen process cannot act on its signal.
		if err := n.cfg.Runtime.Resume(ctx, rec.runtimeID()); err != nil {
			log.Warn("paused container not resumed for its stop", "err", err)
		}
	}
	log.Info("stop signal sent", "signal", o.signal.String(), "grace", grace.String())
	n.event(rec, dockerevents.ActionKill, "signal", fmt.Sprint(int(o.signal)))
	if grace >= 0 {
		by := time.Now().Add(grace)
		n.note(c, func(r *Record) { r.StopBy = by })
	}
	return grace
}

// kills notes that the container is killed, and tells whether that is new.
func (c *Container) kills() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	first := c.signalled != syscall.SIGKILL
	c.signalled = syscall.SIGKILL
	return first
}

// left is what is left of a wait until a time that an earlier daemon may have
// written down: never more than all of it, as the clock may have been set back.
func left(by time.Time, all time.Duration) time.Duration { return max(0, min(time.Until(by), all)) }

// positive is a grace, or the longest there is where it has no end.
func positive(grace time.Duration) time.Duration {
	if grace < 0 {
		return 1<<63 - 1
	}
	return grace
}

// finishStop does what an unhealthy verdict demands, or goes on with any stop
// where an earlier daemon ended: with what is left of drain and grace.
func (n *Node) finishStop(c *Container) {
	rec := c.record()
	if err := n.stopRun(n.ctx, c, rec.recordedStop()); err != nil && n.ctx.Err() == nil {
		n.logger(rec).Error("container could not be stopped", "err", err)
	}
}

// kill sends SIGKILL until the container has ended, for at most killBound.
func (n *Node) kill(ctx context.Context, c *Container, done <-chan struct{}) error {
	deadline := time.Now().Add(killBound)
	for {
		err := n.cfg.Runtime.Kill(ctx, c.runtimeID(), int(syscall.SIGKILL))
		if wait(ctx, done, time.Second) {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if time.Now().After(deadline) {
			return errors.Join(fmt.Errorf("container %s did not end within %s of SIGKILL", short(c.id), killBound), err)
		}
	}
}
