// SPDX-License-Identifier: BSD-2-Clause

package cluster

import (
	"fmt"
	"testing"
	"time"

	"github.com/moby/swarmkit/v2/api"
)

// A manager that knows of no leader, but reaches other managers, is a node that
// gets tasks as before: its agent asks them.
func TestManagerAside(t *testing.T) {
	t.Parallel()
	var nodes []*running
	var fakes []*fakeExecutor
	for i := range 3 {
		fakes = append(fakes, newFake())
		nodes = append(nodes, startNode(t, stateDir(t), fakes[i], nil))
		if i > 0 {
			join(t, nodes[i], nodes[0], api.NodeRoleManager)
		}
	}
	l, aside := leader(t, nodes...), 0
	for nodes[aside] == l {
		aside++
	}
	n := nodes[aside]
	for _, other := range nodes {
		if other != n {
			cutRaft(other, n)
		}
	}
	eventually(t, 20*time.Second, "it knows of no leader", func() string {
		id, _ := n.m().raft.Leader()
		return id
	})
	// Its agent's session with the leader, which the next heartbeat would end.
	drop(n.m(), l.AdvertiseAddr())
	everywhere := replicas("web", 0)
	everywhere.Mode = &api.ServiceSpec_Global{Global: &api.GlobalService{}}
	create(t, leader(t, nodes[(aside+1)%3], nodes[(aside+2)%3]), everywhere)
	eventually(t, 30*time.Second, "a task on it", func() string {
		if fakes[aside].called("start") == 0 {
			return fmt.Sprint(nodeOf(l, n.NodeID()).Status)
		}
		return ""
	})
	if id, _ := n.m().raft.Leader(); id != "" {
		t.Errorf("it knows the leader %s: this test shows nothing", id)
	}
}

// cutRaft keeps raft's connections from one manager to another from being, and
// no others.
func cutRaft(from, to *running) {
	m, addr := from.m(), to.AdvertiseAddr()
	known := *m.streams.member.Load()
	but := func(at string) string {
		if at == addr {
			return ""
		}
		return known(at)
	}
	m.streams.member.Store(&but)
	drop(m, addr+"/"+to.NodeID())
}

// drop closes a manager's connection to another node.
func drop(m *member, key string) {
	m.conns.mu.Lock()
	defer m.conns.mu.Unlock()
	if conn := m.conns.open[key]; conn != nil {
		conn.Close()
		delete(m.conns.open, key)
	}
}
