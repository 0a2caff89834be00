// SPDX-License-Identifier: BSD-2-Clause

package cluster

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	gogotypes "github.com/gogo/protobuf/types"
	"github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/manager/state/store"

	"satld/raft"
)

// The cases of cases/store.md that take whole nodes: store-3 is TestRestarts
// and TestManagersReturn too, store-4 TestDamagedStore and TestLostStore.

// TestStore3 asks where addresses of others come from: from what they say,
// never from the socket (cases/store.md, store-3).
func TestStore3(t *testing.T) {
	t.Parallel()
	a := startNode(t, stateDir(t), newFake(), nil)
	b := startNode(t, stateDir(t), newFake(), nil)
	_, port, err := net.SplitHostPort(b.AdvertiseAddr())
	if err != nil {
		t.Fatal(err)
	}
	said := "localhost:" + port // every connection comes from 127.0.0.1
	err = b.Join(t.Context(), Joining{Managers: []string{a.AdvertiseAddr()}, Token: token(t, a, api.NodeRoleManager), AdvertiseAddr: said})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []*running{a, b} {
		eventually(t, 10*time.Second, "the address that it gave", func() string {
			peers := n.Managers()
			i := slices.IndexFunc(peers, func(p api.Peer) bool { return p.NodeID == b.NodeID() })
			if len(peers) != 2 || i < 0 || peers[i].Addr != said || n.m().raft.MemberAt(said) != b.NodeID() {
				return fmt.Sprint(peers)
			}
			return ""
		})
	}
	known, err := openRemembered(a.cfg.StateDir)
	if err != nil || len(known.managers()) != 1 || known.managers()[0].Addr != said {
		t.Errorf("written down: %v, %v", known.managers(), err)
	}
}

// TestStore6: a manager that was away while the log was compacted comes back by
// a snapshot in less than 30 s, and none of its tasks is stopped for what it
// does not know meanwhile (cases/store.md, store-6).
func TestStore6(t *testing.T) {
	t.Parallel()
	l := startNode(t, memDir(t), newFake(), nil)
	patient(t, l)
	var away *running
	for range 2 {
		away = startNode(t, memDir(t), newFake(), nil)
		join(t, away, l, api.NodeRoleManager)
	}
	s := create(t, l, replicas("web", 6))
	awaitLive(t, l, s.ID, 6)
	own := 0
	for _, x := range live(l, s.ID) {
		if x.NodeID == away.NodeID() {
			own++
		}
	}
	if err := away.stop(); err != nil {
		t.Fatal(err)
	}
	writes := raft.DefaultSnapshotThreshold + raft.DefaultTrailingLogs + 100
	begun := time.Now()
	for i := range writes {
		if err := l.Store().Update(func(tx store.Tx) error {
			x := store.GetService(tx, s.ID)
			x.Spec.Annotations.Labels = map[string]string{"i": fmt.Sprint(i)}
			return store.UpdateService(tx, x)
		}); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d entries in %v", writes, time.Since(begun))
	snapshots := func(n *running) int {
		list, _ := filepath.Glob(filepath.Join(dirsOf(n.cfg.StateDir).raft, "snapshots", "*-*-*"))
		return len(list)
	}
	eventually(t, 10*time.Second, "the log is compacted", func() string {
		if snapshots(l) == 0 {
			return "no snapshot"
		}
		return ""
	})
	if snapshots(away) != 0 {
		t.Fatal("it had a snapshot before")
	}
	f := newFake()
	begun = time.Now()
	back := startNode(t, away.cfg.StateDir, f, nil)
	eventually(t, 30*time.Second, "caught up", func() string {
		if x := service(back, s.ID); x == nil || x.Spec.Annotations.Labels["i"] != fmt.Sprint(writes-1) {
			return fmt.Sprint(x)
		}
		return ""
	})
	t.Logf("caught up after %v", time.Since(begun))
	if snapshots(back) == 0 {
		t.Error("no snapshot was sent")
	}
	eventually(t, 10*time.Second, "its tasks taken over", func() string {
		if c := f.called("wait"); c != own {
			return fmt.Sprintf("%d of %d", c, own)
		}
		return ""
	})
	if c := f.called("shutdown") + f.called("remove") + f.called("start"); c != 0 || len(live(back, s.ID)) != 6 {
		t.Errorf("%d tasks were touched, %d run", c, len(live(back, s.ID)))
	}
}

// memDir is a state directory in memory where there is one: the test is not
// about the disk.
func memDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "cluster-test-")
	if err != nil {
		return stateDir(t)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// patient lets nodes that join from now on be silent for minutes.
func patient(t testing.TB, n *running) {
	t.Helper()
	for {
		c, err := n.Control().GetCluster(t.Context(), &api.GetClusterRequest{ClusterID: n.ClusterID()})
		if err != nil {
			t.Fatal(err)
		}
		c.Cluster.Spec.Dispatcher.HeartbeatPeriod = gogotypes.DurationProto(time.Minute)
		_, err = n.Control().UpdateCluster(t.Context(), &api.UpdateClusterRequest{
			ClusterID: n.ClusterID(), ClusterVersion: &c.Cluster.Meta.Version, Spec: &c.Cluster.Spec,
		})
		if err == nil {
			return
		}
	}
}
