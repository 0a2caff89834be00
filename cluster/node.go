// SPDX-License-Identifier: BSD-2-Clause

package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/moby/swarmkit/v2/agent/exec"
	"github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/ca"
	"github.com/moby/swarmkit/v2/connectionbroker"
	"github.com/moby/swarmkit/v2/manager/dispatcher"
	"github.com/moby/swarmkit/v2/manager/logbroker"
	"github.com/moby/swarmkit/v2/manager/state/store"
	"github.com/moby/swarmkit/v2/remotes"
	bolt "go.etcd.io/bbolt"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"satld/raft"
)

// Config says where a node lives and what runs its tasks.
type Config struct {
	StateDir      string // the caller holds LockState on it
	ListenAddr    string // host:port for other nodes; port 0 takes any free one
	AdvertiseAddr string // host:port other nodes reach this one at; "" is derived from ListenAddr
	Hostname      string // shown by `node ls`; "" is what the executor describes
	Executor      exec.Executor
	Logger        *slog.Logger // nil is the default logger
	// ForceNewCluster makes a cluster of this node alone out of the state.
	ForceNewCluster bool
}

// Node is this machine's node in the cluster.
type Node struct {
	cfg       Config
	log       *slog.Logger
	advertise string

	id      *identity
	raft    *raft.Node
	store   *store.MemoryStore
	members *members
	tasks   *bolt.DB
	broker  *connectionbroker.Broker

	dispatcher *dispatcher.Dispatcher
	caServer   *ca.Server
	logs       *logbroker.LogBroker

	listener      net.Listener
	pipe          *pipe
	conn          *grpc.ClientConn
	remote, local *grpc.Server

	up     chan struct{} // closed when the leader's parts ran here for the first time
	upOnce sync.Once
	starts atomic.Int64 // of the leader's parts, for tests
	closed sync.Once
}

var _ Cluster = (*Node)(nil)

// Open opens the node in cfg.StateDir, or makes a cluster of one there. Run is
// to be called next, or Close.
func Open(ctx context.Context, cfg Config) (_ *Node, err error) {
	if cfg.Executor == nil || cfg.StateDir == "" || cfg.ListenAddr == "" {
		return nil, errors.New("cluster: Executor, StateDir and ListenAddr are required")
	}
	n := &Node{cfg: cfg, log: cfg.Logger, up: make(chan struct{})}
	if n.log == nil {
		n.log = slog.Default()
	}
	defer func() {
		if err != nil {
			n.Close()
		}
	}()
	ctx = withLogger(ctx, n.log)
	if n.listener, err = net.Listen("tcp", cfg.ListenAddr); err != nil {
		return nil, listenError(cfg.ListenAddr, err)
	}
	if n.advertise, err = advertiseAddr(cfg.AdvertiseAddr, n.listener.Addr(), localAddr); err != nil {
		return nil, err
	}
	dir := filepath.Join(cfg.StateDir, "raft")
	used, err := usedBefore(cfg.StateDir)
	if err != nil {
		return nil, err
	}
	exists, err := raft.HasState(dir, used)
	if damaged := new(raft.DamagedError); errors.As(err, &damaged) && cfg.ForceNewCluster {
		exists, err = true, nil
	}
	if err != nil {
		return nil, err
	}
	if n.id, err = openIdentity(ctx, filepath.Join(cfg.StateDir, "certificates"), !exists); err != nil {
		return nil, err
	}
	n.raft, err = raft.Open(raft.Config{
		Dir: dir, ID: n.id.nodeID(), Addr: n.advertise,
		Bootstrap: true, ForceNewCluster: cfg.ForceNewCluster && exists, Logger: n.log,
	})
	if err != nil {
		return nil, err
	}
	n.store = n.raft.Store()
	if n.tasks, err = n.openTasks(); err != nil {
		return nil, err
	}
	if used && !exists {
		n.mourn(dir)
	}
	n.members = newMembers(n.raft, n.id.sec)
	n.dispatcher = dispatcher.New()
	n.caServer = ca.NewServer(n.store, n.id.sec)
	n.logs = logbroker.New(n.store)
	n.remote, n.local = n.services()
	n.pipe = newPipe()
	if n.conn, err = dialLocal(n.pipe); err != nil {
		return nil, err
	}
	n.broker = connectionbroker.New(remotes.NewRemotes())
	n.broker.SetLocalConn(n.conn)
	return n, nil
}

// Run runs the node until ctx is done or something fails that it cannot do
// without; then it has stopped everything it started, in reverse order, and
// closed the node. Tasks are left running.
func (n *Node) Run(ctx context.Context) error {
	defer n.Close()
	base := withLogger(context.WithoutCancel(ctx), n.log)
	fail := make(chan error, 8)

	// Each ring ends before the one it stands on: agent, manager, services.
	services := n.start(base, fail, func(ctx context.Context) error { return n.serve(ctx) })
	defer services()
	manager := n.start(base, fail, func(ctx context.Context) error { return n.raft.Run(ctx, n.lead) })
	defer manager()
	renewer := ca.NewTLSRenewer(n.id.sec, n.broker, n.id.paths.RootCA)
	agent := n.start(base, fail, func(ctx context.Context) error {
		g, ctx := errgroup.WithContext(ctx)
		g.Go(func() error { n.renew(ctx, renewer); return nil })
		g.Go(func() error { return n.runAgent(ctx, renewer) })
		return g.Wait()
	})
	defer agent()

	select {
	case <-ctx.Done():
		return nil
	case err := <-fail:
		return err
	}
}

// start runs f; the function it returns ends f and waits for it.
func (n *Node) start(base context.Context, fail chan<- error, f func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(base)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := f(ctx); err != nil && ctx.Err() == nil {
			fail <- err
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// serve serves gRPC to other nodes and to this process until ctx is done.
func (n *Node) serve(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return n.remote.Serve(n.listener) })
	g.Go(func() error { return n.local.Serve(n.pipe) })
	g.Go(func() error { n.members.publish(ctx); return nil })
	g.Go(func() error {
		<-ctx.Done()
		n.local.Stop()
		n.remote.Stop()
		return nil
	})
	if err := g.Wait(); err != nil && ctx.Err() == nil {
		return fmt.Errorf("serve the cluster on %s: %w", n.cfg.ListenAddr, err)
	}
	return nil
}

// renew keeps the node's certificate valid until ctx is done.
func (n *Node) renew(ctx context.Context, renewer *ca.TLSRenewer) {
	for update := range renewer.Start(ctx) {
		if update.Err != nil {
			n.log.Warn("this node's certificate could not be renewed", "error", update.Err)
		} else {
			n.log.Info("this node's certificate was renewed", "role", update.Role)
		}
	}
}

// Close releases everything that Open took. Run does so at its end.
func (n *Node) Close() error {
	var err error
	n.closed.Do(func() {
		if n.conn != nil {
			n.conn.Close()
		}
		if n.pipe != nil {
			n.pipe.Close()
		}
		if n.listener != nil {
			n.listener.Close()
		}
		if n.members != nil {
			n.members.close()
		}
		if n.raft != nil {
			err = errors.Join(err, n.raft.Close())
		}
		if n.tasks != nil {
			err = errors.Join(err, n.tasks.Close())
		}
		if n.id != nil {
			n.id.close()
		}
	})
	return err
}

// NodeID implements Cluster.
func (n *Node) NodeID() string { return n.id.nodeID() }

// ClusterID is the cluster's ID, the same on all its nodes.
func (n *Node) ClusterID() string { return n.id.clusterID() }

// Manager implements Cluster.
func (n *Node) Manager() bool { return n.id.manager() }

// Leader implements Cluster.
func (n *Node) Leader() bool { return n.raft.Leads() }

// Store implements Cluster.
func (n *Node) Store() *store.MemoryStore { return n.store }

// Control implements Cluster.
func (n *Node) Control() api.ControlClient { return api.NewControlClient(n.conn) }

// Logs is SwarmKit's log service: the output of tasks on any node.
func (n *Node) Logs() api.LogsClient { return api.NewLogsClient(n.conn) }

// AdvertiseAddr implements Cluster.
func (n *Node) AdvertiseAddr() string { return n.advertise }

// ManagerStatus is a node's part in the consensus; nil if it has none.
func (n *Node) ManagerStatus(nodeID string) *api.ManagerStatus { return n.members.status(nodeID) }

// readyPoll is how often Ready looks for a leader on a node that follows.
const readyPoll = 20 * time.Millisecond

// Ready implements Cluster.
func (n *Node) Ready(ctx context.Context) error {
	tick := time.NewTicker(readyPoll)
	defer tick.Stop()
	for {
		id, _ := n.raft.Leader()
		if id != "" && id != n.NodeID() {
			return nil
		}
		select {
		case <-n.up:
			if n.raft.Leads() {
				return nil
			}
		default:
		}
		select {
		case <-ctx.Done():
			if err := n.raft.Trouble(); err != nil {
				return errors.Join(ctx.Err(), err)
			}
			return ctx.Err()
		case <-tick.C:
		}
	}
}
