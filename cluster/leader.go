// SPDX-License-Identifier: BSD-2-Clause

package cluster

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	gogotypes "github.com/gogo/protobuf/types"
	"github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/manager/dispatcher"
	"github.com/moby/swarmkit/v2/manager/drivers"
	"github.com/moby/swarmkit/v2/manager/orchestrator/constraintenforcer"
	"github.com/moby/swarmkit/v2/manager/orchestrator/jobs"
	"github.com/moby/swarmkit/v2/manager/orchestrator/taskreaper"
	"github.com/moby/swarmkit/v2/manager/scheduler"
	"github.com/moby/swarmkit/v2/manager/state"
	"github.com/moby/swarmkit/v2/manager/state/store"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"satld/orchestrator"
)

const (
	// seedRetry is the wait before another attempt to write the first objects.
	seedRetry = 250 * time.Millisecond
	// aloneGrace is how many heartbeats a node alone may miss: an hour's worth.
	aloneGrace = 720
	// minHeartbeat is the shortest period of heartbeats that a cluster may have:
	// SwarmKit's dispatcher takes any, counts nodes as lost before they can
	// answer, and ends the process with a panic if that is while it starts.
	minHeartbeat = time.Second
	// joinTime is how long a second node is left to its joining before the
	// parts start anew with it in mind.
	joinTime = 3 * time.Second
)

// lead runs the leader's parts until ctx is done, which is when leadership is
// lost or the daemon stops. The order is that of SwarmKit's manager.
func (n *member) lead(ctx context.Context) error {
	for {
		err := n.seed()
		if err == nil {
			err = n.calmHeartbeat()
		}
		if err == nil {
			break
		}
		if !errdefs.IsUnavailable(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(seedRetry):
		}
	}
	for ctx.Err() == nil {
		n.leadOnce(ctx)
	}
	return nil
}

// leadOnce runs the leader's parts until ctx is done, or until a node that was
// alone no longer is.
func (n *member) leadOnce(ctx context.Context) {
	alone := n.alone()
	joined, cancel := state.Watch(n.store.WatchQueue(), api.EventCreateNode{})
	defer cancel()
	parts := n.startParts(ctx, alone)
	defer parts.stop()
	if err := n.awaitDispatcher(ctx); err != nil {
		return // ctx is done
	}
	n.starts.Add(1)
	n.upOnce.Do(func() { close(n.up) })
	if !alone {
		<-ctx.Done()
		return
	}
	select {
	case <-ctx.Done():
		return
	case <-joined:
	}
	select {
	case <-ctx.Done():
	case <-time.After(joinTime):
	}
}

// alone tells whether the cluster is this node and nobody else.
func (n *member) alone() (alone bool) {
	n.store.View(func(tx store.ReadTx) {
		nodes, err := store.FindNodes(tx, store.All)
		alone = err == nil && len(nodes) == 1
	})
	return alone
}

// parts are the running parts of a leader.
type parts struct {
	wg     sync.WaitGroup
	stops  []func()
	cancel context.CancelFunc // for a part whose stop came before its start
}

// stop stops all parts in the order they were started in and waits for them.
func (p *parts) stop() {
	for _, stop := range p.stops {
		stop()
	}
	p.cancel()
	p.wg.Wait()
}

// add runs one part in a goroutine; run returns once stop was called, or by itself.
func (p *parts) add(run, stop func()) {
	p.wg.Go(run)
	p.stops = append(p.stops, stop)
}

// startParts starts everything that a leader runs. The two gRPC services among
// them live as long as the process and are stopped and started again.
func (n *member) startParts(ctx context.Context, alone bool) *parts {
	p := &parts{}
	s := n.store
	leading := ctx
	logged := func(part string, err error) {
		if err != nil && !errors.Is(err, context.Canceled) && leading.Err() == nil {
			n.log.Error("a part of the manager ended", "part", part, "error", err)
		}
	}
	// The parts end by being stopped: SwarmKit's dispatcher takes one whose
	// context is done for stopped already, and leaves its callers waiting.
	ctx, p.cancel = context.WithCancel(context.WithoutCancel(ctx))

	n.dispatcher.Init(n.members, n.dispatcherConfig(alone), drivers.New(nil), n.id.sec)
	p.add(func() { logged("dispatcher", n.dispatcher.Run(ctx)) }, func() { n.dispatcher.Stop() })
	logged("log broker", n.logs.Start(ctx))
	p.stops = append(p.stops, func() { n.logs.Stop() })
	p.add(func() { logged("certificate authority", n.caServer.Run(ctx)) }, func() { n.caServer.Stop() })

	rctx, cancelRoles := context.WithCancel(ctx)
	p.add(func() { n.keepRoles(rctx) }, cancelRoles)
	alloc := newAllocator(s, n.cfg.OverlayPool, n.log)
	actx, cancel := context.WithCancel(ctx)
	p.add(func() { logged("allocator", alloc.Run(actx)) }, cancel)
	sched := scheduler.New(s)
	p.add(func() { logged("scheduler", sched.Run(ctx)) }, sched.Stop)
	enforcer := constraintenforcer.New(s)
	p.add(enforcer.Run, enforcer.Stop)
	reaper := taskreaper.New(s)
	p.add(func() { reaper.Run(ctx) }, reaper.Stop)
	services := orchestrator.New(s, n.log)
	octx, stopServices := context.WithCancel(ctx)
	p.add(func() { logged("replicated and global services", services.Run(octx)) }, stopServices)
	job := jobs.NewOrchestrator(s)
	p.add(func() { job.Run(ctx) }, job.Stop)
	return p
}

// dispatcherConfig takes the heartbeat's period from the cluster's spec: a
// node is down after three periods of silence, or six if a new leader has not
// heard of it yet, and its tasks are given up 24 h later. A node alone shares
// its process with the dispatcher: when heartbeats fail to come it was the whole
// machine that stood still, and nobody else could run its tasks anyway.
func (n *member) dispatcherConfig(alone bool) *dispatcher.Config {
	config := dispatcher.DefaultConfig()
	if alone {
		config.GracePeriodMultiplier = aloneGrace
	}
	n.store.View(func(tx store.ReadTx) {
		c := store.GetCluster(tx, n.id.clusterID())
		if c == nil {
			return
		}
		if d, err := gogotypes.DurationFromProto(c.Spec.Dispatcher.HeartbeatPeriod); err == nil && d > 0 {
			config.HeartbeatPeriod = d
		}
	})
	return config
}

// calmHeartbeat makes a period of heartbeats that is too short, from before it
// was refused, one that can be kept.
func (n *member) calmHeartbeat() error {
	return n.store.Update(func(tx store.Tx) error {
		c := store.GetCluster(tx, n.id.clusterID())
		if c == nil || admitHeartbeat(&c.Spec) == nil {
			return nil
		}
		n.log.Warn("the cluster's heartbeats are too frequent to be kept", "now", minHeartbeat)
		c = c.Copy()
		c.Spec.Dispatcher.HeartbeatPeriod = gogotypes.DurationProto(minHeartbeat)
		return store.UpdateCluster(tx, c)
	})
}

// admitHeartbeat refuses a period of heartbeats that no node could keep; none
// leaves it to SwarmKit.
func admitHeartbeat(spec *api.ClusterSpec) error {
	period := spec.Dispatcher.HeartbeatPeriod
	if period == nil {
		return nil
	}
	if d, err := gogotypes.DurationFromProto(period); err != nil || d < minHeartbeat {
		return status.Errorf(codes.InvalidArgument, "the dispatcher's heartbeat period has to be %v or more", minHeartbeat)
	}
	return nil
}

// awaitDispatcher waits until the dispatcher takes calls. An agent that comes
// earlier is turned away and waits longer than necessary.
func (n *member) awaitDispatcher(ctx context.Context) error {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		lctx, _ := n.asLocal(ctx)
		_, err := n.dispatcher.Heartbeat(lctx, &api.HeartbeatRequest{})
		if status.Code(err) != codes.Aborted {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}
