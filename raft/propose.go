// SPDX-License-Identifier: BSD-2-Clause

package raft

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"time"

	"github.com/containerd/errdefs"
	hraft "github.com/hashicorp/raft"
	"github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/manager/state"
)

var _ state.Proposer = (*Node)(nil)

// ProposeValue implements state.Proposer. It returns nil after commit was
// called, and otherwise a *WriteError (or, for what cannot be encoded, another
// error); then commit was not called and never will be.
func (n *Node) ProposeValue(ctx context.Context, actions []api.StoreAction, commit func()) error {
	p, err := n.fsm.register(requestID(), commit)
	if trouble := n.disk.Trouble(); err != nil && trouble != nil {
		return &WriteError{Reason: ErrStorage, Cause: trouble}
	}
	if err != nil {
		return err
	}
	entry, err := newEntry(p.id, p.base, actions)
	if err != nil {
		n.fsm.giveUp(p, false)
		return err
	}
	future := n.raft.ApplyLog(entry, n.cfg.ProposeTimeout)
	settled := make(chan error, 1)
	go func() { settled <- future.Error() }()
	timeout := time.NewTimer(n.cfg.ProposeTimeout)
	defer timeout.Stop()

	mayApply := true
	select {
	case err := <-p.done:
		return err
	case err = <-settled:
		if err == nil {
			return <-p.done // Apply has returned
		}
		mayApply = !refused(err)
	case <-timeout.C:
		err = context.DeadlineExceeded
	case <-ctx.Done():
		err = ctx.Err()
	case <-n.closed:
		err = ErrClosed
	}
	if !n.fsm.giveUp(p, mayApply) {
		return <-p.done
	}
	select {
	case n.faltered <- struct{}{}:
	default: // known
	}
	reason := ErrUnknown
	if !mayApply {
		reason = ErrNotLeader
	}
	return &WriteError{Reason: reason, Cause: err}
}

// refused tells raft's errors that mean that the entry is in nobody's log.
func refused(err error) bool {
	for _, e := range []error{
		hraft.ErrNotLeader, hraft.ErrEnqueueTimeout, hraft.ErrLeadershipTransferInProgress, hraft.ErrAbortedByRestore,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// requestID is random, so that no node mistakes another's entry, or one of
// its own earlier life, for the one it waits for.
func requestID() uint64 {
	var b [8]byte
	rand.Read(b[:]) // never fails
	return binary.LittleEndian.Uint64(b[:])
}

// GetVersion implements state.Proposer: the index of the last command applied.
// The store stamps objects with it, so it grows with every transaction.
func (n *Node) GetVersion() *api.Version {
	return &api.Version{Index: n.fsm.version()}
}

// ChangesBetween implements state.Proposer. Past changes are not kept in a
// form that could be replayed; the only caller is store.WatchFrom with a
// version, whose callers resynchronize on an error.
func (n *Node) ChangesBetween(from, to api.Version) ([]state.Change, error) {
	return nil, errdefs.ErrNotImplemented
}
