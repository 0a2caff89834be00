// SPDX-License-Identifier: BSD-2-Clause

package raft

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	hraft "github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"github.com/moby/swarmkit/v2/manager/state/store"
)

// How fast a cluster notices that its leader is gone: hashicorp/raft's own
// values for several nodes in one site, but for the lease, which is half a
// second there and which answers that take as long would use up. Nobody else can
// lead before the heartbeat's time is over either. A cluster of one waits for
// nobody: see campaign.
const (
	heartbeat = time.Second // silence after which a follower asks for an election
	election  = time.Second // length of one election
	lease     = time.Second // silence of a quorum after which a leader resigns
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
	DefaultSnapshotInterval = time.Second

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
	// is not, there is nothing to do, and that is no error; but it has to be
	// a cluster that this node is in.
	Bootstrap bool
	// ForceNewCluster makes this node the only member of a cluster with the
	// stored content. A damaged log is moved aside and the content is that of
	// the newest snapshot. Forced, if given, then changes what is to be
	// different in a cluster of this node alone.
	ForceNewCluster bool
	Forced          func(store.Tx) error

	ProposeTimeout    time.Duration
	SnapshotThreshold uint64
	TrailingLogs      uint64
	SnapshotInterval  time.Duration
	Logger            *slog.Logger

	transport hraft.Transport           // tests
	disk      func(diskStore) diskStore // tests: another one in its place
}

func (c *Config) defaults() {
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
	faltered  chan struct{} // a write failed that this node, which leads, could not make in time
	closed    chan struct{}
	silent    silent
	empty     bool
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
		faltered: make(chan struct{}, 1),
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
	if n.empty, err = n.holdsNothing(); err != nil {
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
		n.empty = false
	}
	n.raft, err = n.newRaft()
	if err != nil {
		return nil, fmt.Errorf("start raft on %s: %w", cfg.Dir, err)
	}
	if err := n.checkMembership(); err != nil {
		return nil, err
	}
	n.observe()
	n.campaign()
	return n, nil
}

// campaign makes the only voter of a cluster stand for election at once, as
// if the leader before it had asked it to: there is nobody whose heartbeat it
// could miss. Where that fails it stands after the heartbeat's time.
func (n *Node) campaign() {
	voters := 0
	for _, m := range n.Members() {
		if m.Voter && m.ID != n.cfg.ID {
			return
		}
		if m.Voter {
			voters++
		}
	}
	if voters == 0 {
		return
	}
	req := &hraft.TimeoutNowRequest{RPCHeader: hraft.RPCHeader{ProtocolVersion: hraft.ProtocolVersionMax}}
	err := n.transport.TimeoutNow(hraft.ServerID(n.cfg.ID), n.transport.LocalAddr(), req, &hraft.TimeoutNowResponse{})
	if err != nil {
		n.log.Warn("the only manager could not stand for election at once", "error", err)
	}
}

// newRaft is hraft.NewRaft with its panics on an unreadable configuration
// turned into errors.
func (n *Node) newRaft() (r *hraft.Raft, err error) {
	defer func() {
		if p := recover(); p != nil {
			r, err = nil, fmt.Errorf("%v", p)
		}
	}()
	return hraft.NewRaft(n.raftConfig(n.leader), n.fsm, n.logStore(), n.disk, n.snaps, newReturning(n.transport, n.disk.Still, n.answered, n.closed))
}

func (n *Node) raftConfig(notify chan<- bool) *hraft.Config {
	c := hraft.DefaultConfig()
	c.LocalID = hraft.ServerID(n.cfg.ID)
	c.HeartbeatTimeout = heartbeat
	c.ElectionTimeout = election
	c.LeaderLeaseTimeout = lease
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

// Store is the replicated store.
func (n *Node) Store() *store.MemoryStore { return n.store }

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
		ended, done := n.raft.Shutdown(), make(chan error, 1)
		// It ends only after its calls, and a member that is away lets one
		// wait for seconds.
		err = n.hangUp()
		go func() { done <- ended.Error() }()
		t := time.NewTimer(shutdownTimeout)
		defer t.Stop()
		select {
		case e := <-done:
			err = errors.Join(err, e)
		case <-t.C:
			// The database stays open rather than being closed under a
			// goroutine that uses it.
			return errors.Join(err, fmt.Errorf("raft did not end within %v", shutdownTimeout))
		}
	} else {
		err = n.hangUp()
	}
	if n.db != nil {
		err = errors.Join(err, n.db.Close())
	}
	n.store.Close()
	return err
}

// hangUp ends the connections to other members.
func (n *Node) hangUp() error {
	if c, ok := n.transport.(hraft.WithClose); ok && n.cfg.transport == nil {
		return c.Close()
	}
	return nil
}
