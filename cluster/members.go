// SPDX-License-Identifier: BSD-2-Clause

package cluster

import (
	"context"
	"sync"

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
	peers *watch.Queue // of []*api.Peer

	mu   sync.Mutex
	addr string // of conn
	conn *grpc.ClientConn
}

var (
	_ dispatcher.Cluster        = (*members)(nil)
	_ raftselector.ConnProvider = (*members)(nil)
)

func newMembers(r *raft.Node, sec *ca.SecurityConfig) *members {
	return &members{raft: r, sec: sec, peers: watch.NewQueue()}
}

// MemoryStore implements dispatcher.Cluster.
func (m *members) MemoryStore() *store.MemoryStore { return m.raft.Store() }

// GetMemberlist implements dispatcher.Cluster.
func (m *members) GetMemberlist() map[uint64]*api.RaftMember {
	out := map[uint64]*api.RaftMember{}
	for _, s := range m.raft.Members() {
		id := raft.NumericID(s.ID)
		out[id] = &api.RaftMember{
			RaftID: id, NodeID: s.ID, Addr: s.Addr,
			Status: api.RaftMemberStatus{Leader: s.Leader, Reachability: api.RaftMemberStatus_REACHABLE},
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

// publish tells the dispatcher of every change of members until ctx is done.
func (m *members) publish(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.raft.Changed():
			var peers []*api.Peer
			for _, s := range m.raft.Members() {
				peers = append(peers, &api.Peer{NodeID: s.ID, Addr: s.Addr})
			}
			m.peers.Publish(peers)
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
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.conn != nil && m.addr == addr {
		return m.conn, nil
	}
	conn, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(m.sec.ClientTLSCreds), grpc.WithNoProxy())
	if err != nil {
		return nil, err
	}
	if m.conn != nil {
		m.conn.Close()
	}
	m.conn, m.addr = conn, addr
	return conn, nil
}

func (m *members) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.conn != nil {
		m.conn.Close()
	}
	m.peers.Close()
}
