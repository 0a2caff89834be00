// SPDX-License-Identifier: BSD-2-Clause

package command

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Calm is how long the bound of a Patience has to have been far too long until
// it is halved: longer than whoever uses one takes until the slowest of its
// calls comes round again.
const Calm = 5 * time.Minute

// Patience is the bound of calls that end at once, or else on a host so slow
// that each of them takes seconds. It is Least to begin with, so that a call
// that hangs costs no more than it has to; it doubles with each call that ran out
// of time, up to Most, so that the same call is not cut off for ever; and it is
// halved when for Calm no call has taken a quarter of it. It is safe for
// concurrent use.
type Patience struct {
	Least, Most time.Duration

	mu     sync.Mutex
	longer time.Duration // the bound, where it is longer than Least
	needed time.Time     // when a call last took much of it, or it changed
}

// Bound is how long a call may take now.
func (p *Patience) Bound() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return max(p.longer, p.Least)
}

// Do calls f with a context that ends with the bound. A call that ran out of
// time says so; one that its caller's own context ended teaches nothing.
func (p *Patience) Do(ctx context.Context, f func(ctx context.Context) error) error {
	bound, begun := p.Bound(), time.Now()
	bounded, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	err := f(bounded)
	if expired := err != nil && bounded.Err() != nil && ctx.Err() == nil; expired {
		err = fmt.Errorf("not done within %v: %w", bound, err)
		p.note(bound, 0, true)
	} else if ctx.Err() == nil {
		p.note(bound, time.Since(begun), false)
	}
	return err
}

// Runner is run with the bound in place of each command's own.
func (p *Patience) Runner(run Runner) Runner {
	return func(ctx context.Context, c Command) (string, error) {
		c.Bound = p.Bound()
		begun := time.Now()
		out, err := run(ctx, c)
		if ctx.Err() == nil {
			p.note(c.Bound, time.Since(begun), errors.Is(err, context.DeadlineExceeded))
		}
		return out, err
	}
}

// note learns from a call that had bound to end in.
func (p *Patience) note(bound, took time.Duration, expired bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	switch current := max(p.longer, p.Least); {
	case expired && bound == current: // of several at once the first counts
		p.longer, p.needed = min(2*current, p.Most), now
	case expired || took >= current/4:
		p.needed = now
	case p.longer > p.Least && now.Sub(p.needed) >= Calm:
		p.longer, p.needed = current/2, now
	}
}
