// SPDX-License-Identifier: BSD-2-Clause

package raft

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	hraft "github.com/hashicorp/raft"

	"satld/internal/slowday"
)

func member3(n *Node, id string) Member {
	for _, m := range n.Members() {
		if m.ID == id {
			return m
		}
	}
	return Member{}
}

// A leader that steps down hands over within an election, and nothing that
// was acknowledged is lost.
func TestStepDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newTrio(t)
		defer x.close()
		if err := x.nodes[0].create("a", "first"); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		if err := x.nodes[0].StepDown(); err != nil {
			t.Fatal(err)
		}
		l := x.leader(1, 2)
		if took := time.Since(begun); took > slowday.Of(time.Second) {
			t.Errorf("a new leader after %v", took)
		}
		if err := x.nodes[l].create("b", "second"); err != nil {
			t.Fatal(err)
		}
		if got := x.agree(); len(got) != 2 {
			t.Errorf("services %v", got)
		}
		if err := x.nodes[0].StepDown(); !errors.Is(err, ErrNotLeader) {
			t.Errorf("a follower steps down: %v", err)
		}
	})
}

func TestMembership(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newTrio(t)
		defer x.close()
		ctx := t.Context()
		if err := x.nodes[1].AddMember(ctx, "server9", "10.0.0.9:2377"); !errors.Is(err, ErrNotLeader) {
			t.Errorf("added by a follower: %v", err)
		}
		if err := x.nodes[0].AddMember(ctx, "server9", "10.0.0.1:2377"); err == nil {
			t.Error("two servers with one address")
		}
		if err := x.nodes[0].AddMember(ctx, "server1", "10.0.0.1:2377"); err != nil {
			t.Errorf("added again: %v", err)
		}
		if err := x.nodes[0].RemoveMember(ctx, "server2"); err != nil {
			t.Fatal(err)
		}
		if err := x.nodes[0].RemoveMember(ctx, "server2"); err != nil {
			t.Errorf("removed again: %v", err)
		}
		if m := x.nodes[0].Members(); len(m) != 2 {
			t.Errorf("members %v", m)
		}
		// Both of the rest are needed now, and enough.
		if err := x.nodes[0].create("a", "first"); err != nil {
			t.Error(err)
		}
		// The leader removes itself: the last one goes on alone.
		if err := x.nodes[0].RemoveMember(ctx, "server0"); err != nil {
			t.Fatal(err)
		}
		x.leader(1)
		if err := x.nodes[1].create("b", "second"); err != nil {
			t.Error(err)
		}
	})
}

// The leader knows who misses its heartbeats.
func TestReachability(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newTrio(t)
		defer x.close()
		if m := member3(x.nodes[0].Node, "server2"); m.Unreachable {
			t.Error("unreachable from the start")
		}
		x.cut(2)
		eventually(t, 10*time.Second, "seen to be gone", func() bool { return member3(x.nodes[0].Node, "server2").Unreachable })
		if member3(x.nodes[0].Node, "server1").Unreachable {
			t.Error("the wrong one is unreachable")
		}
		x.heal(2)
		eventually(t, time.Minute, "seen again", func() bool {
			return !member3(x.nodes[x.leader(0, 1, 2)].Node, "server2").Unreachable
		})
	})
}

// A member that was away while the log was compacted gets a snapshot, also
// where its first transfer is cut half-way (cases/store.md, store-6).
func TestBackAfterCompaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newTrioWith(t, Config{SnapshotThreshold: 32, TrailingLogs: 8})
		defer x.close()
		x.cutTransfers.Store(1)
		x.cut(2)
		l := x.leader(0, 1)
		for i := range 300 {
			if err := x.nodes[l].create(fmt.Sprint("id", i), fmt.Sprint("name", i)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(20 * time.Millisecond)
		}
		if first, err := x.nodes[l].db.FirstIndex(); err != nil || first < 100 {
			t.Fatalf("the log was not compacted: it begins at %d (%v)", first, err)
		}
		begun := time.Now()
		x.heal(2)
		if got := x.agree(); len(got) != 300 {
			t.Errorf("%d services after the snapshot", len(got))
		}
		if took := time.Since(begun); took > slowday.Of(30*time.Second) {
			t.Errorf("it had caught up after %v", took)
		}
		if left := x.cutTransfers.Load(); left != 0 {
			t.Errorf("no transfer was cut (%d)", left)
		}
	})
}

// A failed heartbeat that is told of late, as one to a member that has left and
// come back since, is forgotten with the next that is answered.
func TestLateFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newTrio(t)
		defer x.close()
		l := x.leader(0, 1, 2)
		other := fmt.Sprint("server", (l+1)%3)
		x.nodes[l].silent.note(hraft.FailedHeartbeatObservation{PeerID: hraft.ServerID(other)})
		if !member3(x.nodes[l].Node, other).Unreachable {
			t.Error("it is reachable: this test shows nothing")
		}
		time.Sleep(2 * time.Second)
		if member3(x.nodes[l].Node, other).Unreachable {
			t.Error("it is unreachable, though it answers")
		}
	})
}
