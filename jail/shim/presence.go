// SPDX-License-Identifier: BSD-2-Clause

package shim

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// DefaultPatience is how long the shim may take to say who it is before it is
// taken to hang. It does that between two system calls; what is longer is a
// shim that was stopped, or a machine that stands still.
const DefaultPatience = 10 * time.Second

const (
	helloEvery = 10 * time.Second // while all is well
	doubtAfter = time.Second      // an answer is late, and the shim is asked for a sign of life
)

// ErrSilent says that the shim is there and does not answer: it was stopped, or
// hangs. Whether it will do what it was asked for is not known, but what it had
// not begun when its asker left is never begun.
var ErrSilent = errors.New("the shim does not answer")

// presence is whether the shim answers, as far as Watch knows.
type presence struct {
	doubt chan struct{} // a nudge for Watch; has room for one

	mu   sync.Mutex
	away error           // why nobody answers; nil while somebody does
	here context.Context // ends when away is set
	lose context.CancelFunc
}

func (p *presence) init() {
	p.doubt = make(chan struct{}, 1)
	p.here, p.lose = context.WithCancel(context.Background())
}

// Away tells why the shim does not answer, nil while it does or nobody knows
// better; gone is closed when it no longer does.
func (c *Client) Away() (why error, gone <-chan struct{}) {
	c.presence.mu.Lock()
	defer c.presence.mu.Unlock()
	return c.presence.away, c.presence.here.Done()
}

// Lose notes that nobody answers: requests under way are given up, and later
// ones are refused without asking. It tells whether that is new.
func (c *Client) Lose(why error) bool {
	p := &c.presence
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.away != nil {
		return false
	}
	p.away = why
	p.lose()
	return true
}

// Regain undoes Lose, and tells whether there was anything to undo.
func (c *Client) Regain() bool {
	p := &c.presence
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.away == nil {
		return false
	}
	p.away = nil
	p.here, p.lose = context.WithCancel(context.Background())
	return true
}

// Patience is how long the shim may be silent.
func (c *Client) Patience() time.Duration { return c.patience }

// doubts has Watch ask for a sign of life.
func (c *Client) doubts() {
	select {
	case c.presence.doubt <- struct{}{}:
	default:
	}
}

// silent is ErrSilent with what an operator needs to know.
func silent(pid int) error {
	who := ""
	if pid > 0 {
		who = fmt.Sprintf(" (process %d)", pid)
	}
	return fmt.Errorf("%w%s: it was stopped, or hangs; containers run on, and none is started or removed until it goes on", ErrSilent, who)
}

// Watch asks the shim for a sign of life every now and then, and whenever an
// answer is late, until ctx is done. It calls changed with what is wrong when
// the shim falls silent, and with nil when it goes on. One that is not there at
// all is not Watch's concern.
func (c *Client) Watch(ctx context.Context, changed func(why error)) {
	tick := time.NewTicker(helloEvery)
	defer tick.Stop()
	for {
		err := c.sign(ctx, changed)
		if ctx.Err() != nil {
			return
		}
		switch why, _ := c.Away(); {
		case err == nil && c.Regain():
			changed(nil)
		case err != nil && !errors.Is(err, ErrSilent) && errors.Is(why, ErrSilent):
			c.Regain() // it is dead now, and another one can be started
		}
		select {
		case <-tick.C:
		case <-c.presence.doubt:
		case <-ctx.Done():
			return
		}
	}
}

// sign waits for an answer, however long that takes: a shim that is silent is
// asked once, and not every few seconds by yet another connection.
func (c *Client) sign(ctx context.Context, changed func(why error)) error {
	answer := make(chan error, 1)
	go func() {
		_, err := c.do(ctx, request{Op: opHello})
		answer <- err
	}()
	late := time.NewTimer(c.patience)
	defer late.Stop()
	for {
		select {
		case err := <-answer:
			if errors.Is(err, ErrSilent) && c.Lose(err) {
				changed(err)
			}
			return err
		case <-late.C:
			if why := silent(c.peer()); c.Lose(why) {
				changed(why)
			}
		}
	}
}
