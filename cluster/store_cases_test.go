// SPDX-License-Identifier: BSD-2-Clause

package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
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
	const often = 32
	compact := func(c *Config) { c.compact = often }
	l := startNode(t, stateDir(t), newFake(), compact)
	patient(t, l)
	var nodes []*running
	for range 2 {
		n := startNode(t, stateDir(t), newFake(), compact)
		join(t, n, l, api.NodeRoleManager)
		nodes = append(nodes, n)
	}
	away := nodes[1]
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
	// Until what it lacks is in no log any more.
	had := l.m().raft.GetVersion().Index
	writes := 0
	for deadline := time.Now().Add(30 * time.Second); newestSnapshot(t, l) <= had+2*often; {
		if time.Now().After(deadline) {
			t.Fatalf("%d writes, and the log is not compacted", writes)
		}
		err := l.Store().Update(func(tx store.Tx) error {
			x := store.GetService(tx, s.ID)
			x.Spec.Annotations.Labels = map[string]string{"i": fmt.Sprint(writes)}
			return store.UpdateService(tx, x)
		})
		switch {
		case err == nil:
			writes++
		case errors.As(err, new(*raft.WriteError)): // on a slow day
			l = leader(t, append(nodes[:1:1], l)...)
		default:
			t.Fatal(err)
		}
	}
	f := newFake()
	begun := time.Now()
	var logged bytes.Buffer
	back := startNode(t, away.cfg.StateDir, f, func(c *Config) {
		compact(c)
		c.Logger = slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	eventually(t, 30*time.Second, "caught up", func() string {
		if x := service(back, s.ID); x == nil || x.Spec.Annotations.Labels["i"] != fmt.Sprint(writes-1) {
			return fmt.Sprint(x)
		}
		return ""
	})
	t.Logf("caught up after %v", time.Since(begun))
	eventually(t, 10*time.Second, "its tasks taken over", func() string {
		if c := f.called("wait"); c != own {
			return fmt.Sprintf("%d of %d", c, own)
		}
		return ""
	})
	if c := f.called("shutdown") + f.called("remove") + f.called("start"); c != 0 || len(live(back, s.ID)) != 6 {
		t.Errorf("%d tasks were touched, %d run", c, len(live(back, s.ID)))
	}
	if err := back.stop(); err != nil || !strings.Contains(logged.String(), "Installed remote snapshot") {
		t.Errorf("no snapshot was installed (%v)", err)
	}
}

// newestSnapshot is the last entry in a node's newest snapshot; 0 without one.
func newestSnapshot(t testing.TB, n *running) (newest uint64) {
	t.Helper()
	dirs, err := filepath.Glob(filepath.Join(dirsOf(n.cfg.StateDir).raft, "snapshots", "*-*-*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range dirs {
		parts := strings.Split(filepath.Base(dir), "-") // term, index, time
		if index, err := strconv.ParseUint(parts[1], 10, 64); err == nil && !strings.HasSuffix(dir, ".tmp") {
			newest = max(newest, index)
		}
	}
	return newest
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
