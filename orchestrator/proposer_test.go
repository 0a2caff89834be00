// SPDX-License-Identifier: BSD-2-Clause

package orchestrator

import (
	"context"
	"sync"
	"time"

	"github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/manager/state"
	"github.com/moby/swarmkit/v2/manager/state/store"

	"satld/raft"
)

// proposer is a log of one: it commits at once, or fails as raft does.
type proposer struct {
	mu      sync.Mutex
	index   uint64
	store   *store.MemoryStore
	pending int // writes whose outcome is not known yet
	// fault decides over a proposal: 0 commits, 1 refuses, 2 commits later.
	fault  func() int
	later  time.Duration
	commit func() // called after each commit
}

func (p *proposer) ProposeValue(_ context.Context, actions []api.StoreAction, commit func()) error {
	p.mu.Lock()
	fault := 0
	if p.fault != nil {
		fault = p.fault()
	}
	switch {
	case p.pending > 0:
		p.mu.Unlock()
		return &raft.WriteError{Reason: raft.ErrUndecided}
	case fault == 1:
		p.mu.Unlock()
		return &raft.WriteError{Reason: raft.ErrNotLeader}
	case fault == 2:
		p.pending++
		p.mu.Unlock()
		go func() {
			time.Sleep(p.later)
			if err := p.store.ApplyStoreActions(actions); err != nil {
				panic(err) // nothing else was written meanwhile
			}
			p.mu.Lock()
			p.index++
			p.pending--
			p.mu.Unlock()
			if p.commit != nil {
				p.commit()
			}
		}()
		return &raft.WriteError{Reason: raft.ErrUnknown}
	}
	p.index++
	p.mu.Unlock()
	commit()
	if p.commit != nil {
		p.commit()
	}
	return nil
}

func (p *proposer) GetVersion() *api.Version {
	p.mu.Lock()
	defer p.mu.Unlock()
	return &api.Version{Index: p.index}
}

func (p *proposer) ChangesBetween(api.Version, api.Version) ([]state.Change, error) {
	panic("not used")
}
