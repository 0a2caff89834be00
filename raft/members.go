// SPDX-License-Identifier: BSD-2-Clause

package raft

import (
	"hash/fnv"

	hraft "github.com/hashicorp/raft"
)

// Member is one server of the cluster's configuration.
type Member struct {
	ID     string // the node's ID
	Addr   string
	Leader bool
	Voter  bool
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
			Leader: s.ID == leader, Voter: s.Suffrage == hraft.Voter,
		})
	}
	return out
}

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

// Leader returns the leader's ID and address; both are "" when none is known.
func (n *Node) Leader() (id, addr string) {
	a, i := n.raft.LeaderWithID()
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
		case hraft.PeerObservation, hraft.LeaderObservation:
			return true
		}
		return false
	})
	n.raft.RegisterObserver(n.observer)
	go func() {
		for {
			select {
			case <-n.observed:
				n.nudge()
			case <-n.closed:
				return
			}
		}
	}()
}
