// SPDX-License-Identifier: BSD-2-Clause

package raft

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"sync"
	"time"

	hraft "github.com/hashicorp/raft"
)

// Member is one server of the cluster's configuration.
type Member struct {
	ID     string // the node's ID
	Addr   string
	Leader bool
	Voter  bool
	// Unreachable is what the leader knows: the member misses its heartbeats.
	Unreachable bool
}

// Members returns the configuration as this node knows it; nil while it knows none.
func (n *Node) Members() []Member {
	f := n.raft.GetConfiguration()
	if f.Error() != nil {
		return nil
	}
	_, leader := n.raft.LeaderWithID()
	var out []Member
	for _, s := range f.Configuration().Servers {
		out = append(out, Member{
			ID: string(s.ID), Addr: string(s.Address),
			Leader: s.ID == leader, Voter: s.Suffrage == hraft.Voter, Unreachable: n.silent.has(s.ID),
		})
	}
	return out
}

// MemberAt is the ID of the server with that address; "" if there is none.
func (n *Node) MemberAt(addr string) string {
	for _, m := range n.Members() {
		if m.Addr == addr {
			return m.ID
		}
	}
	return ""
}

// Empty tells whether this node held nothing when it was opened and made no
// cluster of its own: it waits for a leader to fill it.
func (n *Node) Empty() bool { return n.empty }

// NumericID is the number that SwarmKit's API calls a member's raft ID, for a
// server ID.
func NumericID(id string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(id))
	return h.Sum64()
}

// Leads tells whether this node leads and accepts writes.
func (n *Node) Leads() bool { return n.fsm.leads() }

// Trouble is what keeps this node from leading, if it is its own state
// directory; nil otherwise.
func (n *Node) Trouble() error {
	if err := n.disk.Trouble(); err != nil {
		return &WriteError{Reason: ErrStorage, Cause: err}
	}
	return nil
}

// Leader returns the leader's ID and address; both are "" when none is known. A
// node that led when its disk began to stand still leads no more and hears of
// nobody else.
func (n *Node) Leader() (id, addr string) {
	a, i := n.raft.LeaderWithID()
	if string(i) == n.cfg.ID && n.disk.Still() {
		return "", ""
	}
	return string(i), string(a)
}

// Changed is nudged after the leader or the members changed; one nudge may
// stand for several changes.
func (n *Node) Changed() <-chan struct{} { return n.changed }

func (n *Node) nudge() {
	select {
	case n.changed <- struct{}{}:
	default:
	}
}

// observe turns raft's observations into nudges until Close.
func (n *Node) observe() {
	n.observer = hraft.NewObserver(n.observed, false, func(o *hraft.Observation) bool {
		switch o.Data.(type) {
		case hraft.PeerObservation, hraft.LeaderObservation, hraft.FailedHeartbeatObservation, hraft.ResumedHeartbeatObservation:
			return true
		}
		return false
	})
	n.raft.RegisterObserver(n.observer)
	go func() {
		for {
			select {
			case o := <-n.observed:
				n.silent.note(o.Data)
				n.nudge()
			case <-n.closed:
				return
			}
		}
	}()
}

// answered notes that a member answered a heartbeat. raft observes that of the
// first answer after a failure only, and where it sent to the member anew in
// between, as after it left and came back, not even that: a failure of before
// would stay for good.
func (n *Node) answered(id hraft.ServerID) {
	if n.silent.answered(id) {
		n.nudge()
	}
}

// silent is the members that the leader gets no answer from.
type silent struct {
	mu  sync.Mutex
	ids map[hraft.ServerID]bool
}

func (s *silent) has(id hraft.ServerID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ids[id]
}

// answered tells whether the member was silent until now.
func (s *silent) answered(id hraft.ServerID) (was bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	was = s.ids[id]
	delete(s.ids, id)
	return was
}

// note takes in one of raft's observations. A new leader starts with nobody
// silent.
func (s *silent) note(data any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch o := data.(type) {
	case hraft.FailedHeartbeatObservation:
		if s.ids == nil {
			s.ids = make(map[hraft.ServerID]bool)
		}
		s.ids[o.PeerID] = true
	case hraft.ResumedHeartbeatObservation:
		delete(s.ids, o.PeerID)
	case hraft.PeerObservation:
		if o.Removed {
			delete(s.ids, o.Peer.ID)
		}
	case hraft.LeaderObservation:
		clear(s.ids)
	}
}

// AddMember makes a server a voter, or gives one that is a voter its new
// address. Only the leader can; elsewhere it is ErrNotLeader.
func (n *Node) AddMember(ctx context.Context, id, addr string) error {
	for _, m := range n.Members() {
		if m.ID == id && m.Addr == addr && m.Voter {
			return nil
		}
		if m.ID != id && m.Addr == addr {
			return fmt.Errorf("address %s is that of manager %s", addr, m.ID)
		}
	}
	return n.membership("add", id, n.raft.AddVoter(hraft.ServerID(id), hraft.ServerAddress(addr), 0, within(ctx)))
}

// RemoveMember takes a server out of the consensus; one that is not in it is
// no error. Only the leader can. A leader that removes itself leads no more.
func (n *Node) RemoveMember(ctx context.Context, id string) error {
	return n.membership("remove", id, n.raft.RemoveServer(hraft.ServerID(id), 0, within(ctx)))
}

// StepDown hands the leadership to another voter that is up to date.
func (n *Node) StepDown() error {
	return n.membership("step down from", n.cfg.ID, n.raft.LeadershipTransfer())
}

// membership waits for a change of the members. The change itself is bounded
// by raft's own timeouts.
func (n *Node) membership(what, id string, f hraft.Future) error {
	err := f.Error()
	switch {
	case err == nil:
		n.nudge()
		return nil
	case errors.Is(err, hraft.ErrNotLeader), errors.Is(err, hraft.ErrRaftShutdown):
		return &WriteError{Reason: ErrNotLeader, Cause: err}
	case errors.Is(err, hraft.ErrLeadershipLost):
		return &WriteError{Reason: ErrUnknown, Cause: err}
	}
	return fmt.Errorf("%s manager %s: %w", what, id, err)
}

// within is the time left of ctx, at most as long as a write may take.
func within(ctx context.Context) time.Duration {
	limit := DefaultProposeTimeout
	if deadline, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(deadline))
	}
	return max(limit, time.Millisecond)
}
