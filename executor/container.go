// SPDX-License-Identifier: BSD-2-Clause

package executor

import (
	"context"
	"slices"
	"sync"
	"syscall"

	"satld/healthcheck"
)

// Container is one container of this node. Its lock guards the record and is
// never held across a call that can wait; op serialises start and removal.
type Container struct {
	id string
	op chan struct{} // holds one token while a start or a removal is under way

	saving chan struct{} // holds one token while somebody writes the container's files
	erased bool          // they are gone for good; saving guards it

	mu     sync.Mutex
	rec    Record
	pid    int
	proved chan struct{} // closed when the task has proved itself: the STARTING to RUNNING gate
	began  chan struct{} // closed when the next run begins or fails to; renewed when it is over
	done   chan struct{} // closed when no process of this run is left
	gone   chan struct{} // closed when the container is removed

	signalled syscall.Signal // the last stop signal of this run
	removing  bool           // a removal that failed is being retried
	asking    bool           // the leader is being asked whether it may be replaced
	changed   chan struct{}  // closed and renewed at each change of the record
	unsaved   bool           // the record has changed since its writing in the background began
	written   chan struct{}  // closed when that is done; nil while nothing is written so

	showing   sync.Mutex         // one change of what traffic knows at a time
	supersede context.CancelFunc // ends the wait of the change before
	shown     exposure           // what traffic knows of this run

	pending  []healthcheck.Transition // the changes of verdict not yet acted on
	verdicts chan struct{}            // nudges the supervisor to look at them
	health   *healthcheck.Health      // as it was when the probing of this run ended; nil until then
}

func newContainer(rec Record) *Container {
	c := &Container{
		id: rec.ID, rec: rec,
		op:       make(chan struct{}, 1),
		saving:   make(chan struct{}, 1),
		began:    make(chan struct{}),
		gone:     make(chan struct{}),
		verdicts: make(chan struct{}, 1),
		changed:  make(chan struct{}),
	}
	c.newRun()
	return c
}

// newRun resets what belongs to one run of the main process.
func (c *Container) newRun() {
	c.proved, c.done = make(chan struct{}), make(chan struct{})
	c.pending, c.health = nil, nil
	c.signalled, c.shown, c.asking = 0, unknown, false
}

// awaitRun makes the channel that the next run's beginning closes. The caller
// holds the lock.
func (c *Container) awaitRun() {
	select {
	case <-c.began:
		c.began = make(chan struct{})
	default:
	}
}

// acquire takes the container's operation slot.
func (c *Container) acquire(ctx context.Context) error {
	select {
	case c.op <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *Container) release() { <-c.op }

// record returns a copy of the record as it is now.
func (c *Container) record() Record {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rec
}

// runtimeID names the container's present or last run for the runtime.
func (c *Container) runtimeID() string { return c.record().runtimeID() }

// run returns the channels of the current run.
func (c *Container) run() (proved, done chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.proved, c.done
}

// news returns the record as it is now, and a channel that its next change closes.
func (c *Container) news() (Record, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rec, c.changed
}

// tell wakes those who wait for a change of the record; the caller holds the lock.
func (c *Container) tell() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// takeVerdicts returns the changes of verdict that were not acted on yet, in
// order.
func (c *Container) takeVerdicts() []healthcheck.Transition {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := c.pending
	c.pending = nil
	return all
}

// putVerdict is the monitor's callback: it never blocks.
func (c *Container) putVerdict(t healthcheck.Transition) {
	c.mu.Lock()
	c.pending = append(c.pending, t)
	c.mu.Unlock()
	select {
	case c.verdicts <- struct{}{}:
	default:
	}
}

// closeOnce closes a channel that may be closed already; the caller holds the
// lock that guards it.
func closeOnce(ch chan struct{}) {
	select {
	case <-ch:
	default:
		close(ch)
	}
}

// aliases are the other names the API finds a task's container by.
func (r Record) aliases() []string {
	if r.TaskID == "" {
		return nil
	}
	return slices.DeleteFunc([]string{r.slotName()}, func(s string) bool { return s == r.Name })
}
