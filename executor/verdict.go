// SPDX-License-Identifier: BSD-2-Clause

package executor

import (
	"context"
	"errors"
	"time"

	dockerevents "github.com/docker/docker/api/types/events"

	"satld/healthcheck"
	"satld/traffic"
)

// errUnhealthy marks the failure of a task that its probe condemned: an error
// of its own kind, so that an exit code of 0 on its stop signal never makes
// it COMPLETE (DESIGN.md section 5).
var errUnhealthy = errors.New("unhealthy")

// onVerdict acts on a change of verdict. A pass proves the task and lets
// traffic in. An unhealthy verdict takes it out of traffic first, then stops
// it; the controller reports FAILED when it has ended, and the restart policy
// decides what follows (spec/healthchecks.txt, "The second difference").
func (n *Node) onVerdict(c *Container, t healthcheck.Transition) {
	rec := c.record()
	if rec.Stopping {
		return
	}
	log := n.logger(rec)
	n.event(rec, dockerevents.Action("health_status: "+t.To.String()))
	switch t.To {
	case healthcheck.Healthy:
		if err := n.update(c, func(r *Record) { r.Proved = true }); err != nil {
			log.Warn("pass not recorded; after a restart of the daemon the task proves itself again", "err", err)
		}
		err := n.bounded(withdrawBound, func(ctx context.Context) error { return n.cfg.Traffic.Put(ctx, n.member(c.record())) })
		if err != nil {
			log.Warn("traffic change not confirmed yet; it is retried", "err", err)
		}
		c.mu.Lock()
		closeOnce(c.proved)
		c.mu.Unlock()
	case healthcheck.Unhealthy:
		begun := time.Now()
		reason := t.Reason()
		if err := n.update(c, func(r *Record) { r.Unhealthy, r.Withdrawn = reason, true }); err != nil {
			log.Warn("verdict not recorded", "err", err)
		}
		n.withdraw(n.ctx, c)
		log.Warn("task is unhealthy: withdrawn and stopping", "reason", reason, "withdrawn_in", time.Since(begun).String())
		n.wg.Go(func() { n.finishStop(c) })
	}
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

// serving is the one predicate of DESIGN.md section 5 as this node sees it:
// observed RUNNING, not to stop, not withdrawn.
func (r Record) serving() bool {
	return r.State.Live() && r.Proved && !r.Withdrawn && !r.Stopping
}

// member is what traffic needs to know of a container.
func (n *Node) member(r Record) traffic.Member {
	m := traffic.Member{
		ContainerID: r.ID, Name: r.Name,
		TaskID: r.TaskID, ServiceID: r.ServiceID, ServiceName: r.ServiceName, Slot: r.Slot,
		NotReadyNames: r.NotReady, FailOpen: r.FailOpen,
		Serving: r.serving(), Process: r.State.Live(),
	}
	for _, a := range n.cfg.Networks.Attachments(r.ID) {
		m.Endpoints = append(m.Endpoints, traffic.Endpoint{NetworkID: a.NetworkID, Addr: a.Addr.Addr(), Aliases: r.Aliases[a.NetworkID]})
	}
	for _, p := range r.Ports {
		m.Ports = append(m.Ports, p.traffic())
	}
	return m
}
