// SPDX-License-Identifier: BSD-2-Clause

package executor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"

	"satld/jail"
)

// Wait tells once how the container ended.
func (n *Node) Wait(ctx context.Context, ref string, condition container.WaitCondition) (<-chan WaitResult, error) {
	c, err := n.find(ref)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	live, began, done := c.rec.State.Live(), c.began, c.done
	c.mu.Unlock()
	var until func() error
	await := func(ch <-chan struct{}) error {
		select {
		case <-ch:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-n.ctx.Done():
			return errors.New("the daemon is stopping; the container goes on")
		}
	}
	switch condition {
	case "", container.WaitConditionNotRunning:
		until = func() error {
			if !live {
				return nil
			}
			return await(done)
		}
	case container.WaitConditionNextExit:
		until = func() error {
			if live {
				return await(done)
			}
			// `start -a` waits first and starts then.
			if err := await(began); err != nil {
				return err
			}
			if _, done := c.run(); c.record().State.Live() {
				return await(done)
			}
			return nil // it ended already, or could not be started
		}
	case container.WaitConditionRemoved:
		until = func() error { return n.awaitRemoval(ctx, c) }
	default:
		return nil, invalid("invalid wait condition %q", condition)
	}
	out := make(chan WaitResult, 1)
	go func() {
		err := until()
		out <- WaitResult{ExitCode: c.record().ExitCode, Err: err}
	}()
	return out, nil
}

// endPatience is how long whoever waits for the removal of a container that goes
// with its end waits for what comes before: a jail may take as long to die.
const endPatience = 3 * time.Minute

// awaitRemoval waits until a container is removed. A removal that fails is
// retried for ever, and waited for no longer than a kill.
func (n *Node) awaitRemoval(ctx context.Context, c *Container) error {
	var since State
	var late <-chan time.Time
	for {
		rec, changed := c.news()
		if rec.State != since {
			since, late = rec.State, nil
			switch {
			case rec.State == Dead:
				late = time.After(killBound)
			case rec.State == Exited && rec.HostConfig != nil && rec.HostConfig.AutoRemove:
				late = time.After(endPatience)
			}
		}
		select {
		case <-c.gone:
			return nil
		case <-changed:
		case <-late:
			return fmt.Errorf("the container's removal is retried, and not waited for any longer: %s", cmp.Or(c.record().Error, rec.State.String()))
		case <-ctx.Done():
			return ctx.Err()
		case <-n.ctx.Done():
			return errors.New("the daemon is stopping; the container goes on")
		}
	}
}

// Logs calls each for every selected line of the container's output.
func (n *Node) Logs(ctx context.Context, ref string, q jail.LogQuery, each func(jail.LogLine) error) error {
	c, err := n.find(ref)
	if err != nil {
		return err
	}
	c.mu.Lock()
	began := c.began
	c.mu.Unlock()
	err = n.cfg.Runtime.Logs(ctx, c.runtimeID(), q, each)
	if !cerrdefs.IsNotFound(err) {
		return err
	}
	// It never ran: no lines yet.
	if !q.Follow {
		return nil
	}
	select {
	case <-began:
		if err = n.cfg.Runtime.Logs(ctx, c.runtimeID(), q, each); cerrdefs.IsNotFound(err) {
			return nil // the start failed
		}
		return err
	case <-c.gone:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Attach joins the container's live streams. Of a container that does not run
// it joins the next run, and misses nothing of it: `run` attaches first and
// starts then.
func (n *Node) Attach(ctx context.Context, ref string, stdin io.Reader, stdout, stderr io.Writer) error {
	c, err := n.find(ref)
	if err != nil {
		return err
	}
	c.mu.Lock()
	live, began := c.rec.State.Live(), c.began
	c.mu.Unlock()
	if live {
		return n.cfg.Runtime.Attach(ctx, c.runtimeID(), stdin, stdout, stderr)
	}
	select {
	case <-began:
	case <-c.gone:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-n.ctx.Done():
		return errors.New("the daemon is stopping")
	}
	err = n.cfg.Runtime.AttachFromStart(ctx, c.runtimeID(), stdin, stdout, stderr)
	if cerrdefs.IsNotFound(err) { // the start failed, and whoever started it was told why
		return nil
	}
	return err
}

// Resize sets the size of the container's terminal, in characters.
func (n *Node) Resize(ctx context.Context, ref string, width, height uint16) error {
	c, err := n.live(ref)
	if err != nil {
		return err
	}
	return n.cfg.Runtime.Resize(ctx, c.runtimeID(), width, height)
}
