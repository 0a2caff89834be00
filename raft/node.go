// SPDX-License-Identifier: BSD-2-Clause

package raft

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	hraft "github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"github.com/moby/swarmkit/v2/manager/state/store"
)

// Timing is how fast a cluster notices that its leader is gone.
type Timing struct {
	Heartbeat time.Duration // silence after which a follower asks for an election
	Election  time.Duration // length of one election; at least Heartbeat
	Lease     time.Duration // silence of a quorum after which a leader resigns; at most Heartbeat
}

var (
	// Solo is for a cluster of one: nobody to wait for, so it leads 60 to
	// 120 ms after its start.
	Solo = Timing{Heartbeat: 60 * time.Millisecond, Election: 60 * time.Millisecond, Lease: 60 * time.Millisecond}
	// Cluster is for several nodes in one site: hashicorp/raft's defaults.
	Cluster = Timing{Heartbeat: time.Second, Election: time.Second, Lease: 500 * time.Millisecond}
)

// Defaults of Config.
const (
	// DefaultProposeTimeout is below the 30 s after which SwarmKit calls its
	// store wedged, and far above any commit of a healthy disk.
	DefaultProposeTimeout = 10 * time.Second
	// A snapshot every 4096 entries, 1024 of them kept for followers that lag:
	// with entries of a few KiB the log stays well below 64 MiB.
	DefaultSnapshotThreshold = 4096
	DefaultTrailingLogs      = 1024
	// DefaultSnapshotInterval is how often the threshold is looked at.
	DefaultSnapshotInterval = 5 * time.Second

	// snapshotsKept includes the previous generation.
	snapshotsKept = 2
	// generation is the age at which changes go into a snapshot though they
	// are few: the first one soon after a start.
	generation      = time.Hour
	firstGeneration = time.Minute
	// shutdownTimeout bounds hashicorp/raft's own shutdown.
	shutdownTimeout = time.Second
	addressTimeout  = 5 * time.Second
)

// Config says where a Node lives and how it behaves. Zero values take the
// defaults above.
type Config struct {
	Dir  string // raft.db and snapshots/ are in it; made if missing
	ID   string // random, kept by the caller in the state directory; never an address or a name
	Addr string // host:port that other members reach this one at

	// Stream carries raft between nodes. Without one this node talks to
	// nobody, which is all that a cluster of one needs.
	Stream hraft.StreamLayer
	// Bootstrap makes a new cluster of this node alone if Dir is empty. If it
	// is not, there is nothing to do, and that is no error.
	Bootstrap bool
	// ForceNewCluster makes this node the only member of a cluster with the
	// stored content. A damaged log is moved aside and the content is that of
	// the newest snapshot.
	ForceNewCluster bool

	Timing            Timing
	ProposeTimeout    time.Duration
	SnapshotThreshold uint64
	TrailingLogs      uint64
	SnapshotInterval  time.Duration
	Logger            *slog.Logger

	transport hraft.Transport // tests
}

func (c *Config) defaults() {
	if c.Timing == (Timing{}) {
		c.Timing = Solo
	}
	if c.ProposeTimeout == 0 {
		c.ProposeTimeout = DefaultProposeTimeout
	}
	if c.SnapshotThreshold == 0 {
		c.SnapshotThreshold = DefaultSnapshotThreshold
	}
	if c.TrailingLogs == 0 {
		c.TrailingLogs = DefaultTrailingLogs
	}
	if c.SnapshotInterval == 0 {
		c.SnapshotInterval = DefaultSnapshotInterval
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
}

// Node is this node's member of the consensus, and the proposer of its store.
type Node struct {
	cfg       Config
	log       *slog.Logger
	fsm       *fsm
	store     *store.MemoryStore
	db        *raftboltdb.BoltStore
	disk      *patientStore
	snaps     hraft.SnapshotStore
	raft      *hraft.Raft
	leader    chan bool // every change of this node's leadership, in order
	transport hraft.Transport
	changed   chan struct{} // nudged when leader or members change
	observer  *hraft.Observer
	observed  chan hraft.Observation
	closed    chan struct{}
}

// HasState tells whether dir holds the state of a cluster, so that Open would
// go on with it. A database without an entry or snapshot is no state.
func HasState(dir string) (bool, error) {
	snaps, err := os.ReadDir(filepath.Join(dir, "snapshots"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return false, err
	}
	if len(snaps) > 0 {
		return true, nil
	}
	path := filepath.Join(dir, "raft.db")
	if st, err := os.Stat(path); errors.Is(err, os.ErrNotExist) || err == nil && st.Size() == 0 {
		return false, nil
	} else if err != nil {
		return false, err
	}
	db, err := openDB(path)
	if err != nil {
		return false, err
	}
	defer db.Close()
	last, err := db.LastIndex()
	return last > 0, err
}

// Open opens or makes the state in cfg.Dir and starts to take part in the
// consensus. Run must be called for this node ever to accept a write; Close
// must be called in any case.
func Open(cfg Config) (_ *Node, err error) {
	cfg.defaults()
	if cfg.ID == "" || cfg.Addr == "" || cfg.Dir == "" {
		return nil, errors.New("raft: Dir, ID and Addr are required")
	}
	n := &Node{
		cfg:      cfg,
		log:      cfg.Logger,
		leader:   make(chan bool, 64),
		changed:  make(chan struct{}, 1),
		observed: make(chan hraft.Observation, 64),
		closed:   make(chan struct{}),
	}
	n.fsm = newFSM(n.log)
	n.store = store.NewMemoryStore(n)
	n.fsm.store = n.store
	defer func() {
		if err != nil {
			n.release()
		}
	}()
	if err := n.openStores(); err != nil {
		return nil, err
	}
	if err := n.openTransport(); err != nil {
		return nil, err
	}
	if cfg.ForceNewCluster {
		if err := n.forceNewCluster(); err != nil {
			return nil, err
		}
	} else if cfg.Bootstrap {
		if err := n.bootstrap(); err != nil {
			return nil, err
		}
	}
	n.raft, err = n.newRaft()
	if err != nil {
		return nil, fmt.Errorf("start raft on %s: %w", cfg.Dir, err)
	}
	if err := n.checkMembership(); err != nil {
		return nil, err
	}
	n.observe()
	return n, nil
}

// newRaft is hraft.NewRaft with its panics on an unreadable configuration
// turned into errors.
func (n *Node) newRaft() (r *hraft.Raft, err error) {
	defer func() {
		if p := recover(); p != nil {
			r, err = nil, fmt.Errorf("%v", p)
		}
	}()
	return hraft.NewRaft(n.raftConfig(n.leader), n.fsm, n.logStore(), n.disk, n.snaps, n.transport)
}

func (n *Node) raftConfig(notify chan<- bool) *hraft.Config {
	c := hraft.DefaultConfig()
	c.LocalID = hraft.ServerID(n.cfg.ID)
	c.HeartbeatTimeout = n.cfg.Timing.Heartbeat
	c.ElectionTimeout = n.cfg.Timing.Election
	c.LeaderLeaseTimeout = n.cfg.Timing.Lease
	c.SnapshotThreshold = n.cfg.SnapshotThreshold
	c.TrailingLogs = n.cfg.TrailingLogs
	c.SnapshotInterval = n.cfg.SnapshotInterval
	c.Logger = newLogger(n.log)
	c.NotifyCh = notify
	return c
}

// logStore keeps the newest entries in memory: they are read back right after
// they were written.
func (n *Node) logStore() hraft.LogStore {
	cache, err := hraft.NewLogCache(128, n.disk)
	if err != nil {
		return n.disk // only a capacity below 1 is an error
	}
	return cache
}

func (n *Node) openStores() error {
	if err := os.MkdirAll(n.cfg.Dir, 0o700); err != nil {
		return err
	}
	path := filepath.Join(n.cfg.Dir, "raft.db")
	snaps, err := hraft.NewFileSnapshotStoreWithLogger(n.cfg.Dir, snapshotsKept, newLogger(n.log))
	if err != nil {
		return fmt.Errorf("open the snapshots in %s: %w", n.cfg.Dir, err)
	}
	n.snaps = snaps
	n.db, err = openDB(path)
	if damaged := new(DamagedError); errors.As(err, &damaged) && n.cfg.ForceNewCluster {
		if list, lerr := snaps.List(); lerr != nil || len(list) == 0 {
			return fmt.Errorf("%w; there is no snapshot to go on from", err)
		}
		aside, rerr := setAside(path, time.Now())
		if rerr != nil {
			return errors.Join(err, rerr)
		}
		n.log.Warn("damaged log moved aside; going on from the newest snapshot", "file", aside, "error", err)
		n.db, err = openDB(path)
	}
	if err != nil {
		return err
	}
	n.disk = newPatientStore(n.db, path, n.log)
	return n.alignTerm()
}

// alignTerm gives a new log beside old snapshots (the old log was lost or set
// aside) the snapshots' term: terms must never go back.
func (n *Node) alignTerm() error {
	list, err := n.snaps.List()
	if err != nil || len(list) == 0 {
		return err
	}
	term, err := n.db.GetUint64([]byte("CurrentTerm"))
	if err != nil && !errors.Is(err, raftboltdb.ErrKeyNotFound) {
		return err
	}
	if term >= list[0].Term {
		return nil
	}
	return n.db.SetUint64([]byte("CurrentTerm"), list[0].Term)
}

func (n *Node) openTransport() error {
	switch {
	case n.cfg.transport != nil:
		n.transport = n.cfg.transport
	case n.cfg.Stream != nil:
		n.transport = hraft.NewNetworkTransportWithConfig(&hraft.NetworkTransportConfig{
			Stream: n.cfg.Stream, MaxPool: 3, Timeout: 10 * time.Second, Logger: newLogger(n.log),
		})
	default:
		_, n.transport = hraft.NewInmemTransport(hraft.ServerAddress(n.cfg.Addr))
	}
	return nil
}

func (n *Node) solo() hraft.Configuration {
	return hraft.Configuration{Servers: []hraft.Server{{
		ID: hraft.ServerID(n.cfg.ID), Address: hraft.ServerAddress(n.cfg.Addr), Suffrage: hraft.Voter,
	}}}
}

// bootstrap writes the first configuration, once.
func (n *Node) bootstrap() error {
	last, err := n.db.LastIndex()
	if err != nil {
		return err
	}
	list, err := n.snaps.List()
	if err != nil {
		return err
	}
	if last > 0 || len(list) > 0 {
		return nil
	}
	// A crash during an earlier bootstrap may have left a term without a
	// configuration, which would be a follower of nobody for ever.
	if err := n.db.SetUint64([]byte("CurrentTerm"), 0); err != nil {
		return fmt.Errorf("write %s: %w", n.cfg.Dir, err)
	}
	err = hraft.BootstrapCluster(n.raftConfig(nil), n.db, n.db, n.snaps, n.transport, n.solo())
	if err != nil && !errors.Is(err, hraft.ErrCantBootstrap) {
		return fmt.Errorf("make a new cluster in %s: %w", n.cfg.Dir, err)
	}
	return nil
}

// forceNewCluster rewrites the configuration to this node alone, on a
// throw-away store: hashicorp/raft's recovery leaves its FSM in an undefined
// state.
func (n *Node) forceNewCluster() error {
	scratch := newFSM(n.log)
	scratch.store = store.NewMemoryStore(nil)
	defer scratch.store.Close()
	if err := hraft.RecoverCluster(n.raftConfig(nil), scratch, n.db, n.db, n.snaps, n.transport, n.solo()); err != nil {
		return fmt.Errorf("force a new cluster in %s: %w", n.cfg.Dir, err)
	}
	return nil
}

// checkMembership refuses a state that is somebody else's.
func (n *Node) checkMembership() error {
	f := n.raft.GetConfiguration()
	if err := f.Error(); err != nil {
		return err
	}
	servers := f.Configuration().Servers
	for _, s := range servers {
		if string(s.ID) == n.cfg.ID {
			return nil
		}
	}
	if len(servers) == 0 {
		return nil // waits to be added by a leader
	}
	return fmt.Errorf("%w: %s holds the cluster of server %s, this is %s; "+
		"start once with --force-new-cluster to make it this server's own",
		ErrNotMember, n.cfg.Dir, servers[0].ID, n.cfg.ID)
}

// Store is the replicated store.
func (n *Node) Store() *store.MemoryStore { return n.store }

// Run follows this node's leadership until ctx is done. While this node leads
// and has applied what earlier leaders left, lead runs; its context ends with
// the leadership, and Run waits for it to return. An error of lead ends Run.
func (n *Node) Run(ctx context.Context, lead func(context.Context) error) error {
	stop := func() error { return nil }
	defer func() { stop() }()
	failed := make(chan error, 1)
	snapshot := time.NewTimer(firstGeneration)
	defer snapshot.Stop()
	var saved uint64
	for {
		select {
		case <-ctx.Done():
			return stop()
		case err := <-failed:
			return err
		case <-snapshot.C:
			snapshot.Reset(generation)
			if v := n.fsm.version(); v != saved {
				saved = v
				go n.snapshot()
			}
		case leads := <-n.leader:
			if !leads {
				n.fsm.lead(false)
			}
			err := stop()
			stop = func() error { return nil }
			if err != nil {
				return err
			}
			if leads && n.takeOver() == nil {
				stop = n.startLeading(ctx, lead, failed)
			}
			n.nudge()
		}
	}
}

// takeOver waits until everything of earlier leaders is applied and opens the
// door for proposals.
func (n *Node) takeOver() error {
	if err := n.raft.Barrier(0).Error(); err != nil {
		return err // leadership is gone again; its end is in n.leader
	}
	n.fsm.lead(true)
	if err := n.fixAddress(); err != nil {
		n.log.Warn("own address could not be changed in the cluster's configuration", "address", n.cfg.Addr, "error", err)
	}
	n.log.Info("leading the cluster", "node_id", n.cfg.ID)
	return nil
}

// startLeading runs lead; the function it returns ends it and waits for it.
func (n *Node) startLeading(ctx context.Context, lead func(context.Context) error, failed chan<- error) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() {
		err := lead(ctx)
		if err != nil && ctx.Err() == nil {
			failed <- err
		}
		done <- err
	}()
	return sync.OnceValue(func() error {
		cancel()
		err := <-done
		// The door stays open until the leader's parts have ended, so that
		// what they still have to write can be written on a normal stop.
		n.fsm.lead(false)
		if errors.Is(err, context.Canceled) {
			return nil
		}
		return err
	})
}

// fixAddress makes the configuration name the address this node has now.
func (n *Node) fixAddress() error {
	f := n.raft.GetConfiguration()
	if err := f.Error(); err != nil {
		return err
	}
	for _, s := range f.Configuration().Servers {
		if string(s.ID) == n.cfg.ID && string(s.Address) != n.cfg.Addr {
			n.log.Info("own address changed", "from", s.Address, "to", n.cfg.Addr)
			return n.raft.AddVoter(s.ID, hraft.ServerAddress(n.cfg.Addr), 0, addressTimeout).Error()
		}
	}
	return nil
}

func (n *Node) snapshot() {
	err := n.raft.Snapshot().Error()
	if err != nil && !errors.Is(err, hraft.ErrNothingNewToSnapshot) && !errors.Is(err, hraft.ErrRaftShutdown) {
		n.log.Warn("no snapshot of the cluster store was taken", "error", err)
	}
}

// Close ends this node's part in the consensus. Everything acknowledged is on
// disk already.
func (n *Node) Close() error {
	select {
	case <-n.closed:
		return nil
	default:
		close(n.closed)
	}
	n.fsm.lead(false)
	return n.release()
}

func (n *Node) release() error {
	var err error
	if n.disk != nil {
		n.disk.close()
	}
	if n.raft != nil {
		if n.observer != nil {
			n.raft.DeregisterObserver(n.observer)
		}
		done := make(chan error, 1)
		go func() { done <- n.raft.Shutdown().Error() }()
		t := time.NewTimer(shutdownTimeout)
		defer t.Stop()
		select {
		case err = <-done:
		case <-t.C:
			// The database stays open rather than being closed under a
			// goroutine that uses it.
			return fmt.Errorf("raft did not end within %v", shutdownTimeout)
		}
	}
	if c, ok := n.transport.(hraft.WithClose); ok && n.cfg.transport == nil {
		err = errors.Join(err, c.Close())
	}
	if n.db != nil {
		err = errors.Join(err, n.db.Close())
	}
	n.store.Close()
	return err
}
