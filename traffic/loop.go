// SPDX-License-Identifier: BSD-2-Clause

package traffic

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"satld/redirect"
)

// When the loop does what (DESIGN.md, section 5; cases/pool.md, pool-4, pool-6).
const (
	auditEvery    = 5 * time.Second
	reassertEvery = time.Minute
	// retryFirst doubles up to retryMost while attempts fail; a new change is
	// tried at once all the same.
	retryFirst = 250 * time.Millisecond
	retryMost  = 5 * time.Second
)

// pass is what the loop remembers from one pass to the next.
type pass struct {
	written  *redirect.Rules // what the packet filter was last given; nil before
	failed   bool            // writing that did not work: nobody knows what it holds
	stale    []redirect.Flow // to cut; kept until it was done
	again    []redirect.Flow // cut already, to be cut once more at the next audit
	second   []redirect.Flow // those of again whose time has come
	open     map[string]bool // services that fail open
	tried    uint64          // the change that the last attempt was for
	backoff  time.Duration   // 0 while all is well
	retry    time.Time       // when to try again after a failure
	audit    time.Time       // next
	gaveWay  bool            // the last audit was broken off for a change
	reassert time.Time       // next
}

// Run is the loop that brings the packet filter to what the members say. It
// blocks until ctx is done and leaves the packet filter as it is.
func (t *Table) Run(ctx context.Context) error {
	defer func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.stopped = true
		t.wakeWaiters()
	}()
	settle := time.NewTimer(t.cfg.Settle)
	defer settle.Stop()
	select {
	case <-ctx.Done():
		return nil
	case <-settle.C:
		t.Settled()
	case <-t.settled:
	}
	remote := time.NewTimer(t.cfg.SettleRemote)
	defer remote.Stop()
	go t.awaitRemote(ctx)
	select {
	case <-ctx.Done():
		return nil
	case <-t.told:
	case <-t.leaving:
	case <-remote.C:
	}
	var p pass
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.nudge:
		case <-timer.C:
		}
		t.step(ctx, &p, time.Now())
		timer.Reset(time.Until(p.next()))
	}
}

// awaitRemote has names that are not known believed not to exist when other
// nodes were heard of, or were not for as long as they may take.
func (t *Table) awaitRemote(ctx context.Context) {
	if t.cfg.SettleRemote == 0 {
		return
	}
	late := time.NewTimer(t.cfg.SettleRemote)
	defer late.Stop()
	select {
	case <-t.told:
	case <-late.C:
	case <-ctx.Done():
		return
	}
	close(t.complete)
}

// next is when the loop has to look again though nothing changed.
func (p *pass) next() time.Time {
	switch {
	case p.backoff > 0:
		return p.retry
	case p.reassert.Before(p.audit):
		return p.reassert
	}
	return p.audit
}

// step is one pass. It writes when the rules differ from those written last,
// when the last attempt failed and its retry is due, when an audit found a
// difference, and when it is time to assert the whole again.
func (t *Table) step(ctx context.Context, p *pass, now time.Time) {
	t.mu.Lock()
	gen, members := t.gen, t.snapshot()
	p.stale = append(p.stale, t.ended...)
	t.ended = nil
	t.mu.Unlock()
	var subnets []redirect.Subnet
	if t.cfg.Subnets != nil {
		subnets = t.cfg.Subnets()
	}
	rules := Plan(members, subnets)
	p.noteFailOpen(t.log, members)
	t.metrics.show(rules, members)

	differs := p.written == nil || p.failed || !p.written.Equal(rules)
	due := p.backoff > 0 && !now.Before(p.retry)
	if p.backoff > 0 && !due && gen == p.tried {
		return // woken for nothing new; the retry is not due
	}
	p.tried = gen
	write := differs || due || !now.Before(p.reassert)
	if !now.Before(p.audit) {
		p.audit = now.Add(auditEvery)
		if !write {
			same, done := t.audited(ctx, p, gen)
			if !done {
				return // for a change, or for good
			}
			write = !same
		}
		p.second, p.again = append(p.second, p.again...), nil
	}
	if write && !t.write(ctx, p, rules, now) {
		return
	}
	t.confirm(gen)
	// Only now: a client that comes back at once meets the new rules
	// (cases/pool.md, pool-9).
	if !t.cut(ctx, p, rules) {
		return
	}
	p.backoff = 0
	t.recovered()
}

func (t *Table) write(ctx context.Context, p *pass, rules redirect.Rules, now time.Time) bool {
	start := time.Now()
	err := t.cfg.Redirector.Apply(ctx, rules)
	t.metrics.applied(time.Since(start), err)
	if err != nil {
		p.failed = true
		t.failed(ctx, p, "packet filter could not be written; trying again", err)
		return false
	}
	p.stale = append(p.stale, staleFlows(p.written, rules)...)
	p.written, p.failed, p.reassert = &rules, false, now.Add(reassertEvery)
	return true
}

// cut ends what members that left still have. It is done once more at the next
// audit: a packet that was under way during the change may have made an entry
// after the cut.
func (t *Table) cut(ctx context.Context, p *pass, rules redirect.Rules) bool {
	if len(p.stale)+len(p.second) == 0 {
		return true
	}
	flows := current(slices.Concat(p.stale, p.second), rules)
	if err := t.cfg.Redirector.Cut(ctx, flows); err != nil {
		t.failed(ctx, p, "flows to removed members could not be cut; trying again", err)
		return false
	}
	p.again = current(slices.Concat(p.again, p.stale), rules)
	p.stale, p.second = nil, nil
	return true
}

// current brings what flows are to be kept up to date with the rules, when
// cutting them had to wait, and drops repetitions.
func current(flows []redirect.Flow, rules redirect.Rules) []redirect.Flow {
	var out []redirect.Flow
	for _, f := range flows {
		if !f.Backend.IsValid() {
			f.Keep = nil
			for _, p := range rules.Pools {
				if p.Proto == f.Proto && p.Published == f.Published {
					f.Keep = append(f.Keep, p.Members...)
				}
			}
		}
		same := func(o redirect.Flow) bool {
			return o.Proto == f.Proto && o.HostIP == f.HostIP && o.Published == f.Published && o.Backend == f.Backend && o.All == f.All
		}
		if !slices.ContainsFunc(out, same) {
			out = append(out, f)
		}
	}
	return out
}

// audited tells whether the packet filter is as it was left. When that cannot
// be told it is written again. done is false where it was broken off.
//
// A change that comes meanwhile does not wait for the end of it: where tools are
// slow that takes many seconds, and a member that is to be withdrawn would have
// traffic for as long. The next audit is then done whole, whatever comes.
func (t *Table) audited(ctx context.Context, p *pass, gen uint64) (same, done bool) {
	looking, giveWay := context.WithCancel(ctx)
	watched := make(chan struct{})
	if p.gaveWay {
		close(watched)
	} else {
		go func() {
			defer close(watched)
			t.awaitChange(looking, gen)
			giveWay()
		}()
	}
	same, err := t.cfg.Redirector.Audit(looking)
	p.gaveWay = looking.Err() != nil && (err != nil || !same)
	giveWay()
	<-watched
	switch {
	case ctx.Err() != nil, p.gaveWay:
		return false, false
	case err != nil:
		t.log.Warn("packet filter could not be audited; writing it again", "error", err)
	case !same:
		t.log.Warn("packet filter was changed by somebody else; writing it again")
	default:
		return true, true
	}
	t.metrics.drift.Inc()
	return false, true
}

// awaitChange returns when there is a change after gen, or ctx is done. The
// loop sees all nudges that come meanwhile after it.
func (t *Table) awaitChange(ctx context.Context, gen uint64) {
	nudged, changed := false, false
	for !changed && ctx.Err() == nil {
		select {
		case <-t.nudge:
			nudged = true
			t.mu.Lock()
			changed = t.gen != gen
			t.mu.Unlock()
		case <-ctx.Done():
		}
	}
	if nudged {
		t.Nudge()
	}
}

func (t *Table) confirm(gen uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if gen > t.applied {
		t.applied = gen
		t.wakeWaiters()
	}
}

// failed records a failure and when to try again.
func (t *Table) failed(ctx context.Context, p *pass, text string, err error) {
	if ctx.Err() != nil {
		return // stopped in the middle; the next life does it
	}
	p.backoff = min(max(2*p.backoff, retryFirst), retryMost)
	p.retry = time.Now().Add(p.backoff)
	t.log.Error(text, "error", err, "retry", p.backoff)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.failure == nil {
		t.since = time.Now()
	}
	t.failure = err
	t.metrics.healthy.Set(0)
	t.wakeWaiters()
}

func (t *Table) recovered() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.metrics.healthy.Set(1)
	if t.failure != nil {
		t.log.Info("packet filter is as it should be again", "after", time.Since(t.since).Round(time.Millisecond))
		t.failure = nil
		t.wakeWaiters()
	}
}

// wakeWaiters makes everybody in confirmed look again; the caller holds the lock.
func (t *Table) wakeWaiters() {
	close(t.progress)
	t.progress = make(chan struct{})
}

// noteFailOpen logs once when a service starts and stops failing open
// (cases/pool.md, pool-8).
func (p *pass) noteFailOpen(log *slog.Logger, members []Member) {
	open := failsOpen(slices.Values(members))
	name := func(group string) string {
		for _, m := range members {
			if m.group() == group {
				return m.ServiceName
			}
		}
		return group
	}
	for g := range open {
		if !p.open[g] {
			log.Warn("nobody of the service passes: traffic goes to all that run (satl.traffic.fail-open)", "service", name(g))
		}
	}
	for g := range p.open {
		if !open[g] {
			log.Info("service does not fail open any more", "service", name(g))
		}
	}
	p.open = open
}
