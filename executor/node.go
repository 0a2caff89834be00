// SPDX-License-Identifier: BSD-2-Clause

package executor

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"

	dockerevents "github.com/docker/docker/api/types/events"
	"github.com/moby/swarmkit/v2/api"

	"satld/events"
	"satld/healthcheck"
	"satld/image"
	"satld/jail"
	"satld/network"
	"satld/traffic"
)

// Prober watches containers by probing them; *healthcheck.Monitor is one.
type Prober interface {
	Watch(w healthcheck.Watch)
	Remove(ctx context.Context, id string) error
	Get(id string) (healthcheck.Health, bool)
	Pause(id string)
	Resume(id string)
}

// Config is what a node's executor works with.
type Config struct {
	StateDir string
	Hostname string
	Version  string // engine version shown in the node's description
	Labels   map[string]string
	Boot     string // of the machine, another one each time it starts; "" if nobody can tell

	// JailFirst: a container is a jail, which exists before it can be attached
	// to networks, dies in its own time, and whose name is never used again.
	JailFirst bool

	Runtime  jail.Runtime
	Images   image.Images
	Networks Networks
	Traffic  traffic.Traffic
	Prober   Prober
	Leader   Leader // nil: every unhealthy task may be replaced, no report is kept
	Events   *events.Log
	Logger   *slog.Logger

	write func(dir string, r Record) error // saveRecord, but for tests of a disk that stands still
}

// Networks is what this package uses of package network.
type Networks interface {
	network.Networks
	// Lease gives a container the addresses that Attach will use.
	Lease(ctx context.Context, containerID string, places []network.Place) ([]network.Attachment, error)
}

// Node runs containers on this machine. It implements SwarmKit's
// exec.Executor for tasks and Containers for the API.
type Node struct {
	cfg Config
	dir string // STATE/executor
	log *slog.Logger

	// ctx bounds the goroutines that watch containers: when it ends they stop
	// watching and leave the containers as they are.
	ctx  context.Context
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu         sync.Mutex
	containers map[string]*Container // by ID
	nodeID     string

	attachments  atomic.Pointer[[]*api.NetworkAttachment] // the networks on all nodes that this one is in; nil before it was told
	dependencies *dependencies

	nodeUnready atomic.Bool // an operator took the node out of traffic
	nodeSaving  sync.Mutex  // one writer of the node's own file at a time
}

// Open takes over what an earlier daemon left, before anything new may
// happen: living containers are watched again and keep their traffic, ended
// ones are recorded, strays are swept. Tasks are not disturbed.
func Open(ctx context.Context, cfg Config) (*Node, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.write == nil {
		cfg.write = saveRecord
	}
	n := &Node{cfg: cfg, dir: filepath.Join(cfg.StateDir, "executor"), log: cfg.Logger, containers: make(map[string]*Container), dependencies: newDependencies()}
	n.ctx, n.stop = context.WithCancel(context.Background())
	if err := n.loadNodeState(); err != nil {
		n.log.Warn("operator's word on this node is not known until the cluster is heard from", "err", err)
	}
	if err := n.adoptAll(ctx); err != nil {
		n.stop()
		return nil, fmt.Errorf("take over containers: %w", err)
	}
	return n, nil
}

// Close stops watching; every container is left running. What waits for a disk
// is not waited for for ever.
func (n *Node) Close() {
	n.stop()
	done := make(chan struct{})
	go func() {
		defer close(done)
		n.wg.Wait()
	}()
	if !wait(context.Background(), done, closeBound) {
		n.log.Warn("what is under way for containers is not finished; the next daemon goes on with it", "waited", closeBound.String())
	}
}

// add registers a container; a taken ID or name is refused by the caller.
func (n *Node) add(c *Container) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.containers[c.id] = c
}

func (n *Node) byID(id string) (*Container, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	c, ok := n.containers[id]
	return c, ok
}

func (n *Node) all() []*Container {
	n.mu.Lock()
	defer n.mu.Unlock()
	list := make([]*Container, 0, len(n.containers))
	for _, c := range n.containers {
		list = append(list, c)
	}
	return list
}

// logger is the log of one container: a task's lines carry its ID, and that
// alone where it never had a container.
func (n *Node) logger(r Record) *slog.Logger {
	l := n.log
	if r.ID != "" {
		l = l.With("container", short(r.ID), "name", r.Name)
	}
	if r.TaskID != "" {
		l = l.With("task_id", r.TaskID)
	}
	return l
}

// event publishes a container event with Docker's attributes.
func (n *Node) event(r Record, action dockerevents.Action, extra ...string) {
	attributes := make(map[string]string, len(r.Config.Labels)+4)
	for k, v := range r.Config.Labels {
		attributes[k] = v
	}
	attributes["image"], attributes["name"] = r.Image, r.Name
	for i := 0; i+1 < len(extra); i += 2 {
		attributes[extra[i]] = extra[i+1]
	}
	n.cfg.Events.Publish(events.Container(action, r.ID, attributes))
}

// short is an ID as people see it.
func short(id string) string {
	if len(id) > 12 {
		return id[:12]
	}
	return id
}
