// SPDX-License-Identifier: BSD-2-Clause

package healthcheck

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"
)

// Run probes until ctx is done, then abandons what is in flight and waits for
// its end, at most KillLimit: only what is left over then is an error. It is
// called once.
func (m *Monitor) Run(ctx context.Context) error {
	defer close(m.stopped)
	m.mu.Lock()
	m.running = true
	m.mu.Unlock()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		select {
		case <-m.nudge:
			m.obey(time.Now())
		case r := <-m.results:
			m.land(r, time.Now())
		case <-timer.C:
		case <-ctx.Done():
			continue
		}
		now := time.Now()
		m.writeOff(now)
		for _, l := range m.lanes() {
			m.launch(l, now)
		}
		if next, ok := m.next(); ok {
			timer.Reset(next.Sub(now))
		} else {
			timer.Stop()
		}
	}
	m.left = m.drain()
	return m.left
}

// obey does what was asked for, in order.
func (m *Monitor) obey(now time.Time) {
	m.mu.Lock()
	commands := m.commands
	m.commands = nil
	m.mu.Unlock()
	for _, command := range commands {
		command(now)
	}
}

// next is when the loop has something to do: a probe that is due, if there is
// a slot for it, or an attempt that will be overdue.
func (m *Monitor) next() (at time.Time, ok bool) {
	for _, l := range m.lanes() {
		if e := l.due.first(); e != nil && l.busy < l.slots && (!ok || e.health.NextProbe.Before(at)) {
			at, ok = e.health.NextProbe, true
		}
	}
	for _, a := range m.attempts {
		if !a.over() && (!ok || a.overdue.Before(at)) {
			at, ok = a.overdue, true
		}
	}
	return at, ok
}

// launch starts the probes of a lane that are due, the longest waiting first,
// while there are slots. Waiting for one is not failing, and a probe that
// waited is one probe, however many waits have passed. A start whose bound is
// reached gets no more probe: it is judged.
func (m *Monitor) launch(l *lane, now time.Time) {
	for l.busy < l.slots {
		e := l.due.first()
		if e == nil || e.health.NextProbe.After(now) {
			return
		}
		switch {
		case e.health.NextProbe.Equal(e.health.StartBound):
			before := e.health
			e.health = Expire(e.health, e.Settings)
			m.schedule(e, now)
			m.judged(e, before)
		case m.attempts[e.ID] != nil:
			// One that was abandoned has not ended yet: this one is skipped.
			m.schedule(e, now)
			e.show()
		default:
			m.start(e, now)
		}
	}
}

// start makes one attempt in a goroutine of its own. The attempt does not hang
// on Run's context: only the loop abandons one, so that none is killed by the
// daemon's end and then judged.
func (m *Monitor) start(e *watched, now time.Time) {
	m.unschedule(e)
	e.show()
	ctx, kill := context.WithCancel(context.Background())
	timeout := AttemptTimeout(e.health, e.Settings, e.Started, now)
	a := &attempt{
		of: e, kill: kill, ended: make(chan struct{}), begun: now,
		overdue: now.Add(SetupLimit).Add(timeout).Add(KillLimit),
	}
	m.attempts[e.ID] = a
	e.lane.busy++
	do := e.ask()
	go func() {
		r := do(ctx, timeout)
		close(a.ended)
		select {
		case m.results <- ended{a, r}:
		case <-m.stopped:
		}
	}()
}

// land takes an attempt's result. That of an abandoned attempt changes
// nothing; that of a stuck one was judged long ago.
func (m *Monitor) land(r ended, now time.Time) {
	a, e := r.attempt, r.attempt.of
	a.kill()
	delete(m.attempts, e.ID)
	if !a.stuck {
		e.lane.busy--
	}
	if a.abandoned {
		return
	}
	before := e.health
	if !a.stuck {
		m.fold(e, r.result)
	}
	m.schedule(e, now)
	m.judged(e, before)
}

// writeOff judges attempts that outlived every limit because what they started
// cannot be killed: each is a failure when it becomes overdue, and again at
// the pace of probes that hang, so that a container stuck in the kernel gets
// its verdict. Its slot goes to others; nothing new is started in it.
func (m *Monitor) writeOff(now time.Time) {
	for _, a := range m.attempts {
		if a.over() || a.overdue.After(now) {
			continue
		}
		if !a.stuck {
			a.stuck = true
			a.of.lane.busy--
			m.log.Warn("a probe cannot be killed", "task_id", a.of.TaskID, "container", short(a.of.ID), "begun", a.begun)
		}
		if a.abandoned {
			continue
		}
		e, before := a.of, a.of.health
		m.fold(e, Result{
			Start: a.begun, End: now, ExitCode: -1,
			Output: fmt.Sprintf("Health check has not ended after %v and cannot be killed", now.Sub(a.begun).Round(time.Millisecond)),
		})
		a.overdue = now.Add(e.wait()).Add(e.Settings.Timeout)
		m.judged(e, before)
	}
}

// over tells whether there is nothing more to be done about the attempt but
// wait for its end.
func (a *attempt) over() bool { return a.abandoned && a.stuck }

// fold judges a result.
func (m *Monitor) fold(e *watched, r Result) {
	e.health = Fold(e.health, e.Settings, e.Started, r)
	if r.Control {
		m.log.Debug("control probe of a health gate", "task_id", e.TaskID, "container", short(e.ID), "answered_by", string(e.health.Evidence.AnsweredBy))
		return
	}
	m.metrics.probed(r)
	if !r.Passed() {
		m.log.Debug("probe failed", "task_id", e.TaskID, "container", short(e.ID),
			"failing_streak", e.health.FailingStreak, "exit_code", r.ExitCode, "output", excerpt(r.Output))
	}
}

// judged shows what became of a health, and tells of a change.
func (m *Monitor) judged(e *watched, before Health) {
	e.show()
	h := e.health
	last := h.Log[len(h.Log)-1]
	if len(h.Dips) > 0 && !slices.Equal(h.Dips, before.Dips) {
		m.wavered(e, last.End)
	}
	if h.Status == before.Status && h.Unrouted == before.Unrouted && h.Condemned == before.Condemned {
		return
	}
	t := Transition{
		ID: e.ID, From: before.Status, To: h.Status,
		Streak: h.FailingStreak, Retries: e.Settings.Retries, Last: last, Health: h,
	}
	if t.From != t.To {
		level := slog.LevelInfo
		if t.To == Unhealthy {
			level = slog.LevelWarn
		}
		m.log.Log(context.Background(), level, "health changed", "task_id", e.TaskID, "container", short(e.ID),
			"from", t.From.String(), "to", t.To.String(), "failing_streak", t.Streak, "retries", t.Retries,
			"exit_code", last.ExitCode, "output", excerpt(last.Output))
		m.metrics.verdicts.WithLabelValues(t.To.String()).Inc()
	}
	if h.Condemned != before.Condemned && h.Condemned != "" && (t.From == t.To || h.FailingStreak < e.Settings.Retries) {
		// Not what the line above says already.
		m.log.Warn("container is to be replaced", "task_id", e.TaskID, "container", short(e.ID), "reason", h.Condemned)
	}
	if e.Changed != nil {
		e.Changed(t)
	}
}

// wavered warns of a container that fails and passes by turns, at most once
// in flapWindow.
func (m *Monitor) wavered(e *watched, now time.Time) {
	warning := Flap{Dips: e.health.Dips}.Warning(now)
	if warning == "" || now.Sub(e.warned) < flapWindow {
		return
	}
	e.warned = now
	m.log.Warn("health wavers", "task_id", e.TaskID, "container", short(e.ID), "warning", warning)
}

// schedule makes the next probe due one wait from now, or the judgment of a
// start whose bound comes first. There is none for a gate that was not passed.
func (m *Monitor) schedule(e *watched, now time.Time) {
	if e.health.final {
		m.unschedule(e)
		return
	}
	e.health.NextProbe = now.Add(e.wait())
	if bound := e.health.StartBound; bound.After(now) && bound.Before(e.health.NextProbe) {
		e.health.NextProbe = bound
	}
	e.lane.due.put(e)
}

// unschedule has no probe due.
func (m *Monitor) unschedule(e *watched) {
	e.lane.due.take(e)
	e.health.NextProbe = time.Time{}
}

// shelve leaves a container unprobed: nothing due, and what is in flight
// abandoned, as one of an earlier incarnation is already.
func (m *Monitor) shelve(e *watched) {
	m.unschedule(e)
	e.show()
	if a := m.attempts[e.ID]; a != nil {
		a.abandoned = true
		a.kill()
	}
}

// inFlight is closed when a container's attempt in flight has ended; nil where
// there is none.
func (m *Monitor) inFlight(id string) <-chan struct{} {
	if a := m.attempts[id]; a != nil {
		return a.ended
	}
	return nil
}

// drain abandons what is in flight and waits for its end.
func (m *Monitor) drain() error {
	for _, a := range m.attempts {
		a.kill()
	}
	limit := time.NewTimer(KillLimit)
	defer limit.Stop()
	for len(m.attempts) > 0 {
		select {
		case r := <-m.results:
			delete(m.attempts, r.attempt.of.ID)
		case <-limit.C:
			return fmt.Errorf("stop the health monitor: %d probes have not ended %v after they were killed", len(m.attempts), KillLimit)
		}
	}
	return nil
}

// short is a container ID as people see it.
func short(id string) string { return id[:min(len(id), 12)] }
