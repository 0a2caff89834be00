// SPDX-License-Identifier: BSD-2-Clause

package cluster

import (
	"context"

	"github.com/docker/go-events"
	"github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/ca"
	"github.com/moby/swarmkit/v2/manager/dispatcher"
	"github.com/moby/swarmkit/v2/manager/raftselector"
	"github.com/moby/swarmkit/v2/manager/state/store"
	"github.com/moby/swarmkit/v2/watch"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"satld/raft"
)

// members is the consensus as SwarmKit's parts want to see it: the managers
// for the dispatcher to tell its agents, the leader for a follower to send
// its requests to.
type members struct {
	raft  *raft.Node
	sec   *ca.SecurityConfig
	conns *conns
	peers *watch.Queue // of []*api.Peer
}

var (
	_ dispatcher.Cluster        = (*members)(nil)
	_ raftselector.ConnProvider = (*members)(nil)
)

func newMembers(r *raft.Node, sec *ca.SecurityConfig, conns *conns) *members {
	return &members{raft: r, sec: sec, conns: conns, peers: watch.NewQueue()}
}

// MemoryStore implements dispatcher.Cluster.
func (m *members) MemoryStore() *store.MemoryStore { return m.raft.Store() }

// GetMemberlist implements dispatcher.Cluster.
func (m *members) GetMemberlist() map[uint64]*api.RaftMember {
	out := map[uint64]*api.RaftMember{}
	for _, s := range m.raft.Members() {
		id := raft.NumericID(s.ID)
		reach := api.RaftMemberStatus_REACHABLE
		if s.Unreachable {
			reach = api.RaftMemberStatus_UNREACHABLE
		}
		out[id] = &api.RaftMember{
			RaftID: id, NodeID: s.ID, Addr: s.Addr,
			Status: api.RaftMemberStatus{Leader: s.Leader, Reachability: reach},
		}
	}
	return out
}

// SubscribePeers implements dispatcher.Cluster.
func (m *members) SubscribePeers() (chan events.Event, func()) { return m.peers.Watch() }

// status is a node's part in the consensus; nil if it has none.
func (m *members) status(nodeID string) *api.ManagerStatus {
	member, ok := m.GetMemberlist()[raft.NumericID(nodeID)]
	if !ok || member.NodeID != nodeID {
		return nil
	}
	return &api.ManagerStatus{
		RaftID: member.RaftID, Addr: member.Addr,
		Leader: member.Status.Leader, Reachability: member.Status.Reachability,
	}
}

// list is the managers, this one among them.
func (m *members) list() (out []api.Peer) {
	for _, s := range m.raft.Members() {
		out = append(out, api.Peer{NodeID: s.ID, Addr: s.Addr})
	}
	return out
}

// publish tells the dispatcher of every change of members until ctx is done.
func (m *members) publish(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.raft.Changed():
			var peers []*api.Peer
			addrs := make(map[string]bool)
			for _, p := range m.list() {
				peers = append(peers, &p)
				addrs[p.Addr] = true
			}
			m.peers.Publish(peers)
			m.conns.keep(addrs, false)
		}
	}
}

// LeaderConn implements raftselector.ConnProvider.
func (m *members) LeaderConn(context.Context) (*grpc.ClientConn, error) {
	if m.raft.Leads() {
		return nil, raftselector.ErrIsLeader
	}
	if err := m.raft.Trouble(); err != nil {
		return nil, err
	}
	id, addr := m.raft.Leader()
	if addr == "" || id == m.sec.ClientTLSCreds.NodeID() {
		return nil, status.Error(codes.Unavailable, "the cluster has no leader at the moment: try again")
	}
	return m.conns.to(addr)
}

func (m *members) close() { m.peers.Close() }
