// SPDX-License-Identifier: BSD-2-Clause

package executor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	dockerevents "github.com/docker/docker/api/types/events"
)

// takeDown takes away what is left of one run of a container: its processes,
// interfaces and mounts, and the container itself if it is to go with its
// end. It is retried until it succeeds, and stands back where the container
// was started again.
func (n *Node) takeDown(c *Container, id string) {
	log := n.logger(c.record())
	if n.cfg.JailFirst {
		// The next run has another jail and other interfaces: no start waits
		// for these to vanish.
		n.endJail(log, id)
	}
	n.retry(log, "take down", func(ctx context.Context) error {
		return n.ifStopped(ctx, c, id, func() error {
			if err := n.dismantle(ctx, id); err != nil {
				return err
			}
			return n.cfg.Images.Unmount(ctx, c.id)
		})
	})
	rec := c.record()
	if rec.State == Exited && rec.runtimeID() == id && (rec.Discarded || rec.HostConfig != nil && rec.HostConfig.AutoRemove) {
		if err := n.remove(n.ctx, c); err != nil {
			log.Warn("automatic removal failed; it is retried", "err", err)
		}
	}
}

// endJail takes a jail away, however long it takes to die, and then its
// interfaces: the inner end of a pair is the host's again when the jail is
// gone, and not before.
func (n *Node) endJail(log *slog.Logger, id string) {
	n.retry(log, "removal of the jail", func(ctx context.Context) error { return n.cfg.Runtime.Delete(ctx, id) })
	n.awaitVanished(log, id)
	n.retry(log, "removal of the jail's interfaces", func(ctx context.Context) error { return n.cfg.Networks.Detach(ctx, id) })
}

// ifStopped does something to a container whose last run is the one named
// and is over, while nobody can start it.
func (n *Node) ifStopped(ctx context.Context, c *Container, id string, do func() error) error {
	if err := c.acquire(ctx); err != nil {
		return err
	}
	defer c.release()
	if rec := c.record(); rec.State != Exited && rec.State != Created || rec.runtimeID() != id {
		return nil
	}
	return do()
}

// dismantle undoes what a run has besides its root: processes, then
// interfaces. None of its interfaces is touched while a process or the jail
// may use it (cases/jail.md, jail-2).
func (n *Node) dismantle(ctx context.Context, id string) error {
	if err := n.cfg.Runtime.Delete(ctx, id); err != nil {
		return err
	}
	return n.cfg.Networks.Detach(ctx, id)
}

// dropRun takes away an earlier run of a container that has a newer one.
func (n *Node) dropRun(c *Container, id string) {
	log := n.logger(c.record())
	n.endJail(log, id)
	n.retry(log, "removal of an earlier run's output", func(ctx context.Context) error { return n.cfg.Runtime.Forget(ctx, id) })
}

// lingering is a runtime whose containers stay in the kernel for a while
// after their last process, and hold their roots: dying jails.
type lingering interface {
	// Lingers tells whether there still is a jail of that name, dying or not.
	Lingers(ctx context.Context, id string) (bool, error)
}

func (n *Node) lingers(ctx context.Context, id string) (bool, error) {
	rt, ok := n.cfg.Runtime.(lingering)
	if !ok {
		return false, nil
	}
	return rt.Lingers(ctx, id)
}

// A jail dies for twice net.inet.tcp.msl, 60 s by default, while a connection
// of it is open; on some kernels one stays for good (cases/jail.md, jail-1).
const (
	vanishPollFirst = 250 * time.Millisecond
	vanishPollMost  = 5 * time.Second
	vanishWarnAfter = 2 * time.Minute
)

// awaitVanished returns when no jail of that name is left, or the daemon ends.
func (n *Node) awaitVanished(log *slog.Logger, id string) {
	begun, warned := time.Now(), false
	for poll := vanishPollFirst; ; poll = min(2*poll, vanishPollMost) {
		var left bool
		err := n.bounded(killBound, func(ctx context.Context) (err error) {
			left, err = n.lingers(ctx, id)
			return err
		})
		switch {
		case err != nil:
			log.Warn("cannot tell whether the jail is gone; going on", "err", err)
			return
		case !left:
			return
		case !warned && time.Since(begun) >= vanishWarnAfter:
			warned = true
			log.Warn("the jail is still dying; its root is removed when it is gone", "jail", id, "since", begun)
		}
		if !n.sleep(poll) {
			return
		}
	}
}

// discard stops and removes the container of a task that is no longer this
// node's. What is cut short the next daemon goes on with.
func (n *Node) discard(c *Container) error {
	err := n.halt(n.ctx, c, false)
	if err == nil {
		err = n.remove(n.ctx, c)
	}
	if err == nil || cerrdefs.IsNotFound(err) {
		return nil
	}
	return err
}

// finishDiscard goes on with what an earlier daemon began.
func (n *Node) finishDiscard(c *Container) {
	if err := n.discard(c); err != nil && n.ctx.Err() == nil {
		n.logger(c.record()).Error("container of a task that is gone could not be removed", "err", err)
	}
}

// remove deletes an ended container and all that is left of it. What only a
// dying jail holds follows in the background.
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
	if left, err := n.lastRunLingers(ctx, rec.runtimeID()); err != nil {
		return n.notRemoved(c, err)
	} else if left {
		n.wg.Go(func() { n.finishPurge(c) })
	} else if err := n.erase(ctx, c, rec.runtimeID()); err != nil {
		return n.notRemoved(c, err)
	}
	n.mu.Lock()
	delete(n.containers, c.id)
	n.mu.Unlock()
	c.mu.Lock()
	closeOnce(c.gone)
	c.mu.Unlock()
	n.event(rec, dockerevents.ActionDestroy)
	for networkID := range rec.Addrs {
		if rec.TaskID == "" && n.cfg.Leader != nil {
			n.wg.Go(func() { n.giveBack(networkID, c.id) })
		}
	}
	return nil
}

// lastRunLingers ends what runs and tells whether its jail is still dying.
func (n *Node) lastRunLingers(ctx context.Context, id string) (bool, error) {
	if err := n.cfg.Runtime.Delete(ctx, id); err != nil {
		return false, err
	}
	return n.lingers(ctx, id)
}

// notRemoved records that a removal failed and has it retried.
func (n *Node) notRemoved(c *Container, cause error) error {
	err := fmt.Errorf("remove container %s: %w", c.record().Name, cause)
	if advErr := n.advance(c, Dead, func(r *Record) { r.Error = err.Error() }); advErr != nil {
		err = errors.Join(err, advErr)
	}
	c.mu.Lock()
	retried := c.removing
	c.removing = true
	c.mu.Unlock()
	if !retried {
		n.wg.Go(func() { n.finishRemoval(c) })
	}
	return err
}

// finishRemoval retries a removal that a crash or a busy mount cut short.
func (n *Node) finishRemoval(c *Container) {
	c.mu.Lock()
	c.removing = true
	c.mu.Unlock()
	n.retry(n.logger(c.record()), "removal", func(ctx context.Context) error { return n.remove(ctx, c) })
}

// finishPurge takes away what a dying jail held of a removed container. Its
// record stays until then, so that a later daemon goes on with it.
func (n *Node) finishPurge(c *Container) {
	rec := c.record()
	log := n.logger(rec)
	n.awaitVanished(log, rec.runtimeID())
	n.retry(log, "removal", func(ctx context.Context) error { return n.erase(ctx, c, rec.runtimeID()) })
}

// erase removes all there is of a container, and its record, which is not
// written any more.
func (n *Node) erase(ctx context.Context, c *Container, run string) error {
	if err := n.strip(ctx, c.id, run); err != nil {
		return err
	}
	defer c.lockFiles()()
	err := removeDir(n.dir, c.id)
	c.erased = err == nil
	return err
}

// strip removes what there is of a container besides its record: its last
// run, and its root.
func (n *Node) strip(ctx context.Context, id, run string) error {
	if err := n.dismantle(ctx, run); err != nil {
		return err
	}
	return errors.Join(n.cfg.Images.Release(ctx, id), n.cfg.Runtime.Forget(ctx, run))
}

// purge removes a container that nobody works on.
func (n *Node) purge(ctx context.Context, id, run string) error {
	if err := n.strip(ctx, id, run); err != nil {
		return err
	}
	return removeDir(n.dir, id)
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
