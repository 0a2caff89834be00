// SPDX-License-Identifier: BSD-2-Clause

package executor

import (
	"context"
	"fmt"
)

// update changes a container's record and saves it. The record in memory is
// changed even where saving fails: what runs is the truth, the file its copy.
func (n *Node) update(c *Container, change func(*Record)) error {
	c.change(change)
	return n.save(c)
}

// note changes a container's record and has it written in the background. A
// disk may stand still for as long as it likes: nothing that takes a container
// out of traffic waits for it. A daemon that comes before it is written goes by
// the record before.
func (n *Node) note(c *Container, change func(*Record)) {
	c.change(change)
	n.saveSoon(c)
}

// advance moves a container's state, which must be a step of its life, and
// saves the record.
func (n *Node) advance(c *Container, to State, change func(*Record)) error {
	if err := c.step(to, change); err != nil {
		return err
	}
	return n.save(c)
}

// save writes the record as it is now: of two saves at a time the later one
// never leaves the earlier state behind.
func (n *Node) save(c *Container) error {
	defer c.lockFiles()()
	if c.erased {
		return nil
	}
	return n.cfg.write(n.dir, c.record())
}

// saveSoon has the record written as it is when its turn comes.
func (n *Node) saveSoon(c *Container) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unsaved = true
	if c.written != nil {
		return // who writes looks again
	}
	c.written = make(chan struct{})
	n.wg.Go(func() {
		for c.takeUnsaved() {
			if err := n.save(c); err != nil {
				n.logger(c.record()).Warn("record of the container not written; a daemon started anew goes by the one before", "err", err)
			}
		}
	})
}

// awaitSaved waits until what was noted is written, or could not be. ended tells
// that the run has ended meanwhile.
func (n *Node) awaitSaved(ctx context.Context, c *Container, done <-chan struct{}) (ended bool, err error) {
	c.mu.Lock()
	written := c.written
	c.mu.Unlock()
	if written == nil {
		return false, nil
	}
	if !wait(ctx, written, recordBound) && ctx.Err() == nil {
		n.logger(c.record()).Warn("the stop signal waits for the disk, which stands still: a daemon started anew has to know of the stop")
	}
	select {
	case <-written:
		return false, nil
	case <-done:
		return true, nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// lockFiles makes its caller the one who writes the container's files, until it
// calls unlock.
func (c *Container) lockFiles() (unlock func()) {
	c.saving <- struct{}{}
	return func() { <-c.saving }
}

// change changes the record, and tells of it.
func (c *Container) change(change func(*Record)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(&c.rec)
	c.tell()
}

// step moves the record's state, and tells of it.
func (c *Container) step(to State, change func(*Record)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	state, err := c.rec.State.Advance(to)
	if err != nil {
		return fmt.Errorf("container %s: %w", short(c.id), err)
	}
	c.rec.State = state
	if change != nil {
		change(&c.rec)
	}
	c.tell()
	return nil
}

// takeUnsaved tells whether there is a change to write; where there is none,
// its caller writes no more.
func (c *Container) takeUnsaved() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	unsaved := c.unsaved
	if c.unsaved = false; !unsaved {
		close(c.written)
		c.written = nil
	}
	return unsaved
}
