// SPDX-License-Identifier: BSD-2-Clause

package executor

import (
	"context"
	"time"
)

const (
	// withdrawBound is how long a stop waits for the packet filter to confirm
	// a withdrawal: one failed apply and its retries fit in it, a filter that
	// stays broken does not wedge the task (cases/pool.md, pool-4).
	withdrawBound = 5 * time.Second
	// proberBound is how long a stop waits for a probe in flight to be killed.
	proberBound = 2 * time.Second
	// killBound is how long a killed container may take to end before its
	// stop reports an error; its end is still watched for.
	killBound = 10 * time.Second
	// recordBound is how long a stop waits for its record to be written until
	// it says so.
	recordBound = time.Second
	// closeBound is how long a daemon that ends waits for what it began.
	closeBound = 2 * killBound
	// DefaultGrace is the time between stop signal and SIGKILL where the spec
	// gives none: Docker's own.
	DefaultGrace = 10 * time.Second
)

// retry runs f until it succeeds or the daemon stops, ever less often up to
// once in 30 s.
func (n *Node) retry(log interface{ Warn(string, ...any) }, what string, f func(ctx context.Context) error) {
	for delay := 100 * time.Millisecond; ; delay = min(2*delay, 30*time.Second) {
		err := n.bounded(2*killBound, f)
		if err == nil {
			return
		}
		log.Warn(what+" failed; retrying", "in", delay.String(), "err", err)
		if !n.sleep(delay) {
			return
		}
	}
}

// sleep waits, and tells whether the daemon still runs.
func (n *Node) sleep(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-n.ctx.Done():
		return false
	}
}

// bounded runs f with a time limit and without regard to the daemon's end: a
// step that was begun is finished.
func (n *Node) bounded(limit time.Duration, f func(ctx context.Context) error) error {
	return boundedCtx(context.WithoutCancel(n.ctx), limit, f)
}

// within is bounded, and returns when its time is over even where f does not
// look at its context: it may wait for a disk.
func (n *Node) within(limit time.Duration, f func(ctx context.Context) error) error {
	return n.bounded(limit, func(ctx context.Context) error {
		done := make(chan error, 1)
		n.wg.Go(func() { done <- f(ctx) })
		select {
		case err := <-done:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	})
}

func boundedCtx(ctx context.Context, limit time.Duration, f func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return f(ctx)
}

// wait tells whether done closed within d; a negative d waits for ever.
func wait(ctx context.Context, done <-chan struct{}, d time.Duration) bool {
	var expired <-chan time.Time
	if d >= 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		expired = t.C
	}
	select {
	case <-done:
		return true
	case <-expired:
		return false
	case <-ctx.Done():
		return false
	}
}
