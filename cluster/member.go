// SPDX-License-Identifier: BSD-2-Clause

package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/moby/swarmkit/v2/ca"
	"github.com/moby/swarmkit/v2/connectionbroker"
	"github.com/moby/swarmkit/v2/manager/dispatcher"
	"github.com/moby/swarmkit/v2/manager/logbroker"
	"github.com/moby/swarmkit/v2/manager/state/store"
	"github.com/moby/swarmkit/v2/remotes"
	bolt "go.etcd.io/bbolt"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"satld/mesh"
	"satld/raft"
)

// member is this node's part in one cluster, from the moment it is known to be
// in it until it leaves, joins another or changes its role. What is in the
// state directory decides what it is; Node makes one after the other.
//
// On a worker there is no raft, its store is empty, and nobody is served.
type member struct {
	cfg       Config
	log       *slog.Logger
	advertise string

	id       *identity
	remember *remembered
	raft     *raft.Node // nil on a worker
	store    *store.MemoryStore
	members  *members // nil on a worker
	tasks    *bolt.DB
	broker   *connectionbroker.Broker
	own      ownManager

	dispatcher *dispatcher.Dispatcher
	caServer   *ca.Server
	logs       *logbroker.LogBroker

	observer  *mesh.Observer
	directory *mesh.Directory // nil on a worker

	listener net.Listener
	streams  *streams // raft's connections
	pipe     *pipe
	conn     *grpc.ClientConn
	conns    *conns
	calls    map[string]call
	// Who shows a certificate reaches remote, who shows none strange, and this
	// process local.
	remote, strange, local *grpc.Server

	loaded chan struct{} // closed when the store holds what it did before this member was opened
	up     chan struct{} // closed when the leader's parts ran here for the first time
	upOnce sync.Once
	starts atomic.Int64 // of the leader's parts, for tests
	closed sync.Once
	ended  chan struct{} // closed by close

	registered atomic.Bool // a manager has answered this node's agent
	caughtUp   atomic.Bool // the store is as far as the leader's was when this node became a manager
}

// errReopen ends a member whose role changed: the next one has the new role.
var errReopen = errors.New("this node's role changed")

// openMember opens what the state directory says this node is; an empty one
// makes a cluster of this node alone. Other nodes come by listener.
func openMember(ctx context.Context, cfg Config, log *slog.Logger, listener net.Listener, advertise string) (_ *member, err error) {
	n := &member{cfg: cfg, log: log, advertise: advertise, listener: listener, loaded: make(chan struct{}), up: make(chan struct{}), ended: make(chan struct{})}
	defer func() {
		if err != nil {
			n.close()
		}
	}()
	if n.remember, err = openRemembered(cfg.StateDir); err != nil {
		return nil, err
	}
	if cfg.ForceNewCluster {
		if err := n.remember.setManagers(nil); err != nil {
			return nil, err
		}
	}
	dir := filepath.Join(cfg.StateDir, "raft")
	used, err := usedBefore(cfg.StateDir)
	if err != nil {
		return nil, err
	}
	exists, err := raft.HasState(dir, used && len(n.remember.managers()) == 0)
	if damaged := new(raft.DamagedError); errors.As(err, &damaged) && cfg.ForceNewCluster {
		exists, err = true, nil
	}
	if err != nil {
		return nil, err
	}
	// A node that knows other managers joined them: it never makes a cluster
	// of its own, whatever became of its log.
	joined := len(n.remember.managers()) > 0
	if n.id, err = openIdentity(ctx, filepath.Join(cfg.StateDir, "certificates"), !exists && !joined); err != nil {
		return nil, err
	}
	n.conns = newConns(n.id.sec)
	n.conns.unary = n.awaitApplied
	n.broker = connectionbroker.New(remotes.NewRemotes(n.remember.managers()...))
	n.observer = n.newObserver()
	if n.tasks, err = n.openTasks(); err != nil {
		return nil, err
	}
	if !n.id.manager() {
		// What an earlier role left: a log that goes on elsewhere without us.
		if err := os.RemoveAll(dir); err != nil {
			return nil, fmt.Errorf("remove the store of an earlier role: %w", err)
		}
		n.store = store.NewMemoryStore(nil)
		n.servers()
		n.pipe = newPipe()
		n.conn, err = n.dialLocal()
		return n, err
	}
	if !exists && used && !joined && !n.remember.left() {
		n.mourn(dir)
	}
	n.streams = newStreams(advertise, n.conns)
	n.raft, err = raft.Open(raft.Config{
		Dir: dir, ID: n.id.nodeID(), Addr: n.advertise, Stream: n.streams,
		Bootstrap: !joined, ForceNewCluster: cfg.ForceNewCluster && exists, Logger: n.log,
		SnapshotThreshold: cfg.compact, TrailingLogs: cfg.compact, ProposeTimeout: cfg.proposeTimeout,
		Forced: func(tx store.Tx) error { return demoteOthers(tx, n.id.nodeID()) },
	})
	if err != nil {
		return nil, err
	}
	at := n.raft.MemberAt
	n.streams.member.Store(&at)
	n.caughtUp.Store(!n.raft.Empty() || !joined)
	n.store = n.raft.Store()
	n.directory = &mesh.Directory{Boot: cfg.life.Name()}
	n.members = newMembers(n.raft, n.id.sec, n.conns)
	n.dispatcher = dispatcher.New()
	n.caServer = ca.NewServer(n.store, n.id.sec)
	n.logs = logbroker.New(n.store)
	n.services()
	n.pipe = newPipe()
	if n.conn, err = n.dialLocal(); err != nil {
		return nil, err
	}
	n.useOwn(true)
	return n, nil
}

// run runs the member until ctx is done or something fails that it cannot do
// without; then it has stopped everything it started, in reverse order, and
// closed itself. Tasks are left running. errReopen says that the node's role
// changed.
func (n *member) run(ctx context.Context) error {
	defer n.close()
	base := withLogger(context.WithoutCancel(ctx), n.log)
	fail := make(chan error, 8)

	// Each ring ends before the one it stands on: agent, manager, services.
	services := n.start(base, fail, func(ctx context.Context) error { return n.serve(ctx) })
	defer services()
	if n.raft != nil {
		manager := n.start(base, fail, func(ctx context.Context) error { return n.raft.Run(ctx, n.lead) })
		defer manager()
	}
	renewer := ca.NewTLSRenewer(n.id.sec, n.broker, n.id.paths.RootCA)
	agent := n.start(base, fail, func(ctx context.Context) error {
		g, ctx := errgroup.WithContext(ctx)
		g.Go(func() error { return n.renew(ctx, renewer) })
		g.Go(func() error { return n.runAgent(ctx, renewer) })
		g.Go(func() error { return n.load(ctx) })
		g.Go(func() error { return n.keepKnown(ctx) })
		g.Go(func() error { return n.keepMesh(ctx) })
		if n.raft != nil {
			g.Go(func() error { return n.enlist(ctx, renewer) })
			g.Go(func() error { return n.keepOwn(ctx) })
		}
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
func (n *member) start(base context.Context, fail chan<- error, f func(context.Context) error) (stop func()) {
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
func (n *member) serve(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	door := newDoor(n.listener, n.id.sec.ServerTLSCreds)
	g.Go(door.run)
	g.Go(func() error { return n.remote.Serve(door.nodes) })
	g.Go(func() error { return n.strange.Serve(door.others) })
	g.Go(func() error { return n.local.Serve(n.pipe) })
	if n.members != nil {
		g.Go(func() error { n.members.publish(ctx); return nil })
	}
	g.Go(func() error {
		<-ctx.Done()
		door.close()
		n.local.Stop()
		n.strange.Stop()
		n.remote.Stop()
		return nil
	})
	if err := g.Wait(); err != nil && ctx.Err() == nil {
		return fmt.Errorf("serve the cluster on %s: %w", n.cfg.ListenAddr, err)
	}
	return nil
}

// renew keeps the node's certificate valid until ctx is done. One with
// another role ends the member.
func (n *member) renew(ctx context.Context, renewer *ca.TLSRenewer) error {
	manager := n.id.manager()
	for update := range renewer.Start(ctx) {
		if update.Err != nil {
			n.log.Warn("this node's certificate could not be renewed", "error", update.Err)
			continue
		}
		n.log.Info("this node's certificate was renewed", "role", update.Role)
		if n.id.manager() != manager {
			return errReopen
		}
	}
	return nil
}

// close releases everything that the member took. run does so at its end.
func (n *member) close() error {
	var err error
	n.closed.Do(func() {
		close(n.ended)
		if n.conn != nil {
			n.conn.Close()
		}
		if n.pipe != nil {
			n.pipe.Close()
		}
		n.listener.Close()
		if n.members != nil {
			n.members.close()
		}
		if n.raft != nil {
			err = errors.Join(err, n.raft.Close())
		}
		if n.streams != nil {
			n.streams.Close()
		}
		if n.conns != nil {
			n.conns.close()
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
