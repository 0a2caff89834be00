// SPDX-License-Identifier: BSD-2-Clause

package raft

import (
	"fmt"
	"log/slog"
	"sync"

	hraft "github.com/hashicorp/raft"
	"github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/manager/state/store"
)

// fsm applies the log to the store. All its decisions are made under mu, by
// request ID, so that an entry is either committed by its waiting proposer or
// applied to the store, and never both.
type fsm struct {
	store *store.MemoryStore
	log   *slog.Logger

	mu sync.Mutex
	// applied is the index of the last command applied (or found void), here
	// and, for the same prefix of the log, on every node.
	applied uint64
	// open admits proposals: this node leads and has applied all that earlier
	// leaders left.
	open bool
	// applying is true while another's entry waits for the store's update lock.
	applying bool
	waiting  map[uint64]*proposal
	// undecided are proposals given up whose entries may still be applied.
	undecided map[uint64]struct{}
}

// proposal is a transaction of this node's store that waits for its entry.
type proposal struct {
	id     uint64
	base   uint64
	commit func()
	done   chan error // receives exactly one value once nobody waits for the entry here
}

func newFSM(log *slog.Logger) *fsm {
	return &fsm{log: log, waiting: map[uint64]*proposal{}, undecided: map[uint64]struct{}{}}
}

// register admits a proposal, or says why it cannot be admitted now.
func (f *fsm) register(id uint64, commit func()) (*proposal, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case !f.open:
		return nil, &WriteError{Reason: ErrNotLeader}
	case f.applying:
		return nil, &WriteError{Reason: ErrStale}
	case len(f.undecided) > 0:
		return nil, &WriteError{Reason: ErrUndecided}
	}
	p := &proposal{id: id, base: f.applied, commit: commit, done: make(chan error, 1)}
	f.waiting[id] = p
	return p, nil
}

// giveUp stops waiting for a proposal. It returns false when its entry was
// met already: then p.done has, or is about to have, the outcome. mayApply
// says that the entry may be in somebody's log.
func (f *fsm) giveUp(p *proposal, mayApply bool) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, ok := f.waiting[p.id]; !ok {
		return false
	}
	delete(f.waiting, p.id)
	if mayApply {
		f.undecided[p.id] = struct{}{}
	}
	return true
}

// lead opens or closes the door for proposals. All entries of earlier leaders
// have been applied or overwritten when it opens, so none is undecided.
func (f *fsm) lead(open bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.open = open
	if open {
		clear(f.undecided)
	}
}

func (f *fsm) version() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.applied
}

func (f *fsm) leads() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.open
}

// Apply implements hraft.FSM. What it returns is for the log only; the
// proposer learns the outcome through its proposal.
func (f *fsm) Apply(l *hraft.Log) any {
	base, err := entryBase(l)
	var req api.InternalRaftRequest
	if err == nil {
		err = req.Unmarshal(l.Data)
	}
	if err != nil {
		// Every entry was checked when it was stored here or sent here over
		// TLS. To go on without one would make this node differ from the
		// others for good.
		panic(fmt.Errorf("raft entry %d cannot be read: %w", l.Index, err))
	}

	f.mu.Lock()
	delete(f.undecided, req.ID)
	fresh := base == f.applied
	p, mine := f.waiting[req.ID]
	delete(f.waiting, req.ID)
	if mine || !fresh {
		f.applied = l.Index
		f.mu.Unlock()
		if mine && fresh {
			p.commit()
			p.done <- nil
			return nil
		}
		if mine {
			p.done <- &WriteError{Reason: ErrStale}
		}
		return ErrStale
	}
	// Somebody else's. It takes the store's update lock, which whoever waits
	// here holds, with a transaction that has become stale.
	f.applying = true
	for id, p := range f.waiting {
		delete(f.waiting, id)
		f.undecided[id] = struct{}{}
		p.done <- &WriteError{Reason: ErrStale}
	}
	f.mu.Unlock()

	err = f.store.ApplyStoreActions(req.Action)
	if err != nil {
		f.log.Warn("a committed transaction contradicts the store and is void", "index", l.Index, "error", err)
	}

	f.mu.Lock()
	f.applied = l.Index
	f.applying = false
	f.mu.Unlock()
	return err
}
