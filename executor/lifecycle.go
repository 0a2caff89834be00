// SPDX-License-Identifier: BSD-2-Clause

package executor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	dockerevents "github.com/docker/docker/api/types/events"

	"satld/healthcheck"
	"satld/jail"
)

// startRun brings a container up: root, network, runtime. The order matters:
// address and route stand before the first process runs. A failure undoes
// what was done, so that it can be tried again.
func (n *Node) startRun(ctx context.Context, c *Container) (err error) {
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
	case Exited:
		c.mu.Lock()
		c.newRun()
		c.rec.Proved, c.rec.Withdrawn, c.rec.Stopping, c.rec.Unhealthy, c.rec.Error = false, false, false, "", ""
		c.rec.StopSignal, c.rec.StopBy = 0, time.Time{}
		c.rec.OOMKilled = false
		rec = c.rec
		c.mu.Unlock()
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.undo(c, err))
		}
	}()
	root, err := n.cfg.Images.Mount(ctx, rec.ImageID, c.id)
	if err != nil {
		return fmt.Errorf("mount root of container %s: %w", rec.Name, err)
	}
	var netns string
	if !rec.Host {
		if netns, _, err = n.cfg.Networks.Attach(ctx, c.id, rec.NetworkIDs); err != nil {
			return fmt.Errorf("attach container %s to its networks: %w", rec.Name, err)
		}
	}
	spec, err := n.runtimeSpec(rec, root, netns)
	if err != nil {
		return err
	}
	pid, err := n.cfg.Runtime.Create(ctx, spec)
	if err != nil {
		return err
	}
	started, err := n.cfg.Runtime.Start(ctx, c.id)
	if err != nil {
		return err
	}
	return n.started(ctx, c, pid, started, false)
}

// undo takes back a start that failed.
func (n *Node) undo(c *Container, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(n.ctx), killBound)
	defer cancel()
	c.mu.Lock()
	closeOnce(c.began) // those who wait to attach learn that there is nothing
	c.awaitRun()
	c.mu.Unlock()
	return errors.Join(
		n.dismantle(ctx, c),
		n.update(c, func(r *Record) { r.Error, r.ExitCode = cause.Error(), startExitCode(cause) }),
	)
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
		r.Finished, r.ExitCode = time.Time{}, 0
		if !probed {
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
	if err := n.advance(c, to, step); err != nil {
		if !adopted {
			// What cannot be recorded is not left running.
			c.mu.Lock()
			c.pid, c.rec.State = 0, before
			c.mu.Unlock()
			return err
		}
		// What runs is the truth; the record is saved again at the next change.
		n.logger(c.record()).Error("record of a container taken over not saved", "err", err)
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
	putCtx, cancel := context.WithTimeout(ctx, withdrawBound)
	if adopted {
		cancel()
	}
	err := n.cfg.Traffic.Put(putCtx, n.member(rec))
	cancel()
	if err != nil && !adopted {
		n.logger(rec).Warn("traffic change not confirmed yet; it is retried", "err", err)
	}
	if probed && rec.Unhealthy == "" && !rec.Stopping {
		n.cfg.Prober.Watch(healthcheck.Watch{
			ID: c.id, TaskID: rec.TaskID, Started: rec.Started, Adopted: adopted, Settings: settings,
			Probe:   healthcheck.NewExecProbe(n.cfg.Runtime, c.id, settings.Argv),
			Changed: c.putVerdict,
		})
		if rec.State == Paused {
			n.cfg.Prober.Pause(c.id)
		}
	}
	n.wg.Go(func() { n.supervise(c) })
	if rec.Unhealthy != "" || rec.Stopping {
		n.logger(rec).Info("going on with a stop that an earlier daemon began")
		n.wg.Go(func() { n.finishStop(c) })
	}
	return nil
}

// finishStop does what an unhealthy verdict demands, or goes on with any stop
// where an earlier daemon ended: with what is left of the grace.
func (n *Node) finishStop(c *Container) {
	rec := c.record()
	grace, signal := rec.grace(), rec.stopSignal()
	if !rec.StopBy.IsZero() {
		grace = max(0, time.Until(rec.StopBy))
	}
	if rec.StopSignal != 0 {
		signal = syscall.Signal(rec.StopSignal)
	}
	if err := n.stopRun(n.ctx, c, grace, signal); err != nil && n.ctx.Err() == nil {
		n.logger(rec).Error("container could not be stopped", "err", err)
	}
}

// supervise watches one run of a container until no process of it is left.
func (n *Node) supervise(c *Container) {
	type ended struct {
		exit jail.Exit
		err  error
	}
	end := make(chan ended, 1)
	go func() {
		exit, err := n.cfg.Runtime.Wait(n.ctx, c.id)
		end <- ended{exit, err}
	}()
	for {
		select {
		case <-c.verdicts:
			if t := c.takeVerdict(); t != nil {
				n.onVerdict(c, *t)
			}
		case e := <-end:
			if n.ctx.Err() != nil {
				return
			}
			if e.err != nil {
				n.logger(c.record()).Error("exit status lost", "err", e.err)
				e.exit = lost
			}
			n.ended(c, e.exit)
			return
		case <-n.ctx.Done():
			<-end
			return
		}
	}
}

// ended takes a container down after its main process ended. The task is
// reported ended as soon as no process of it is left, never when its root or
// interfaces are gone (facts/freebsd.md, "A dying jail").
func (n *Node) ended(c *Container, exit jail.Exit) {
	if exit.At.IsZero() {
		exit.At = time.Now()
	}
	ctx := context.WithoutCancel(n.ctx)
	rec := c.record()
	log := n.logger(rec)
	n.unwatch(c)
	if err := n.cfg.Traffic.Remove(ctx, c.id); err != nil {
		log.Warn("traffic change not confirmed yet; it is retried", "err", err)
	}
	err := n.bounded(killBound, func(ctx context.Context) error { return n.cfg.Runtime.Delete(ctx, c.id) })
	if err != nil {
		log.Warn("processes may be left; taking them down is retried", "err", err)
	}
	err = n.advance(c, Exited, func(r *Record) {
		r.Finished, r.ExitCode, r.OOMKilled = exit.At, exit.Code, exit.OOMKilled
	})
	if err != nil {
		log.Error("record of an ended container not saved", "err", err)
	}
	c.mu.Lock()
	c.pid = 0
	c.mu.Unlock()
	if exit.OOMKilled {
		n.event(rec, dockerevents.ActionOOM)
	}
	// Now, so that whoever inspects it on this event sees it ended, and before
	// the stop that waits for it is told of.
	n.event(rec, dockerevents.ActionDie, "exitCode", fmt.Sprint(exit.Code))
	c.mu.Lock()
	closeOnce(c.done)
	c.awaitRun()
	c.mu.Unlock()
	log.Info("container ended", "exit_code", exit.Code, "oom_killed", exit.OOMKilled)

	n.takeDown(c)
}

// takeDown takes away what is left of a container that does not run: its
// processes, interfaces and mounts, and the container itself if it is to go
// with its end. It is retried until it succeeds, and stands back when the
// container is started again.
func (n *Node) takeDown(c *Container) {
	rec := c.record()
	log := n.logger(rec)
	n.retry(log, "take down", func(ctx context.Context) error {
		if err := c.acquire(ctx); err != nil {
			return err
		}
		defer c.release()
		if s := c.record().State; s != Exited && s != Created {
			return nil
		}
		return n.dismantle(ctx, c)
	})
	if c.record().State == Exited && rec.HostConfig != nil && rec.HostConfig.AutoRemove {
		if err := n.remove(n.ctx, c); err != nil {
			log.Warn("automatic removal failed", "err", err)
		}
	}
}

// dismantle undoes what startRun makes: processes, interfaces, the mounted
// root. What the container wrote stays, so that it can be started again.
func (n *Node) dismantle(ctx context.Context, c *Container) error {
	return errors.Join(
		n.cfg.Runtime.Delete(ctx, c.id),
		n.cfg.Networks.Detach(ctx, c.id),
		n.cfg.Images.Unmount(ctx, c.id),
	)
}

// stopRun ends a container: out of traffic, signal, grace, SIGKILL. It
// returns when no process is left. It may be called again at any time.
func (n *Node) stopRun(ctx context.Context, c *Container, grace time.Duration, signal syscall.Signal) error {
	rec := c.record()
	if !rec.State.Live() {
		return nil
	}
	_, done := c.run()
	log := n.logger(rec)
	if err := n.update(c, func(r *Record) {
		r.Stopping, r.Withdrawn = true, true
		r.StopSignal, r.StopBy = int(signal), time.Now().Add(grace)
	}); err != nil {
		log.Warn("stop not recorded", "err", err)
	}
	n.withdraw(ctx, c)
	n.unwatch(c)
	if err := n.cfg.Runtime.Kill(ctx, c.id, int(signal)); err != nil {
		log.Warn("stop signal not delivered", "signal", signal.String(), "err", err)
	}
	if rec.State == Paused {
		// A frozen process cannot act on its signal.
		if err := n.cfg.Runtime.Resume(ctx, c.id); err != nil {
			log.Warn("paused container not resumed for its stop", "err", err)
		}
	}
	n.event(rec, dockerevents.ActionKill, "signal", fmt.Sprint(int(signal)))
	if !wait(ctx, done, grace) {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		log.Info("stop signal had no effect in time; killing", "grace", grace.String())
		if err := n.kill(ctx, c, done); err != nil {
			return err
		}
	}
	n.event(rec, dockerevents.ActionStop)
	return nil
}

// kill sends SIGKILL until the container has ended, for at most killBound.
func (n *Node) kill(ctx context.Context, c *Container, done <-chan struct{}) error {
	deadline := time.Now().Add(killBound)
	for {
		err := n.cfg.Runtime.Kill(ctx, c.id, int(syscall.SIGKILL))
		if wait(ctx, done, time.Second) {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if time.Now().After(deadline) {
			return errors.Join(fmt.Errorf("container %s did not end within %s of SIGKILL", short(c.id), killBound), err)
		}
	}
}

// withdraw takes a container out of pools and names and waits for it within bounds.
func (n *Node) withdraw(ctx context.Context, c *Container) {
	begun := time.Now()
	err := n.boundedCtx(ctx, withdrawBound, func(ctx context.Context) error { return n.cfg.Traffic.Withdraw(ctx, c.id) })
	log := n.logger(c.record())
	if err != nil {
		log.Warn("withdrawal not confirmed; it is retried", "after", time.Since(begun).String(), "err", err)
		return
	}
	log.Debug("withdrawn from traffic", "took", time.Since(begun).String())
}

// remove deletes an ended container and all that is left of it.
func (n *Node) remove(ctx context.Context, c *Container) error {
	if err := c.acquire(ctx); err != nil {
		return err
	}
	defer c.release()
	if _, ok := n.byID(c.id); !ok {
		return nil
	}
	if err := n.advance(c, Removing, nil); err != nil {
		return conflict("%v", err)
	}
	rec := c.record()
	if err := n.purge(ctx, c.id); err != nil {
		err = fmt.Errorf("remove container %s: %w", rec.Name, err)
		if advErr := n.advance(c, Dead, func(r *Record) { r.Error = err.Error() }); advErr != nil {
			err = errors.Join(err, advErr)
		}
		return err
	}
	n.mu.Lock()
	delete(n.containers, c.id)
	n.mu.Unlock()
	c.mu.Lock()
	closeOnce(c.gone)
	c.mu.Unlock()
	n.event(rec, dockerevents.ActionDestroy)
	return nil
}

// finishRemoval retries a removal that a crash or a busy mount cut short.
func (n *Node) finishRemoval(c *Container) {
	n.retry(n.logger(c.record()), "removal", func(ctx context.Context) error { return n.remove(ctx, c) })
}

// retry runs f until it succeeds or the daemon stops, ever less often up to
// once in 30 s.
func (n *Node) retry(log interface{ Warn(string, ...any) }, what string, f func(ctx context.Context) error) {
	for delay := 100 * time.Millisecond; ; delay = min(2*delay, 30*time.Second) {
		err := n.bounded(2*killBound, f)
		if err == nil {
			return
		}
		log.Warn(what+" failed; retrying", "in", delay.String(), "err", err)
		select {
		case <-time.After(delay):
		case <-n.ctx.Done():
			return
		}
	}
}

// bounded runs f with a time limit and without regard to the daemon's end: a
// step that was begun is finished.
func (n *Node) bounded(limit time.Duration, f func(ctx context.Context) error) error {
	return n.boundedCtx(context.WithoutCancel(n.ctx), limit, f)
}

func (n *Node) boundedCtx(ctx context.Context, limit time.Duration, f func(ctx context.Context) error) error {
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

// removeDir deletes what is left of a container's directory. By now it holds
// files only: mounts were taken down before.
func removeDir(dir, id string) error {
	entries, err := os.ReadDir(filepath.Join(dir, id))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries { // not RemoveAll: what lies deeper is somebody else's to remove
		err = errors.Join(err, os.Remove(filepath.Join(dir, id, e.Name())))
	}
	return errors.Join(err, os.Remove(filepath.Join(dir, id)))
}
