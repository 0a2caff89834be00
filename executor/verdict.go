// SPDX-License-Identifier: BSD-2-Clause

package executor

import (
	"context"
	"errors"
	"time"

	dockerevents "github.com/docker/docker/api/types/events"

	"satld/healthcheck"
)

// errUnhealthy marks the failure of a task that its probe condemned: an error
// of its own kind, so that an exit code of 0 on its stop signal never makes
// it COMPLETE (DESIGN.md section 5).
var errUnhealthy = errors.New("unhealthy")

// onVerdicts tells of changes of verdict, in order, and acts on them.
func (n *Node) onVerdicts(c *Container, all []healthcheck.Transition) {
	rec := c.record()
	if rec.Stopping {
		return
	}
	for _, t := range all {
		if t.From != t.To {
			n.event(rec, dockerevents.Action("health_status: "+t.To.String()))
		}
	}
	t := n.decisive(rec, all)
	switch {
	case t.Health.Condemned != "":
		n.condemn(c, t.Health.Condemned)
	case t.Health.Unrouted:
		n.unroute(c, t.Reason())
	case t.To == healthcheck.Healthy:
		n.passed(c)
	}
}

// decisive is the one to act on of changes that came while an earlier one was
// acted on: the last, which is the whole of what the monitor knows, or the
// first that condemned a task which need not wait for its turn, as no later
// pass saves that.
func (n *Node) decisive(r Record, all []healthcheck.Transition) healthcheck.Transition {
	for _, t := range all {
		if t.Health.Condemned != "" && !n.waitsForTurn(r) {
			return t
		}
		r.Proved = r.Proved || t.To == healthcheck.Healthy
	}
	return all[len(all)-1]
}

// passed proves a task and lets traffic in, at the first pass as at any later
// one after it was withdrawn.
func (n *Node) passed(c *Container) {
	c.mu.Lock()
	if c.rec.Stopping { // its turn came a moment ago
		c.mu.Unlock()
		return
	}
	was := c.rec.outForHealth()
	c.rec.Proved, c.rec.Unhealthy, c.rec.Unrouted = true, "", ""
	c.tell()
	c.mu.Unlock()
	n.saveSoon(c)
	log := n.logger(c.record())
	if was != "" {
		log.Info("task passes again and returns to traffic", "was", was)
	}
	n.expose(context.WithoutCancel(n.ctx), c)
	c.mu.Lock()
	closeOnce(c.proved)
	c.mu.Unlock()
}

// unroute takes a task out of traffic until it passes again
// (spec/replica-health.txt, "Running"; label satl.health.action=unroute).
func (n *Node) unroute(c *Container, reason string) {
	if c.record().Unrouted != "" {
		return
	}
	n.note(c, func(r *Record) { r.Unrouted = reason })
	log := n.logger(c.record())
	n.expose(n.ctx, c)
	log.Warn("task is unhealthy: withdrawn until it passes", "reason", reason)
}

// condemn takes an unhealthy task out of traffic and then stops it, at once
// or, where its service replaces its tasks in turn, when the leader says so;
// the controller reports FAILED when it has ended, and the restart policy
// decides what follows (spec/healthchecks.txt, "The second difference"). No
// pass saves a task that need not wait.
func (n *Node) condemn(c *Container, reason string) {
	begun := time.Now()
	waits := n.waitsForTurn(c.record())
	n.note(c, func(r *Record) {
		if r.Unhealthy = reason; !waits {
			r.begin(r.recordedStop())
		}
	})
	log := n.logger(c.record())
	n.expose(n.ctx, c)
	if waits {
		log.Warn("task is unhealthy: withdrawn, and waits for its turn to be replaced", "reason", reason, "withdrawn_in", time.Since(begun).String())
		n.askForTurn(c)
		return
	}
	log.Warn("task is unhealthy: withdrawn and stopping", "reason", reason, "withdrawn_in", time.Since(begun).String())
	n.wg.Go(func() { n.stopUnhealthy(c) })
}

// stopUnhealthy stops a task to be replaced, once what its failure leaves for
// the record is gathered.
func (n *Node) stopUnhealthy(c *Container) {
	n.reportFailure(c, "")
	n.finishStop(c)
}

// unwatch ends the probing of a container and waits, within bounds, for a
// probe in flight; what was known of its health is still shown.
func (n *Node) unwatch(c *Container) {
	if h, ok := n.cfg.Prober.Get(c.id); ok {
		h.NextProbe = time.Time{}
		c.mu.Lock()
		c.health = &h
		c.mu.Unlock()
	}
	err := n.bounded(proberBound, func(ctx context.Context) error { return n.cfg.Prober.Remove(ctx, c.id) })
	if err != nil {
		n.logger(c.record()).Warn("a probe still runs", "err", err)
	}
}

// health is what inspect shows: what the monitor knows of the container, or
// knew when its probing ended; starting in the moment before it began. It is
// nil if and only if there is no probe or the container never ran, so that
// "not probed yet" is never read as "has no probe" (cases/verdict.md, verdict-6).
func (n *Node) health(c *Container) *healthcheck.Health {
	if h, ok := n.cfg.Prober.Get(c.id); ok {
		return &h
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, probed := c.rec.settings(); !probed {
		return nil
	}
	h := healthcheck.Health{Log: []healthcheck.Result{}}
	switch {
	case c.health != nil:
		h = *c.health
	case c.rec.Unhealthy != "": // said by an earlier daemon
		h.Status = healthcheck.Unhealthy
	case !c.rec.State.Live():
		return nil
	}
	return &h
}
