// SPDX-License-Identifier: BSD-2-Clause

package executor

import (
	"context"
	"errors"
	"fmt"
	"time"

	dockerevents "github.com/docker/docker/api/types/events"

	"satld/jail"
)

// startRun brings a container up: root, network, runtime. The order matters:
// address and route stand before the first process runs. A failure undoes
// what was done, so that it can be tried again. files are a task's secrets and
// configs: they go to the runtime and into no record.
func (n *Node) startRun(ctx context.Context, c *Container, files []jail.File) (err error) {
	if err := c.acquire(ctx); err != nil {
		return err
	}
	defer c.release()
	rec := c.record()
	switch rec.State {
	case Running:
		return nil
	case Paused:
		return conflict("cannot start a paused container, try unpause instead")
	case Removing, Dead:
		return conflict("container %s is being removed", short(c.id))
	}
	begun := false // there is something to undo
	defer func() {
		if err != nil && begun {
			err = errors.Join(err, n.undo(c, err))
		}
	}()
	for try := 1; ; try++ {
		if _, err = n.nextRun(c); err != nil {
			return err
		}
		begun = true
		if err = n.bringUp(ctx, c, files); !errors.Is(err, jail.ErrUnmade) || try == startTries {
			return err
		}
		n.logger(rec).Warn("the container was not made and is made again", "err", err)
		again := n.bounded(killBound, func(ctx context.Context) error { return n.dismantle(ctx, c.runtimeID()) })
		if again != nil {
			return errors.Join(err, again)
		}
	}
}

// startTries is how often a start is tried whose container could not be made
// for no fault of its own (jail.ErrUnmade).
const startTries = 3

// bringUp does what startRun says, once.
func (n *Node) bringUp(ctx context.Context, c *Container, files []jail.File) error {
	rec := c.record()
	root, err := n.cfg.Images.Mount(ctx, rec.ImageID, c.id)
	if err != nil {
		return fmt.Errorf("mount root of container %s: %w", rec.Name, err)
	}
	c.mu.Lock()
	c.rec.Root = root
	c.mu.Unlock()
	if rec, err = n.attachRun(ctx, c); err != nil {
		return err
	}
	pid, err := n.create(ctx, rec, root, files)
	if err != nil {
		return err
	}
	started, err := n.cfg.Runtime.Start(ctx, rec.runtimeID())
	if err != nil {
		return err
	}
	return n.started(ctx, c, pid, started, false)
}

// nextRun resets what belongs to one run and gives the run its name.
func (n *Node) nextRun(c *Container) (Record, error) {
	c.mu.Lock()
	before := c.rec.runtimeID()
	if c.rec.State == Exited {
		c.newRun()
		c.rec.endRun()
	}
	if n.cfg.JailFirst {
		c.rec.Run++
	}
	rec := c.rec
	c.mu.Unlock()
	if !n.cfg.JailFirst {
		return rec, nil
	}
	// Before the jail is made: a crash must not lead to its name again.
	if err := n.save(c); err != nil {
		return rec, err
	}
	if before != rec.runtimeID() {
		n.wg.Go(func() { n.dropRun(c, before) })
	}
	return rec, nil
}

// create makes the container and its place in the networks. Linux joins a
// namespace that was made before; a jail has its own, so it is made first,
// its first process waiting, and then given its interfaces
// (facts/freebsd.md, "VNET plumbing").
func (n *Node) create(ctx context.Context, rec Record, root string, files []jail.File) (pid int, err error) {
	id, netns := rec.runtimeID(), ""
	switch {
	case rec.Host:
	case n.cfg.JailFirst:
		// What the container is told of its network is written before.
		if _, err := n.cfg.Networks.Lease(ctx, id, rec.places()); err != nil {
			return 0, fmt.Errorf("addresses of container %s: %w", rec.Name, err)
		}
	default:
		if netns, _, err = n.cfg.Networks.Attach(ctx, id, rec.places()); err != nil {
			return 0, fmt.Errorf("attach container %s to its networks: %w", rec.Name, err)
		}
	}
	spec, err := n.runtimeSpec(rec, root, netns)
	if err != nil {
		return 0, err
	}
	spec.Files = files
	if pid, err = n.cfg.Runtime.Create(ctx, spec); err != nil {
		return 0, err
	}
	if n.cfg.JailFirst && !rec.Host {
		if _, _, err := n.cfg.Networks.Attach(ctx, id, rec.places()); err != nil {
			return 0, fmt.Errorf("attach jail of container %s to its networks: %w", rec.Name, err)
		}
	}
	return pid, nil
}

// undo takes back a start that failed; what cannot be taken back at once is
// in the background.
func (n *Node) undo(c *Container, cause error) error {
	c.mu.Lock()
	closeOnce(c.began) // those who wait to attach learn that there is nothing
	c.awaitRun()
	id := c.rec.runtimeID()
	c.mu.Unlock()
	err := n.update(c, func(r *Record) { r.Error, r.ExitCode = cause.Error(), startExitCode(cause) })
	downErr := n.bounded(killBound, func(ctx context.Context) error {
		return errors.Join(n.dismantle(ctx, id), n.cfg.Images.Unmount(ctx, c.id))
	})
	if downErr != nil {
		n.logger(c.record()).Warn("a start that failed is not taken back yet; it is retried", "err", downErr)
		n.wg.Go(func() { n.takeDown(c, id) })
	}
	return err
}

// startExitCode is what a container that could not be started is said to have
// exited with: Docker's 126 and 127 where the command is at fault, else 128.
func startExitCode(err error) int {
	if failed := new(jail.StartError); errors.As(err, &failed) {
		return failed.ExitCode
	}
	return 128
}

// started records that the main process runs and begins to watch it: its
// probe, its traffic, its end. An adopted container was started earlier.
func (n *Node) started(ctx context.Context, c *Container, pid int, at time.Time, adopted bool) error {
	settings, probed := c.record().settings()
	step := func(r *Record) {
		if !adopted || r.Started.IsZero() {
			r.Started = at
		}
		if !adopted {
			r.Boot = n.cfg.Boot
		}
		r.Finished, r.ExitCode = time.Time{}, 0
		if !probed || !settings.GatesRunning() {
			r.Proved = true
		}
	}
	to := Running
	if c.record().State == Paused {
		to = Paused
	}
	c.mu.Lock()
	before := c.rec.State
	c.pid = pid // before the state: what is shown to run has a process
	c.mu.Unlock()
	err := c.step(to, step)
	switch {
	case err == nil && adopted:
		n.saveSoon(c) // what runs is the truth
	case err == nil:
		err = n.save(c)
	}
	if err != nil && !adopted {
		// What cannot be recorded is not left running.
		c.mu.Lock()
		c.pid, c.rec.State = 0, before
		c.mu.Unlock()
		return err
	}
	if err != nil {
		n.logger(c.record()).Error("container taken over in a state that it cannot be in", "err", err)
	}
	c.mu.Lock()
	closeOnce(c.began)
	if c.rec.Proved {
		closeOnce(c.proved)
	}
	rec := c.rec
	c.mu.Unlock()
	if !adopted {
		n.logger(rec).Info("container started", "pid", pid)
		n.event(rec, dockerevents.ActionStart)
	}
	// In the pools and names before anybody is told that it runs; a starting
	// task is put too, so that it can resolve itself and others. An adopted
	// one does not wait for the packet filter: it holds the rules still.
	putCtx, cancel := context.WithCancel(ctx)
	if adopted {
		cancel()
	}
	n.expose(putCtx, c)
	cancel()
	waits := rec.Unhealthy != "" && !rec.Stopping && n.waitsForTurn(rec)
	stops := rec.Stopping || rec.Unhealthy != "" && !waits
	if probed && !stops {
		n.watch(c, settings, pid, adopted)
		if rec.State == Paused {
			n.cfg.Prober.Pause(c.id)
		}
	}
	n.wg.Go(func() { n.supervise(c, rec.runtimeID()) })
	switch {
	case stops:
		n.logger(rec).Info("going on with a stop that an earlier daemon began")
		n.wg.Go(func() { n.finishStop(c) })
	case waits:
		n.logger(rec).Info("the task goes on waiting for its turn to be replaced", "reason", rec.Unhealthy)
		n.askForTurn(c)
	}
	return nil
}
