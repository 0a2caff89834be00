// SPDX-License-Identifier: BSD-2-Clause

package cluster

import (
	"context"
	"time"

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
func (m *members) LeaderConn(ctx context.Context) (*grpc.ClientConn, error) {
	if m.raft.Leads() {
		return nil, raftselector.ErrIsLeader
	}
	addr, trouble := m.leader(), m.raft.Trouble()
	if addr == "" && trouble != nil {
		addr = m.askLeader(ctx)
	}
	switch {
	case addr != "":
		return m.conns.to(addr)
	case trouble != nil:
		return nil, trouble
	}
	return nil, status.Error(codes.Unavailable, "the cluster has no leader at the moment: try again")
}

// leader is the address of another manager that leads; "" if none is known.
func (m *members) leader() string {
	id, addr := m.raft.Leader()
	if id == m.sec.ClientTLSCreds.NodeID() {
		return ""
	}
	return addr
}

// askBound bounds the question to other managers who leads.
const askBound = time.Second

// askLeader is the address of the leader as other managers know it, "" if none
// of them does. One that cannot write takes no part in elections, and learns of
// none; what it hands on needs no room.
func (m *members) askLeader(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, askBound)
	defer cancel()
	self, peers := m.sec.ClientTLSCreds.NodeID(), m.list()
	answers := make(chan string, len(peers))
	for _, p := range peers {
		go func() {
			var leader api.Peer
			if p.NodeID != self {
				if conn, err := m.conns.to(p.Addr); err == nil && send(ctx, conn, "leader", struct{}{}, &leader) != nil {
					leader = api.Peer{}
				}
			}
			if leader.NodeID == self {
				leader = api.Peer{}
			}
			answers <- leader.Addr
		}()
	}
	for range peers {
		if addr := <-answers; addr != "" {
			return addr
		}
	}
	return ""
}

// behind tells whether this manager's store stays behind that of others, as
// what they write cannot be written here.
func (m *members) behind() bool { return m.raft.Trouble() != nil && len(m.raft.Members()) > 1 }

func (m *members) close() { m.peers.Close() }
