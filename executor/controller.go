// SPDX-License-Identifier: BSD-2-Clause

package executor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"

	dockerevents "github.com/docker/docker/api/types/events"
	"github.com/moby/swarmkit/v2/agent/exec"
	"github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/template"

	"satld/network"
)

// controller is SwarmKit's handle on one task of this node. It holds no state
// of its own: every call looks at the container as it is, so that a call
// repeated by a new daemon goes on where the last one stopped.
type controller struct {
	node *Node
	task *api.Task
	id   string

	stopped atomic.Bool // Shutdown was called: how it ends is Shutdown's to say

	mu   sync.Mutex
	told string // what was last reported of the RUNNING task (see withdrawnText)
}

// Controller makes the handle for a task. It implements exec.Executor.
func (n *Node) Controller(t *api.Task) (exec.Controller, error) {
	if t.Spec.GetContainer() == nil {
		return nil, exec.ErrRuntimeUnsupported
	}
	c := &controller{node: n, task: t, id: taskContainerID(t.ID)}
	if t.Status.State == api.TaskStateRunning {
		c.told = t.Status.Err
	}
	if ctr, ok := n.byID(c.id); ok && n.heed(ctr, t) {
		n.wg.Go(func() { n.expose(n.ctx, ctr) })
	}
	return c, nil
}

func (c *controller) log() *slog.Logger { return c.node.log.With("task_id", c.task.ID) }

// Update takes note of changes of a running task. Its spec does not change, a
// new one makes a new task; what its service says beside it may, and what the
// operator says of it.
func (c *controller) Update(ctx context.Context, t *api.Task) error {
	if ctr, ok := c.node.byID(c.id); ok && c.node.heed(ctr, t) {
		c.node.expose(ctx, ctr)
	}
	return nil
}

// Prepare makes the container: its image is here and its networks exist.
func (c *controller) Prepare(ctx context.Context) error {
	err := c.prepare(ctx)
	if err != nil && err != exec.ErrTaskPrepared && ctx.Err() == nil {
		c.log().Warn("task cannot be prepared", "err", err)
	}
	return err
}

func (c *controller) prepare(ctx context.Context) error {
	if _, ok := c.node.byID(c.id); ok {
		return exec.ErrTaskPrepared
	}
	spec, err := template.ExpandContainerSpec(c.node.description(), c.task)
	if err != nil {
		return fmt.Errorf("expand templates of the container spec: %w", err)
	}
	rec, err := taskRecord(c.task, spec)
	if err != nil {
		return err
	}
	c.node.nameHost(&rec)
	if err := c.node.ensureNetworks(ctx, c.task.Networks); err != nil {
		return err
	}
	auth := ""
	if spec.PullOptions != nil {
		auth = spec.PullOptions.RegistryAuth
	}
	img, err := c.node.ensureImage(ctx, spec.Image, auth)
	if err != nil {
		if ctx.Err() == nil {
			c.node.reportRefusal(c.task.ID, stepImage, "The image of the task could not be had: the task's own error says why.")
		}
		return err
	}
	if err := rec.fillFrom(img); err != nil {
		return err
	}
	if err := saveRecord(c.node.dir, rec); err != nil {
		return err
	}
	c.node.add(newContainer(rec))
	c.node.event(rec, dockerevents.ActionCreate)
	return nil
}

// Start starts the container and returns when the task has proved itself: at
// once without a probe, else when the first probe has passed. This is the
// STARTING to RUNNING gate (spec/healthchecks.txt, "The first difference").
func (c *controller) Start(ctx context.Context) error {
	ctr, ok := c.node.byID(c.id)
	if !ok {
		return c.vanished()
	}
	switch rec := ctr.record(); {
	case rec.State == Removing || rec.State == Dead:
		return conflict("container %s is being removed", short(c.id))
	case rec.State == Created && !rec.Stopping:
		files, err := c.files(ctx)
		if err == nil {
			err = c.node.startRun(ctx, ctr, files)
		}
		if err != nil {
			if ctx.Err() == nil {
				c.log().Warn("task cannot be started", "err", err)
				c.node.reportFailure(ctr, stepApply)
			}
			return fmt.Errorf("start container: %w", err)
		}
	}
	proved, done := ctr.run()
	select {
	case <-proved:
		return nil
	case <-done:
		return c.endError(ctr) // nil: it ended with 0 before any probe passed, which Wait reports
	case <-ctr.gone:
		return c.vanished()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Wait returns when the task has ended: nil for exit code 0, an error for any
// other and whenever it was unhealthy.
//
// While the task runs it returns a temporary error whenever there is something
// to say of it: SwarmKit's agent reports that as the Status.Err of the RUNNING
// task and calls Wait again a second later. The error's text is empty when
// there is nothing to say any more.
func (c *controller) Wait(ctx context.Context) error {
	ctr, ok := c.node.byID(c.id)
	if !ok {
		return c.vanished()
	}
	_, done := ctr.run()
	for {
		rec, changed := ctr.news()
		if text := c.node.withdrawnText(rec); rec.running() && c.tells(text) {
			return exec.MakeTemporary(errors.New(text))
		}
		select {
		case <-done:
			if c.stopped.Load() {
				// The agent has left a Wait behind; what it would report
				// belies the shutdown.
				<-ctx.Done()
				return ctx.Err()
			}
			return c.endError(ctr)
		case <-ctr.gone:
			return c.vanished()
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// tells notes what is reported, and tells whether it is news.
func (c *controller) tells(text string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	news := text != c.told
	c.told = text
	return news
}

// endError is why a task that ended has failed, or nil.
func (c *controller) endError(ctr *Container) error {
	rec := ctr.record()
	switch {
	case rec.Unhealthy != "":
		return &exitError{code: rec.ExitCode, cause: fmt.Errorf("%w%s", errUnhealthy, trimPrefix(rec.Unhealthy)), status: containerStatus(ctr)}
	case rec.ExitCode != 0:
		cause := error(nil)
		if rec.OOMKilled {
			cause = errors.New("killed: out of memory")
		}
		if rec.ExitCode < 0 {
			cause = errors.New(cmp.Or(rec.Error, "its end was not seen: exit code lost"))
		}
		return &exitError{code: rec.ExitCode, cause: cause, status: containerStatus(ctr)}
	}
	return nil
}

// Shutdown stops the task: out of traffic, stop signal, grace, SIGKILL.
func (c *controller) Shutdown(ctx context.Context) error {
	c.stopped.Store(true)
	ctr, ok := c.node.byID(c.id)
	if !ok {
		return nil
	}
	return c.node.halt(ctx, ctr, false)
}

// Terminate kills the task at once.
func (c *controller) Terminate(ctx context.Context) error {
	ctr, ok := c.node.byID(c.id)
	if !ok {
		return nil
	}
	return c.node.halt(ctx, ctr, true)
}

// Remove takes the container away. The agent forgets the task as it asks, asks
// once, and ends its question when the node joins or leaves a cluster: what was
// begun goes on without it.
func (c *controller) Remove(ctx context.Context) error {
	ctr, ok := c.node.byID(c.id)
	if !ok {
		return nil
	}
	c.node.note(ctr, func(r *Record) { r.Discarded = true })
	done := make(chan error, 1)
	c.node.wg.Go(func() { done <- c.node.discard(ctr) })
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close lets go of the handle; the task is left as it is.
func (c *controller) Close() error { return nil }

// ContainerStatus reports the task's container.
func (c *controller) ContainerStatus(context.Context) (*api.ContainerStatus, error) {
	ctr, ok := c.node.byID(c.id)
	if !ok {
		return nil, nil
	}
	return containerStatus(ctr), nil
}

// PortStatus reports the ports that this task publishes on its own node.
func (c *controller) PortStatus(context.Context) (*api.PortStatus, error) {
	status := &api.PortStatus{}
	if c.task.Endpoint != nil {
		for _, p := range c.task.Endpoint.Ports {
			if p.PublishMode == api.PublishModeHost {
				status.Ports = append(status.Ports, p)
			}
		}
	}
	return status, nil
}

func (c *controller) vanished() error {
	return fmt.Errorf("container %s of the task is gone: it was removed by hand", short(c.id))
}

func containerStatus(ctr *Container) *api.ContainerStatus {
	ctr.mu.Lock()
	defer ctr.mu.Unlock()
	return &api.ContainerStatus{ContainerID: ctr.id, PID: int32(ctr.pid), ExitCode: int32(ctr.rec.ExitCode)}
}

// ensureNetworks makes the bridges that a task joins.
func (n *Node) ensureNetworks(ctx context.Context, attachments []*api.NetworkAttachment) error {
	for _, a := range attachments {
		if a.Network == nil || isHostNetwork(a.Network) {
			continue
		}
		if IsOverlay(a.Network) {
			if err := n.awaitOverlay(ctx, a.Network); err != nil {
				return err
			}
			continue
		}
		spec, err := networkOf(a.Network)
		if err != nil {
			return err
		}
		if _, err := n.cfg.Networks.Ensure(ctx, spec); err != nil {
			return fmt.Errorf("network %s: %w", spec.Name, err)
		}
	}
	return nil
}

// networkOf is a network of the store as this node makes it.
func networkOf(n *api.Network) (network.Network, error) {
	out := network.Network{ID: n.ID, Name: n.Spec.Annotations.Name, Internal: n.Spec.Internal}
	ipam := n.IPAM
	if ipam == nil {
		ipam = n.Spec.IPAM
	}
	if ipam == nil || len(ipam.Configs) == 0 {
		return out, nil
	}
	subnet, err := netip.ParsePrefix(ipam.Configs[0].Subnet)
	if err != nil {
		return out, fmt.Errorf("subnet of network %s: %w", out.Name, err)
	}
	out.Subnet = subnet
	if g := ipam.Configs[0].Gateway; g != "" {
		if out.Gateway, err = netip.ParseAddr(g); err != nil {
			return out, fmt.Errorf("gateway of network %s: %w", out.Name, err)
		}
	}
	return out, nil
}
