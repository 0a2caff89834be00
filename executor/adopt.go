// SPDX-License-Identifier: BSD-2-Clause

package executor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
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
	keep, runs := make(map[string]bool, len(records)), make(map[string]bool, len(records))
	for _, r := range records {
		keep[r.ID], runs[r.runtimeID()] = true, true
		n.containers[r.ID] = newContainer(r)
	}
	for _, id := range strays {
		n.purgeStray(ctx, id)
	}
	known, err := n.cfg.Runtime.List(ctx)
	if err != nil {
		return err
	}
	for _, id := range known {
		if !runs[id] && !slices.Contains(strays, id) {
			n.purgeStray(ctx, id)
		}
	}
	if err := errors.Join(n.cfg.Networks.Sweep(ctx, runs), n.cfg.Images.Sweep(ctx, keep)); err != nil {
		n.log.Warn("sweep of strays failed", "err", err)
	}
	for _, c := range n.all() {
		n.adopt(ctx, c)
	}
	return nil
}

// adopt resumes one container where its record and the runtime say it is. One
// of which the runtime cannot tell is ended: it costs no other.
func (n *Node) adopt(ctx context.Context, c *Container) {
	rec := c.record()
	log := n.logger(rec)
	n.resumeReport(rec)
	if earlier := rec.earlierRun(); earlier != "" {
		n.wg.Go(func() { n.dropRun(c, earlier) })
	}
	switch rec.State {
	case Removing, Dead:
		n.wg.Go(func() { n.finishRemoval(c) })
		return
	case Created:
		// It was made and never run, or the daemon ended between the
		// runtime's start and the record: the runtime knows.
		pid, running, err := n.running(ctx, rec.runtimeID())
		var at time.Time
		if running && err == nil {
			at, err = n.cfg.Runtime.Start(ctx, rec.runtimeID()) // tells when it was started
		}
		if err != nil {
			log.Error("container cannot be taken over: it is taken down, and can be started again", "err", err)
		}
		if !running || err != nil {
			n.wg.Go(func() { n.clear(c) }) // its start may have been cut short at any step
			return
		}
		n.resume(ctx, c, pid, at)
		return
	case Exited:
		closeOnce(c.done)
		n.wg.Go(func() { n.clear(c) }) // its end may not have been finished
		return
	}
	pid, running, err := n.running(ctx, rec.runtimeID())
	if err != nil {
		log.Error("container cannot be taken over: it is ended", "err", err)
		n.unseen(c, fmt.Sprintf("it could not be taken over: %v", err))
		n.wg.Go(func() { n.ended(c, rec.runtimeID(), lost) })
		return
	}
	if !running {
		log.Info("container ended while no daemon ran")
		n.wg.Go(func() { n.supervise(c, rec.runtimeID()) })
		return
	}
	log.Info("container taken over", "pid", pid, "serving", rec.serving(), "proved", rec.Proved)
	n.resume(ctx, c, pid, rec.Started)
}

// resume goes on with one that runs.
func (n *Node) resume(ctx context.Context, c *Container, pid int, at time.Time) {
	n.started(ctx, c, pid, at, true) // an adopted one is never refused
	if c.record().Discarded {
		n.wg.Go(func() { n.finishDiscard(c) })
	}
}

// clear takes down what is left of one that does not run; of a task that is
// gone, with the container.
func (n *Node) clear(c *Container) {
	if rec := c.record(); !rec.Discarded {
		n.takeDown(c, rec.runtimeID())
		return
	}
	n.finishDiscard(c)
}

// running asks the runtime; a container that it never heard of does not run.
func (n *Node) running(ctx context.Context, id string) (pid int, running bool, err error) {
	pid, running, err = n.cfg.Runtime.Running(ctx, id)
	if cerrdefs.IsNotFound(err) {
		return 0, false, nil
	}
	return pid, running, err
}

// purgeStray removes what no record names: half a container, or an earlier run
// of one. What does not go at once is a dead container, whose removal is
// retried, so that its ID is not used meanwhile.
func (n *Node) purgeStray(ctx context.Context, id string) {
	if err := n.purge(ctx, id, id); err == nil {
		return
	} else {
		n.log.Warn("a stray container could not be removed yet; it is retried", "container", short(id), "err", err)
	}
	n.containers[id] = newContainer(Record{
		ID: id, Name: short(id), Created: time.Now(), State: Dead,
		Config: &container.Config{}, HostConfig: &container.HostConfig{},
	})
}
