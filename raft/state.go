// SPDX-License-Identifier: BSD-2-Clause

package raft

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	hraft "github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"github.com/moby/swarmkit/v2/manager/state/store"
)

// HasState tells whether dir holds the state of a cluster, so that Open would
// go on with it. A database without an entry or snapshot is no state.
//
// A database that is missing or empty is a DamagedError where there was one:
// beside snapshots, or in a directory of a node that used says was part of a
// cluster before. Without the directory there is no state, whatever used says.
func HasState(dir string, used bool) (bool, error) {
	snaps, err := os.ReadDir(filepath.Join(dir, "snapshots"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return false, err
	}
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	path := filepath.Join(dir, "raft.db")
	if err := checkPresent(path); err != nil {
		if errors.As(err, new(*DamagedError)) && !used && len(snaps) == 0 {
			err = nil
		}
		return false, err
	}
	if len(snaps) > 0 {
		return true, nil
	}
	db, err := openDB(path)
	if err != nil {
		return false, err
	}
	defer db.Close()
	last, err := db.LastIndex()
	return last > 0, err
}

// openStores opens the log and the snapshots.
func (n *Node) openStores() error {
	if err := os.MkdirAll(n.cfg.Dir, 0o700); err != nil {
		return err
	}
	path := filepath.Join(n.cfg.Dir, "raft.db")
	if err := dropUnfinished(filepath.Join(n.cfg.Dir, "snapshots")); err != nil {
		return err
	}
	snaps, err := hraft.NewFileSnapshotStoreWithLogger(n.cfg.Dir, snapshotsKept, newLogger(n.log))
	if err != nil {
		return fmt.Errorf("open the snapshots in %s: %w", n.cfg.Dir, err)
	}
	n.snaps = snaps
	list, lerr := snaps.List()
	if n.cfg.ForceNewCluster || len(list) > 0 {
		err = checkPresent(path)
	}
	if err == nil {
		n.db, err = openDB(path)
	}
	if damaged := new(DamagedError); errors.As(err, &damaged) && n.cfg.ForceNewCluster {
		if lerr != nil || len(list) == 0 {
			return errors.Join(err, lerr) // the advice says that there is none
		}
		aside, rerr := setAside(path, time.Now())
		if rerr != nil && !errors.Is(rerr, os.ErrNotExist) {
			return errors.Join(err, rerr)
		}
		n.log.Warn("the log is lost; going on from the newest snapshot", "kept", cmp.Or(aside, "nothing"), "error", err)
		n.db, err = openDB(path)
	}
	if err != nil {
		return err
	}
	var disk diskStore = n.db
	if n.cfg.disk != nil {
		disk = n.cfg.disk(disk)
	}
	n.disk = newPatientStore(disk, path, n.cfg.ProposeTimeout, n.log)
	return n.alignTerm()
}

// dropUnfinished removes the snapshots that a daemon which was killed did not
// finish. hashicorp/raft passes them over and leaves them there.
func dropUnfinished(dir string) error {
	unfinished, err := filepath.Glob(filepath.Join(dir, "*.tmp"))
	for _, path := range unfinished {
		err = errors.Join(err, os.RemoveAll(path))
	}
	return err
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
		addr, alone := hraft.NewInmemTransport(hraft.ServerAddress(n.cfg.Addr))
		alone.Connect(addr, alone) // it can be told something by itself only
		n.transport = alone
	}
	return nil
}

func (n *Node) solo() hraft.Configuration {
	return hraft.Configuration{Servers: []hraft.Server{{
		ID: hraft.ServerID(n.cfg.ID), Address: hraft.ServerAddress(n.cfg.Addr), Suffrage: hraft.Voter,
	}}}
}

// holdsNothing tells whether there is neither an entry nor a snapshot.
func (n *Node) holdsNothing() (bool, error) {
	last, err := n.db.LastIndex()
	if err != nil || last > 0 {
		return false, err
	}
	list, err := n.snaps.List()
	return len(list) == 0, err
}

// bootstrap writes the first configuration, once.
func (n *Node) bootstrap() error {
	if !n.empty {
		return nil
	}
	// A crash during an earlier bootstrap may have left a term without a
	// configuration, which would be a follower of nobody for ever.
	if err := n.db.SetUint64([]byte("CurrentTerm"), 0); err != nil {
		return fmt.Errorf("write %s: %w", n.cfg.Dir, err)
	}
	err := hraft.BootstrapCluster(n.raftConfig(nil), n.db, n.db, n.snaps, n.transport, n.solo())
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
	var machine hraft.FSM = scratch
	if n.cfg.Forced != nil {
		machine = changed{scratch, n.cfg.Forced}
	}
	if err := hraft.RecoverCluster(n.raftConfig(nil), machine, n.db, n.db, n.snaps, n.transport, n.solo()); err != nil {
		return fmt.Errorf("force a new cluster in %s: %w", n.cfg.Dir, err)
	}
	return nil
}

// checkMembership refuses a state that is somebody else's. A node that joined
// others may have ended right after they took it out of the consensus, or while
// they did: it takes no part, and others can say what it is now.
func (n *Node) checkMembership() error {
	if !n.cfg.Bootstrap && !n.cfg.ForceNewCluster {
		return nil
	}
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
