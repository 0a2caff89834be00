// SPDX-License-Identifier: BSD-2-Clause

package executor

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"syscall"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	dockerevents "github.com/docker/docker/api/types/events"
	"github.com/docker/docker/pkg/namesgenerator"
	"github.com/moby/sys/signal"

	"satld/jail"
	"satld/network"
)

var _ Containers = (*Node)(nil)

// List returns every container of this node, in no order.
func (n *Node) List() []Snapshot {
	all := n.all()
	out := make([]Snapshot, 0, len(all))
	for _, c := range all {
		out = append(out, n.snapshot(c))
	}
	return out
}

// Get returns one container.
func (n *Node) Get(ref string) (Snapshot, error) {
	c, err := n.find(ref)
	if err != nil {
		return Snapshot{}, err
	}
	return n.snapshot(c), nil
}

func (n *Node) snapshot(c *Container) Snapshot {
	c.mu.Lock()
	r, pid := c.rec, c.pid
	c.mu.Unlock()
	health := n.health(c)
	s := Snapshot{
		ID: r.ID, Name: r.Name, Aliases: r.aliases(), Image: r.Image, ImageID: r.ImageID, Created: r.Created,
		State: r.State, Started: r.Started, Finished: r.Finished, ExitCode: r.ExitCode, OOMKilled: r.OOMKilled,
		Error: r.Error, Pid: pid, RestartCount: r.Restarts,
		TaskID: r.TaskID, ServiceID: r.ServiceID, ServiceName: r.ServiceName, NodeID: r.NodeID, Slot: r.Slot,
		Config: r.Config, HostConfig: r.HostConfig, Ports: r.Ports, Args: r.Args,
		Networks: n.cfg.Networks.Attachments(r.runtimeID()), HostNetwork: r.Host,
	}
	if s.Stopping = r.Stopping; r.State.Live() {
		s.Root = n.rootOf(r, pid)
	}
	if m, err := mounts(r.HostConfig); err == nil {
		s.Mounts = m
	}
	s.Config = r.shownConfig()
	s.Health = health
	settings, probed := r.settings()
	if probed {
		s.Settings = &settings
	}
	s.NotServing = n.notServing(r, health, settings)
	s.Serving = s.NotServing == ""
	s.FailOpen = n.failsOpen(r)
	return s
}

// shownConfig is the container's configuration with the defaults in effect
// filled in: the host name it got, the settings it is probed with.
func (r Record) shownConfig() *container.Config {
	config := *r.Config
	if config.Hostname == "" {
		config.Hostname = r.hostname()
	}
	if s, probed := r.settings(); probed {
		config.Healthcheck = s.Shown(r.Config.Healthcheck)
	}
	return &config
}

// namePattern is Docker's for container names.
var namePattern = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]+$`)

// Create makes a container of `run`; it does not run yet.
func (n *Node) Create(ctx context.Context, req CreateRequest) (string, []string, error) {
	if req.Config == nil {
		return "", nil, invalid("config cannot be empty in order to create a container")
	}
	if req.HostConfig == nil {
		req.HostConfig = &container.HostConfig{}
	}
	raw := make([]byte, 32)
	if _, err := rand.Read(raw); err != nil {
		return "", nil, fmt.Errorf("make a container ID: %w", err)
	}
	rec := Record{
		ID: hex.EncodeToString(raw), Name: req.Name, Image: req.Config.Image, Created: time.Now(),
		Config: req.Config, HostConfig: req.HostConfig, NetworkIDs: req.NetworkIDs, Aliases: req.Aliases,
		Host: req.HostConfig.NetworkMode.IsHost(),
	}
	if rec.Name != "" && !namePattern.MatchString(rec.Name) {
		return "", nil, invalid("Invalid container name (%s), only [a-zA-Z0-9][a-zA-Z0-9_.-] are allowed", rec.Name)
	}
	n.nameHost(&rec)
	if !rec.Host && len(rec.NetworkIDs) == 0 {
		rec.NetworkIDs = []string{network.DefaultID}
	}
	img, err := n.cfg.Images.Get(rec.Image)
	if err != nil {
		return "", nil, err
	}
	if err := rec.fillFrom(img); err != nil {
		return "", nil, err
	}
	if s := rec.Config.StopSignal; s != "" {
		if _, err := signal.ParseSignal(s); err != nil {
			return "", nil, invalid("stop signal: %v", err)
		}
	}
	if _, err := mounts(rec.HostConfig); err != nil {
		return "", nil, err
	}
	if _, _, err := logLimits(rec.HostConfig.LogConfig); err != nil {
		return "", nil, err
	}
	c := newContainer(rec)
	c.op <- struct{}{} // whoever starts or removes it waits until it is made
	defer c.release()
	if err := n.claim(c); err != nil {
		return "", nil, err
	}
	if err := n.save(c); err != nil {
		return "", nil, errors.Join(err, n.unmade(c))
	}
	n.event(c.record(), dockerevents.ActionCreate)
	return c.id, nil, nil
}

// unmade takes a container away that could not be recorded.
func (n *Node) unmade(c *Container) error {
	defer c.lockFiles()()
	c.erased = true
	c.mu.Lock()
	c.rec.State = Dead
	closeOnce(c.gone)
	c.mu.Unlock()
	n.mu.Lock()
	delete(n.containers, c.id)
	n.mu.Unlock()
	return removeDir(n.dir, c.id)
}

// claim gives a new container its name and ports, or says who has them, and
// registers it: of two requests for the same one is refused. The disk is not
// waited for here, where everything on the node would wait too.
func (n *Node) claim(c *Container) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	rec := &c.rec // nobody else knows it yet
	names := make(map[string]string)
	var taken []PortBinding
	for _, c := range n.containers {
		other := c.record()
		names[other.Name] = other.ID
		if other.State != Exited || other.TaskID == "" {
			taken = append(taken, other.Ports...)
		}
	}
	if id, ok := names[rec.Name]; ok && rec.Name != "" {
		return conflict("Conflict. The container name %q is already in use by container %q. You have to remove (or rename) that container to be able to reuse that name", "/"+rec.Name, id)
	}
	for try := 0; rec.Name == ""; try++ {
		if name := namesgenerator.GetRandomName(try); names[name] == "" {
			rec.Name = name
		}
	}
	ports, err := hostPorts(rec.Config, rec.HostConfig, taken)
	if err != nil {
		return err
	}
	rec.Ports = ports
	n.containers[c.id] = c
	return nil
}

// Start starts a container that is not running.
func (n *Node) Start(ctx context.Context, ref string) error {
	c, err := n.find(ref)
	if err != nil {
		return err
	}
	rec := c.record()
	if rec.State == Running {
		return notModified("container %s is already started", rec.Name)
	}
	if rec.TaskID != "" {
		return conflict("container %s belongs to task %s: its service starts it", rec.Name, rec.TaskID)
	}
	err = n.portsInUse(rec)
	if err == nil {
		err = n.startRun(ctx, c, nil)
	}
	if err != nil && rec.HostConfig.AutoRemove {
		// `run --rm` waits for the removal also of what never ran.
		if rmErr := n.remove(context.WithoutCancel(ctx), c); rmErr != nil {
			n.logger(rec).Warn("automatic removal failed", "err", rmErr)
		}
	}
	return err
}

// portsInUse refuses a start whose published ports somebody else has now:
// another container, or a process of the host, whose port the redirect would
// take away.
func (n *Node) portsInUse(rec Record) error {
	for _, c := range n.all() {
		other := c.record()
		if other.ID == rec.ID || !other.State.Live() {
			continue
		}
		for _, p := range rec.Ports {
			if o, clash := clashing(p, other.Ports); clash {
				return conflict("Bind for %s:%d failed: port is already allocated (%s by container %s)", hostOf(p), p.Published, o, other.Name)
			}
		}
	}
	for _, p := range rec.Ports {
		if err := PortHeld(p.Proto, hostOf(p), uint32(p.Published)); err != nil {
			return conflict("Bind for %s:%d failed: port is already allocated: %v", hostOf(p), p.Published, err)
		}
	}
	return nil
}

// Stop ends a container with its stop signal and grace.
func (n *Node) Stop(ctx context.Context, ref string, grace *int, sig string) error {
	c, err := n.find(ref)
	if err != nil {
		return err
	}
	rec := c.record()
	if !rec.State.Live() {
		return notModified("container %s is already stopped", rec.Name)
	}
	o := rec.plannedStop()
	if grace != nil {
		o.grace = time.Duration(*grace) * time.Second
	}
	if sig != "" {
		if o.signal, err = parseSignal(sig); err != nil {
			return err
		}
	}
	// A stop that was begun is finished, also when its client does not wait.
	stopped := make(chan error, 1)
	n.wg.Go(func() { stopped <- n.stopRun(n.ctx, c, o) })
	select {
	case err := <-stopped:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Restart stops a container of `run` and starts it again.
func (n *Node) Restart(ctx context.Context, ref string, grace *int, sig string) error {
	if err := n.Stop(ctx, ref, grace, sig); err != nil && !cerrdefs.IsNotModified(err) {
		return err
	}
	return n.Start(ctx, ref)
}

// parseSignal reads a client's signal, which this system must have.
func parseSignal(text string) (syscall.Signal, error) {
	sig, err := signal.ParseSignal(text)
	if err != nil {
		return 0, invalid("%v", err)
	}
	if !signal.ValidSignalForPlatform(sig) {
		return 0, invalid("there is no signal %d here", int(sig))
	}
	return sig, nil
}

// Kill sends a signal, SIGKILL by default, to the main process.
func (n *Node) Kill(ctx context.Context, ref, sig string) error {
	c, err := n.find(ref)
	if err != nil {
		return err
	}
	rec := c.record()
	if !rec.State.Live() {
		return conflict("container %s is not running", rec.Name)
	}
	number := syscall.SIGKILL
	if sig != "" {
		if number, err = parseSignal(sig); err != nil {
			return err
		}
	}
	if number == syscall.SIGKILL {
		// It is about to end: no new traffic, and a frozen one must thaw to die.
		n.note(c, func(r *Record) { r.Withdrawn = true })
		n.expose(ctx, c)
	}
	if err := n.cfg.Runtime.Kill(ctx, c.runtimeID(), int(number)); err != nil {
		return err
	}
	n.event(rec, dockerevents.ActionKill, "signal", fmt.Sprint(int(number)))
	if number != syscall.SIGKILL {
		return nil
	}
	if rec.State == Paused {
		if err := n.cfg.Runtime.Resume(ctx, c.runtimeID()); err != nil {
			return err
		}
	}
	_, done := c.run()
	return n.kill(ctx, c, done)
}

// Remove deletes a container; force kills it first.
func (n *Node) Remove(ctx context.Context, ref string, force, _ bool) error {
	c, err := n.find(ref)
	if err != nil {
		return err
	}
	if rec := c.record(); rec.State.Live() && !force {
		return conflict("cannot remove container %q: container is running: stop the container before removing or force remove", "/"+rec.Name)
	}
	for {
		if force {
			if err := n.halt(ctx, c, true); err != nil {
				return err
			}
		}
		err := n.remove(ctx, c)
		if force && c.record().State.Live() && ctx.Err() == nil {
			continue // it was started in between
		}
		return err
	}
}

// halt ends a container that runs, or keeps one from running that does not yet.
func (n *Node) halt(ctx context.Context, c *Container, now bool) error {
	if err := c.acquire(ctx); err != nil { // a start under way ends first
		return err
	}
	c.release()
	rec := c.record()
	if rec.State == Created {
		return n.update(c, func(r *Record) { r.Stopping = true })
	}
	if now {
		return n.stopRun(ctx, c, killOrder)
	}
	return n.stopRun(ctx, c, rec.plannedStop())
}

// Rename gives a container of `run` another name.
func (n *Node) Rename(_ context.Context, ref, name string) error {
	c, err := n.find(ref)
	if err != nil {
		return err
	}
	if !namePattern.MatchString(name) {
		return invalid("Invalid container name (%s), only [a-zA-Z0-9][a-zA-Z0-9_.-] are allowed", name)
	}
	if c.record().TaskID != "" {
		return conflict("a task's container cannot be renamed")
	}
	if id, taken := n.nameTaken(name, c.id); taken {
		return conflict("Conflict. The container name %q is already in use by container %q", "/"+name, id)
	}
	old := c.record().Name
	if err := n.update(c, func(r *Record) { r.Name = name }); err != nil {
		return err
	}
	rec := c.record()
	n.event(rec, dockerevents.ActionRename, "oldName", "/"+old)
	if rec.State.Live() {
		n.expose(context.WithoutCancel(n.ctx), c)
	}
	return nil
}

// Pause freezes a container; it is not probed meanwhile (cases/probe.md, probe-12).
func (n *Node) Pause(ctx context.Context, ref string) error {
	c, err := n.live(ref)
	if err != nil {
		return err
	}
	if c.record().State == Paused {
		return conflict("container %s is already paused", c.record().Name)
	}
	n.cfg.Prober.Pause(c.id)
	if err := n.cfg.Runtime.Pause(ctx, c.runtimeID()); err != nil {
		n.cfg.Prober.Resume(c.id)
		return err
	}
	n.event(c.record(), dockerevents.ActionPause)
	return n.advance(c, Paused, nil)
}

// Unpause lets a frozen container go on.
func (n *Node) Unpause(ctx context.Context, ref string) error {
	c, err := n.live(ref)
	if err != nil {
		return err
	}
	if c.record().State != Paused {
		return conflict("container %s is not paused", c.record().Name)
	}
	if err := n.cfg.Runtime.Resume(ctx, c.runtimeID()); err != nil {
		return err
	}
	n.cfg.Prober.Resume(c.id)
	n.event(c.record(), dockerevents.ActionUnPause)
	return n.advance(c, Running, nil)
}

// live finds a container whose main process exists.
func (n *Node) live(ref string) (*Container, error) {
	c, err := n.find(ref)
	if err != nil {
		return nil, err
	}
	if rec := c.record(); !rec.State.Live() {
		return nil, conflict("container %s is not running", rec.ID)
	}
	return c, nil
}

// Exec runs a command in a running container.
func (n *Node) Exec(ctx context.Context, ref string, spec jail.ExecSpec) (jail.Process, error) {
	c, err := n.live(ref)
	if err != nil {
		return nil, err
	}
	if c.record().State == Paused {
		return nil, conflict("container %s is paused, unpause the container before exec", c.id)
	}
	return n.cfg.Runtime.Exec(ctx, c.runtimeID(), spec)
}

// Size is the bytes of a container's own changes and of its whole root.
func (n *Node) Size(ctx context.Context, ref string) (rw, root int64, err error) {
	c, err := n.find(ref)
	if err != nil {
		return 0, 0, err
	}
	if rw, err = n.cfg.Images.Usage(ctx, c.id); err != nil {
		return 0, 0, err
	}
	img, err := n.cfg.Images.Get(c.record().ImageID)
	if err != nil {
		return rw, rw, nil // its image was untagged and removed by force
	}
	return rw, rw + img.Size, nil
}
