// SPDX-License-Identifier: BSD-2-Clause

package executor

import (
	"context"
	"errors"
	"fmt"

	cerrdefs "github.com/containerd/errdefs"

	"satld/jail"
)

// adoptAll reads the records of an earlier daemon and takes each over.
func (n *Node) adoptAll(ctx context.Context) error {
	records, strays, damaged, err := loadRecords(n.dir)
	if err != nil {
		return err
	}
	if damaged != nil {
		n.log.Error("damaged records of containers: these are removed, and tasks replaced", "err", damaged)
	}
	keep := make(map[string]bool, len(records))
	for _, r := range records {
		keep[r.ID] = true
		n.containers[r.ID] = newContainer(r)
	}
	for _, id := range strays {
		if err := n.purge(ctx, id); err != nil {
			n.log.Warn("a container that was never recorded could not be removed yet", "container", short(id), "err", err)
		}
	}
	known, err := n.cfg.Runtime.List(ctx)
	if err != nil {
		return err
	}
	for _, id := range known {
		if !keep[id] {
			if err := n.purge(ctx, id); err != nil {
				n.log.Warn("a stray container could not be removed yet", "container", short(id), "err", err)
			}
		}
	}
	if err := errors.Join(n.cfg.Networks.Sweep(ctx, keep), n.cfg.Images.Sweep(ctx, keep)); err != nil {
		n.log.Warn("sweep of strays failed", "err", err)
	}
	for _, c := range n.all() {
		if err := n.adopt(ctx, c); err != nil {
			return fmt.Errorf("container %s: %w", short(c.id), err)
		}
	}
	return nil
}

// adopt resumes one container where its record and the runtime say it is.
func (n *Node) adopt(ctx context.Context, c *Container) error {
	rec := c.record()
	switch rec.State {
	case Removing, Dead:
		n.wg.Go(func() { n.finishRemoval(c) })
		return nil
	case Created:
		// It was made and never run, or the daemon ended between the
		// runtime's start and the record: the runtime knows.
		pid, running, err := n.running(ctx, c.id)
		if err != nil {
			return err
		}
		if !running {
			// Its start may have been cut short at any step.
			n.wg.Go(func() { n.takeDown(c) })
			return nil
		}
		started, err := n.cfg.Runtime.Start(ctx, c.id) // tells when it was started
		if err != nil {
			return err
		}
		return n.started(ctx, c, pid, started, true)
	case Exited:
		closeOnce(c.done)
		n.wg.Go(func() { n.takeDown(c) }) // it may not have been finished
		return nil
	}
	pid, running, err := n.running(ctx, c.id)
	if err != nil {
		return err
	}
	log := n.logger(rec)
	if !running {
		log.Info("container ended while no daemon ran")
		n.wg.Go(func() { n.supervise(c) })
		return nil
	}
	log.Info("container taken over", "pid", pid, "serving", rec.serving(), "proved", rec.Proved)
	return n.started(ctx, c, pid, rec.Started, true)
}

// running asks the runtime; a container that it never heard of does not run.
func (n *Node) running(ctx context.Context, id string) (pid int, running bool, err error) {
	pid, running, err = n.cfg.Runtime.Running(ctx, id)
	if cerrdefs.IsNotFound(err) {
		return 0, false, nil
	}
	return pid, running, err
}

// purge removes whatever there is of a container that has no record.
func (n *Node) purge(ctx context.Context, id string) error {
	return errors.Join(
		n.cfg.Runtime.Delete(ctx, id),
		n.cfg.Networks.Detach(ctx, id),
		n.cfg.Images.Release(ctx, id),
		n.cfg.Runtime.Forget(ctx, id),
		removeDir(n.dir, id),
	)
}

// lost is the exit of a container whose end nobody saw.
var lost = jail.Exit{Code: -1}
