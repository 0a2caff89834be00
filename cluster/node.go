// SPDX-License-Identifier: BSD-2-Clause

package cluster

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/moby/swarmkit/v2/agent/exec"
	"github.com/moby/swarmkit/v2/api"
	swarmid "github.com/moby/swarmkit/v2/identity"
	"github.com/moby/swarmkit/v2/manager/state/store"

	"satld/executor"
	"satld/mesh"
)

// Config says where a node lives and what runs its tasks.
type Config struct {
	StateDir      string // the caller holds LockState on it
	ListenAddr    string // host:port for other nodes; port 0 takes any free one
	AdvertiseAddr string // host:port other nodes reach this one at, unless it joined with another; "" is derived from ListenAddr
	Hostname      string // shown by `node ls`; "" is what the executor describes
	Executor      Executor
	// Health is what this node knows of its tasks of a service, for AskHealth
	// of a manager: a value to be sent as JSON.
	Health      func(serviceID string) any
	OverlayPool netip.Prefix // of networks without a subnet of their own; zero is DefaultOverlayPool
	// Traffic, if given, is told of the tasks of other nodes, and others are
	// told of its own; NodeHealth says how other nodes are watched, and Reach is
	// given which addresses of overlay networks are on which of them, host
	// being this node's own address.
	Traffic    Traffic
	NodeHealth mesh.Settings
	Reach      func(host string, entries []mesh.Entry)
	Logger     *slog.Logger // nil is the default logger
	// ForceNewCluster makes a cluster of this node alone out of the state.
	ForceNewCluster bool

	life *mesh.Life // of this run of the daemon
	// compact, in tests, is how many entries go into a snapshot; 0 is raft's default.
	compact uint64
	// proposeTimeout, in tests, is how long a write may take; 0 is raft's default.
	proposeTimeout time.Duration
}

// Executor runs a node's tasks, and takes the secrets and configs that these
// are given.
type Executor interface {
	exec.Executor
	exec.SecretsProvider
	exec.ConfigsProvider
}

// Node is this machine's node, whatever cluster it is in: a fresh one is a
// cluster of itself. It is a member of one cluster at a time.
type Node struct {
	cfg      Config
	log      *slog.Logger
	listener *relay
	changes  chan change
	changing sync.Mutex // one join or leave at a time

	member atomic.Pointer[member] // never nil
	closed sync.Once
}

// change is what is to be done to the state directory while no member is open.
type change struct {
	apply func() error
	done  chan error
}

var _ Cluster = (*Node)(nil)

// Open opens the node in cfg.StateDir, or makes a cluster of one there. Run is
// to be called next, or Close.
func Open(ctx context.Context, cfg Config) (*Node, error) {
	if cfg.Executor == nil || cfg.StateDir == "" || cfg.ListenAddr == "" {
		return nil, errors.New("cluster: Executor, StateDir and ListenAddr are required")
	}
	cfg.life = mesh.NewLife(swarmid.NewID())
	if cfg.NodeHealth == (mesh.Settings{}) {
		cfg.NodeHealth = mesh.DefaultSettings()
	}
	if !cfg.OverlayPool.IsValid() {
		cfg.OverlayPool = DefaultOverlayPool
	}
	n := &Node{cfg: cfg, log: cfg.Logger, changes: make(chan change)}
	if n.log == nil {
		n.log = slog.Default()
	}
	l, err := net.Listen("tcp", cfg.ListenAddr)
	if err != nil {
		return nil, listenError(cfg.ListenAddr, err)
	}
	n.listener = newRelay(l)
	if err := errors.Join(finishChange(cfg.StateDir), n.open(ctx)); err != nil {
		n.listener.close()
		return nil, err
	}
	return n, nil
}

// open makes the next member out of the state directory.
func (n *Node) open(ctx context.Context) error {
	remember, err := openRemembered(n.cfg.StateDir)
	if err != nil {
		return err
	}
	want := cmp.Or(remember.advertise(), n.cfg.AdvertiseAddr)
	advertise, err := advertiseAddr(want, n.listener.Addr(), localAddr)
	if err != nil {
		return err
	}
	m, err := openMember(withLogger(ctx, n.log), n.cfg, n.log, n.listener.next(), advertise)
	if err != nil {
		return err
	}
	n.cfg.ForceNewCluster = false // once
	n.member.Store(m)
	return nil
}

// Run runs the node until ctx is done or something fails that it cannot do
// without; then it has stopped everything it started, in reverse order, and
// closed the node. Tasks are left running.
func (n *Node) Run(ctx context.Context) error {
	defer n.Close()
	for ctx.Err() == nil {
		mctx, end := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() { ended <- n.member.Load().run(mctx) }()
		var asked *change
		var err error
		select {
		case err = <-ended:
		case c := <-n.changes:
			asked = &c
			end()
			err = <-ended
		}
		end()
		if ctx.Err() != nil || err != nil && !errors.Is(err, errReopen) {
			if asked != nil {
				asked.done <- errors.Join(err, ctx.Err())
			}
			return err
		}
		if asked != nil {
			if err := asked.apply(); err != nil {
				n.log.Error("the change of the cluster failed", "error", err)
				asked.done <- err
				asked = nil
			}
		}
		err = n.open(ctx)
		if asked != nil {
			asked.done <- err
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// change ends the member, changes the state directory and opens the next one.
func (n *Node) change(ctx context.Context, apply func() error) error {
	c := change{apply: apply, done: make(chan error, 1)}
	select {
	case n.changes <- c:
		return <-c.done
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close releases everything that Open took. Run does so at its end.
func (n *Node) Close() error {
	var err error
	n.closed.Do(func() { err = errors.Join(n.member.Load().close(), n.listener.close()) })
	return err
}

// NodeID implements Cluster.
func (n *Node) NodeID() string { return n.member.Load().id.nodeID() }

// ClusterID is the cluster's ID, the same on all its nodes.
func (n *Node) ClusterID() string { return n.member.Load().id.clusterID() }

// Manager implements Cluster.
func (n *Node) Manager() bool {
	m := n.member.Load()
	return m.raft != nil && m.caughtUp.Load()
}

// Leader implements Cluster.
func (n *Node) Leader() bool {
	m := n.member.Load()
	return m.raft != nil && m.raft.Leads()
}

// Store implements Cluster.
func (n *Node) Store() *store.MemoryStore { return n.member.Load().store }

// ServiceNetworks tells whether the store has a service of that name, and the
// networks that its name is in.
func (n *Node) ServiceNetworks(name string) (ids []string, exists bool) {
	var err error
	n.Store().View(func(tx store.ReadTx) {
		var found []*api.Service
		if found, err = store.FindServices(tx, store.ByName(name)); err != nil || len(found) == 0 {
			return
		}
		exists = true
		ids = executor.NamedIn(&found[0].Spec, func(id string) *api.Network { return store.GetNetwork(tx, id) })
	})
	return ids, exists
}

// Ended implements Cluster.
func (n *Node) Ended() <-chan struct{} { return n.member.Load().ended }

// Control implements Cluster.
func (n *Node) Control() api.ControlClient { return api.NewControlClient(n.member.Load().conn) }

// Logs implements Cluster.
func (n *Node) Logs() api.LogsClient { return api.NewLogsClient(n.member.Load().conn) }

// AdvertiseAddr implements Cluster.
func (n *Node) AdvertiseAddr() string { return n.member.Load().advertise }

// ManagerStatus is a node's part in the consensus; nil if it has none, or if
// this node is no manager.
func (n *Node) ManagerStatus(nodeID string) *api.ManagerStatus {
	m := n.member.Load()
	if m.members == nil {
		return nil
	}
	return m.members.status(nodeID)
}

// Managers are the managers that this node knows, itself among them if it is one.
func (n *Node) Managers() []api.Peer {
	m := n.member.Load()
	if m.members == nil {
		return m.remember.managers()
	}
	return m.members.list()
}

// Loaded implements Cluster.
func (n *Node) Loaded(ctx context.Context) error {
	m := n.member.Load()
	select {
	case <-m.loaded:
		return nil
	default:
	}
	select {
	case <-m.loaded:
		return nil
	case <-ctx.Done():
		return m.leaderless()
	}
}

// Ready implements Cluster.
func (n *Node) Ready(ctx context.Context) error { return n.member.Load().ready(ctx) }

// Verdict is what this node knows of the health of a task on another node; ""
// of one that is here, or that there is not.
func (n *Node) Verdict(taskID string) mesh.Verdict { return n.member.Load().observer.Verdict(taskID) }
