// SPDX-License-Identifier: BSD-2-Clause

package cluster

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/moby/swarmkit/v2/api"

	"satld/raft"
)

func TestBelieved(t *testing.T) {
	members := func(ids ...string) (out []raft.Member) {
		for _, id := range ids {
			out = append(out, raft.Member{ID: id, Voter: true})
		}
		return out
	}
	for _, c := range []struct {
		denied  int
		members []raft.Member
		want    bool
	}{
		{1, nil, true},                        // it was never let in
		{1, members("a", "b"), true},          // it was dropped, and knows it
		{1, members("a", "self"), true},       // the only other one
		{1, members("a", "b", "self"), false}, // a cluster of its own, perhaps
		{2, members("a", "b", "self"), true},  // demoted
		{2, members("a", "b", "c", "d", "self"), false},
		{3, members("a", "b", "c", "d", "self"), true},
	} {
		if got := believed(c.denied, c.members, "self"); got != c.want {
			t.Errorf("%d of %v: %t", c.denied, c.members, got)
		}
	}
}

// A manager that is demoted while it is away, and so hears of it from nobody in
// the consensus, is a worker soon after it is back.
func TestDemotedWhileAway(t *testing.T) {
	t.Parallel()
	nodes := trio(t)
	l := leader(t, nodes...)
	var away *running
	for _, n := range nodes {
		if n != l {
			away = n
		}
	}
	if err := away.stop(); err != nil {
		t.Fatal(err)
	}
	if err := setRole(t, l, away.NodeID(), api.NodeRoleWorker); err != nil {
		t.Fatal(err)
	}
	eventually(t, 20*time.Second, "out of the consensus", func() string {
		if members := l.m().raft.Members(); len(members) != 2 || nodeOf(l, away.NodeID()).Role != api.NodeRoleWorker {
			return fmt.Sprint(members)
		}
		return ""
	})
	back := run(t, away.cfg)
	eventually(t, 30*time.Second, "a worker that is up", func() string {
		if node := nodeOf(l, back.NodeID()); back.Manager() || node.Status.State != api.NodeStatus_READY {
			return node.Status.String()
		}
		return ""
	})
}

// A manager that ends when it has just been taken out of the consensus, and has
// that in its log, starts again as what it is to be by now.
func TestEndsAsItIsTakenOut(t *testing.T) {
	t.Parallel()
	nodes := trio(t)
	l := leader(t, nodes...)
	var out *running
	for _, n := range nodes {
		if n != l {
			out = n
		}
	}
	end := func() {
		t.Helper()
		knows := func(n *running) bool {
			return slices.ContainsFunc(n.m().raft.Members(), func(m raft.Member) bool { return m.ID == out.NodeID() })
		}
		if err := l.m().raft.RemoveMember(t.Context(), out.NodeID()); err != nil {
			t.Fatal(err)
		}
		eventually(t, 10*time.Second, "it knows", func() string {
			if knows(out) && !knows(l) {
				return "it is in its own list"
			}
			return ""
		})
		if err := out.stop(); err != nil {
			t.Fatal(err)
		}
	}
	end()
	out = run(t, out.cfg)
	eventually(t, 30*time.Second, "a manager again", func() string {
		if members := l.m().raft.Members(); len(members) != 3 || !out.Manager() {
			return fmt.Sprint(members)
		}
		return ""
	})
	end()
	if err := setRole(t, l, out.NodeID(), api.NodeRoleWorker); err != nil {
		t.Fatal(err)
	}
	out = run(t, out.cfg)
	eventually(t, 30*time.Second, "a worker", func() string {
		if node := nodeOf(l, out.NodeID()); out.Manager() || node.Status.State != api.NodeStatus_READY {
			return node.Status.String()
		}
		return ""
	})
}
