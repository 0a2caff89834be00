// SPDX-License-Identifier: BSD-2-Clause

package raft

import (
	"errors"
	"fmt"
	"io"
	"log/slog"

	hraft "github.com/hashicorp/raft"
	"github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/manager/state/store"
)

// Position is a place in a cluster's log.
type Position struct{ Index, Term uint64 }

// Backup writes the store as it is now, and tells where in the log that is.
// It needs no leader.
func (n *Node) Backup(w io.Writer) (Position, error) {
	var all *api.StoreSnapshot
	var err error
	n.store.View(func(tx store.ReadTx) { all, err = n.store.Save(tx) })
	if err != nil {
		return Position{}, fmt.Errorf("read the store: %w", err)
	}
	// After the view: nothing in it is newer.
	at := Position{Index: n.raft.LastIndex(), Term: n.raft.CurrentTerm()}
	return at, writeSnapshot(w, at.Index, all)
}

// Restore makes in dir, which is not there yet, the state of a cluster of the
// one server that holds what Backup wrote. What is to be different in it,
// change changes. A snapshot that is not whole is an error.
func Restore(dir string, self Member, at Position, snapshot io.Reader, log *slog.Logger, change func(store.Tx) error) (err error) {
	_, all, err := readSnapshot(snapshot)
	if err != nil {
		return err
	}
	s := store.NewMemoryStore(nil)
	defer s.Close()
	if err := errors.Join(s.Restore(all), s.Update(change)); err != nil {
		return fmt.Errorf("take in the stored state: %w", err)
	}
	s.View(func(tx store.ReadTx) { all, err = s.Save(tx) })
	if err != nil {
		return err
	}
	n := &Node{cfg: Config{Dir: dir, ID: self.ID, Addr: self.Addr, Logger: log}, log: log}
	if err := errors.Join(n.openStores(), n.openTransport()); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.db.Close()) }()
	if err := n.db.SetUint64([]byte("CurrentTerm"), at.Term); err != nil {
		return err
	}
	sink, err := n.snaps.Create(hraft.SnapshotVersionMax, at.Index, at.Term, n.solo(), 1, n.transport)
	if err != nil {
		return err
	}
	if err := writeSnapshot(sink, at.Index, all); err != nil {
		return errors.Join(err, sink.Cancel())
	}
	return sink.Close()
}

// changed is an fsm whose snapshot is taken after a change of its store.
type changed struct {
	*fsm
	change func(store.Tx) error
}

// Snapshot implements hraft.FSM.
func (c changed) Snapshot() (hraft.FSMSnapshot, error) {
	if err := c.store.Update(c.change); err != nil {
		return nil, err
	}
	return c.fsm.Snapshot()
}
