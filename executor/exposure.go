// SPDX-License-Identifier: BSD-2-Clause

package executor

import (
	"context"
	"errors"
	"slices"
	"time"

	"satld/healthcheck"
	"satld/traffic"
)

// serving is the one predicate of DESIGN.md section 5 as this node sees it:
// observed RUNNING, not to stop, not withdrawn, whether for its health, by
// the operator's word, or for good.
func (r Record) serving() bool { return r.running() && r.outForHealth() == "" && !r.Unready }

// running tells a container that is RUNNING in the cluster's words and is to
// go on so.
func (r Record) running() bool {
	return r.State.Live() && r.Proved && !r.Withdrawn && !r.Stopping
}

// outForHealth is why a running container is out of traffic for its health
// alone, "" where it is not.
func (r Record) outForHealth() string {
	if r.Unhealthy != "" {
		return r.Unhealthy
	}
	return r.Unrouted
}

// unready tells whether an operator took the container out of traffic, by
// itself or with its node. A node's word is about the tasks that the cluster
// put there, not about what was started on it by hand.
func (n *Node) unready(r Record) bool {
	return r.Unready || r.TaskID != "" && n.nodeUnready.Load()
}

// withdrawnText is what is reported of a running task that is out of traffic,
// "" of one that is not.
func (n *Node) withdrawnText(r Record) string {
	switch {
	case r.Unhealthy != "":
		return healthcheck.Withdrawn + r.Unhealthy + "; waits for its turn to be replaced"
	case r.Unrouted != "":
		return healthcheck.Withdrawn + r.Unrouted
	case r.Unready:
		return healthcheck.Withdrawn + "not ready, by the operator's word on the task"
	case n.unready(r):
		return healthcheck.Withdrawn + "not ready, by the operator's word on its node"
	}
	return ""
}

// notServing is why a container is sent no traffic, in words for people; ""
// of one that is. h and s are its probe's, nil and zero without one.
func (n *Node) notServing(r Record, h *healthcheck.Health, s healthcheck.Settings) string {
	switch {
	case !r.State.Live():
		return r.State.String()
	case r.Stopping && r.Unhealthy != "":
		return "stopping: " + r.Unhealthy
	case r.Stopping, r.Withdrawn:
		return "stopping"
	case !r.Proved && h != nil:
		return h.Progress(s.Retries)
	case !r.Proved:
		return "starting"
	}
	return n.withdrawnText(r)
}

// failsOpen tells whether a container is sent traffic though it does not pass.
func (n *Node) failsOpen(r Record) bool {
	table, ok := n.cfg.Traffic.(interface{ FailOpen() []string })
	return ok && r.FailOpen && n.memberOf(r).Unhealthy && slices.Contains(table.FailOpen(), r.ServiceID)
}

// memberOf is what traffic needs to know of a container.
func (n *Node) memberOf(r Record) traffic.Member {
	unready := n.unready(r)
	m := traffic.Member{
		ContainerID: r.ID, Name: r.Name,
		TaskID: r.TaskID, ServiceID: r.ServiceID, ServiceName: r.ServiceName, Slot: r.Slot,
		NotReadyNames: r.NotReady, FailOpen: r.FailOpen,
		Serving: r.serving() && !unready, Process: r.State.Live(),
		// An operator's word does not fail open (cases/pool.md, pool-8;
		// spec/application-health.txt, "How the gateway uses it").
		Unhealthy: r.running() && r.outForHealth() != "" && !unready,
	}
	for _, a := range n.cfg.Networks.Attachments(r.runtimeID()) {
		m.Endpoints = append(m.Endpoints, traffic.Endpoint{NetworkID: a.NetworkID, Addr: a.Addr.Addr(), Aliases: r.Aliases[a.NetworkID], Nameless: a.NetworkID == r.IngressID})
	}
	for _, p := range r.Ports {
		m.Ports = append(m.Ports, p.traffic())
	}
	return m
}

// exposure is what traffic knows of a container's run.
type exposure int

const (
	unknown   exposure = iota // nothing yet
	member                    // it is a member, whatever may be sent to it
	withdrew                  // it is a member that nothing is sent to any more, confirmed
	forgotten                 // it has ended: traffic is told nothing more of it
)

// expose brings traffic to what the record says, and waits, within bounds,
// for the packet filter to confirm it. Of several changes at a time the newest
// record is what stands; who waited for an older one waits no longer.
func (n *Node) expose(ctx context.Context, c *Container) {
	ctx, cancel := context.WithTimeout(ctx, withdrawBound)
	defer cancel()
	rec, known := c.takeFloor(cancel)
	defer c.showing.Unlock()
	if known == forgotten {
		return
	}
	begun := time.Now()
	m, log := n.memberOf(rec), n.logger(rec)
	// Neither in, nor to be fallen back on, nor on its way in.
	out := !m.Serving && !m.Unhealthy && (rec.Proved || rec.Stopping || rec.Withdrawn)
	now := member
	var err error
	if !out || known == unknown {
		err = n.cfg.Traffic.Put(ctx, m)
	}
	if out {
		err = errors.Join(err, n.cfg.Traffic.Withdraw(ctx, c.id))
	}
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		// A newer change says what became of it.
	case err != nil:
		log.Warn("traffic change not confirmed; it is retried", "serving", m.Serving, "after", time.Since(begun).String(), "err", err)
	case out:
		now = withdrew
		if known != withdrew {
			log.Info("withdrawn from traffic", "took", time.Since(begun).String())
		}
	}
	c.mu.Lock()
	c.shown = now
	c.mu.Unlock()
}

// conceal has traffic forget a container whose process is gone.
func (n *Node) conceal(ctx context.Context, c *Container) error {
	ctx, cancel := context.WithTimeout(ctx, withdrawBound)
	defer cancel()
	c.takeFloor(cancel)
	defer c.showing.Unlock()
	c.mu.Lock()
	c.shown = forgotten
	c.mu.Unlock()
	return n.cfg.Traffic.Remove(ctx, c.id)
}

// takeFloor ends the wait of the change before and locks showing, which the
// caller unlocks. It returns the record as it is then.
func (c *Container) takeFloor(cancel context.CancelFunc) (Record, exposure) {
	c.mu.Lock()
	if c.supersede != nil {
		c.supersede()
	}
	c.supersede = cancel
	c.mu.Unlock()
	c.showing.Lock()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rec, c.shown
}
