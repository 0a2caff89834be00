// SPDX-License-Identifier: BSD-2-Clause

package cluster

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/ca"
	"github.com/moby/swarmkit/v2/manager/state/store"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestServiceRuns(t *testing.T) {
	f := newFake()
	n := startNode(t, stateDir(t), f, nil)
	s := create(t, n, replicas("web", 1))
	x := awaitLive(t, n, s.ID, 1)[0]
	if x.NodeID != n.NodeID() || x.Slot != 1 {
		t.Errorf("task on node %s in slot %d", x.NodeID, x.Slot)
	}
	begin := time.Now()
	if err := n.stop(); err != nil {
		t.Fatal(err)
	}
	if d := time.Since(begin); d > 2*time.Second {
		t.Errorf("stopping took %v", d)
	}
	if c := f.called("shutdown") + f.called("terminate") + f.called("remove"); c != 0 {
		t.Errorf("%d tasks were touched by the daemon's stop", c)
	}
}

// TestFreshNode: what `docker info`, `node ls` and `swarm join-token` need.
func TestFreshNode(t *testing.T) {
	dir := stateDir(t)
	n := startNode(t, dir, newFake(), nil)
	eventually(t, 5*time.Second, "node is ready", func() string { return nodeState(n, api.NodeStatus_READY) })
	r, err := n.Control().ListNodes(t.Context(), &api.ListNodesRequest{})
	if err != nil || len(r.Nodes) != 1 {
		t.Fatalf("nodes %v, %v", r, err)
	}
	node := r.Nodes[0]
	host, _, _ := net.SplitHostPort(n.AdvertiseAddr())
	if m := node.ManagerStatus; m == nil || !m.Leader || m.Reachability != api.RaftMemberStatus_REACHABLE || m.Addr != n.AdvertiseAddr() {
		t.Errorf("manager status %+v", m)
	}
	if node.ID != n.NodeID() || node.Role != api.NodeRoleManager || node.Status.Addr != host ||
		node.Description.Hostname != "host" || node.Description.Engine.EngineVersion != "test" {
		t.Errorf("node %+v", node)
	}
	g, err := n.Control().GetNode(t.Context(), &api.GetNodeRequest{NodeID: node.ID})
	if err != nil || g.Node.ManagerStatus == nil {
		t.Errorf("inspected: %v %v", g, err)
	}
	c, err := n.Control().ListClusters(t.Context(), &api.ListClustersRequest{})
	if err != nil || len(c.Clusters) != 1 {
		t.Fatal(c, err)
	}
	cluster := c.Clusters[0]
	if cluster.ID != n.ClusterID() || cluster.Spec.Orchestration.TaskHistoryRetentionLimit != 5 ||
		!strings.HasPrefix(cluster.RootCA.JoinTokens.Worker, "SWMTKN-1-") || len(cluster.RootCA.CACert) == 0 {
		t.Errorf("cluster %+v", cluster)
	}
	if !n.Manager() || !n.Leader() {
		t.Errorf("manager %v leader %v", n.Manager(), n.Leader())
	}
	if _, err := os.Stat(filepath.Join(dir, "certificates", "swarm-root-ca.key")); !os.IsNotExist(err) {
		t.Errorf("the root's key is still on disk: %v", err)
	}
	st, err := os.Stat(filepath.Join(dir, "certificates", "swarm-node.key"))
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("the node's key: %v %v", st, err)
	}
}

func TestRoleIsKept(t *testing.T) {
	n := startNode(t, stateDir(t), newFake(), nil)
	r, err := n.Control().GetNode(t.Context(), &api.GetNodeRequest{NodeID: n.NodeID()})
	if err != nil {
		t.Fatal(err)
	}
	r.Node.Spec.DesiredRole = api.NodeRoleWorker
	_, err = n.Control().UpdateNode(t.Context(), &api.UpdateNodeRequest{NodeID: n.NodeID(), NodeVersion: &r.Node.Meta.Version, Spec: &r.Node.Spec})
	if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "last manager") {
		t.Errorf("demoting: %v", err)
	}
	_, err = n.Control().RemoveNode(t.Context(), &api.RemoveNodeRequest{NodeID: n.NodeID(), Force: true})
	if status.Code(err) != codes.FailedPrecondition {
		t.Errorf("removing: %v", err)
	}
	if _, err := n.Control().RemoveNode(t.Context(), &api.RemoveNodeRequest{NodeID: "none"}); status.Code(err) != codes.NotFound {
		t.Errorf("removing nobody: %v", err)
	}
}

// TestRenewal renews the node's certificate through this process's own way to
// the certificate authority; tasks do not notice.
func TestRenewal(t *testing.T) {
	dir := stateDir(t)
	f := newFake()
	n := startNode(t, dir, f, nil)
	s := create(t, n, replicas("web", 1))
	was := awaitLive(t, n, s.ID, 1)[0].ID
	old, err := os.ReadFile(n.m().id.paths.Node.Cert)
	if err != nil {
		t.Fatal(err)
	}
	if err := ca.RenewTLSConfigNow(t.Context(), n.m().id.sec, n.m().broker, n.m().id.paths.RootCA); err != nil {
		t.Fatal(err)
	}
	renewed, err := os.ReadFile(n.m().id.paths.Node.Cert)
	if err != nil || string(renewed) == string(old) {
		t.Fatalf("the certificate is the old one (%v)", err)
	}
	if id, err := certificateID(n.m().id.paths.Node.Cert); err != nil || id != n.NodeID() || n.m().id.nodeID() != id {
		t.Errorf("certificate of %s (%v), node %s", id, err, n.NodeID())
	}
	n.stop()
	n = startNode(t, dir, f, nil)
	if x := awaitLive(t, n, s.ID, 1)[0].ID; x != was || f.called("start") != 1 {
		t.Errorf("task %s runs instead of %s", x, was)
	}
}

// TestSecondNode: the leader's parts start anew once the node is not alone, and
// go on with their work.
func TestSecondNode(t *testing.T) {
	f := newFake()
	n := startNode(t, stateDir(t), f, nil)
	s := create(t, n, replicas("web", 1))
	was := awaitLive(t, n, s.ID, 1)[0].ID
	if c := n.m().dispatcherConfig(n.m().alone()); c.GracePeriodMultiplier != aloneGrace {
		t.Errorf("alone, the node is down after %d periods", c.GracePeriodMultiplier)
	}
	starts := n.m().starts.Load()
	if err := n.Store().Update(func(tx store.Tx) error {
		return store.CreateNode(tx, &api.Node{ID: "other", Spec: api.NodeSpec{Membership: api.NodeMembershipAccepted}})
	}); err != nil {
		t.Fatal(err)
	}
	eventually(t, 10*time.Second, "the parts start anew", func() string {
		if n.m().starts.Load() == starts+1 {
			return ""
		}
		return fmt.Sprint(n.m().starts.Load())
	})
	if c := n.m().dispatcherConfig(n.m().alone()); c.GracePeriodMultiplier == aloneGrace {
		t.Error("two nodes are treated as one alone")
	}
	awaitLive(t, n, create(t, n, replicas("more", 1)).ID, 1)
	if x := awaitLive(t, n, s.ID, 1)[0].ID; x != was || f.called("shutdown") != 0 {
		t.Errorf("task %s runs instead of %s", x, was)
	}
}

func TestLock(t *testing.T) {
	dir := stateDir(t)
	unlock, err := LockState(dir)
	if err != nil {
		t.Fatal(err)
	}
	_, err = LockState(dir)
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("pid %d", os.Getpid())) || !strings.Contains(err.Error(), "--state-dir") {
		t.Errorf("a second daemon: %v", err)
	}
	unlock()
	unlock, err = LockState(dir)
	if err != nil {
		t.Fatalf("after the first has ended: %v", err)
	}
	unlock()
}

func TestListenAddressInUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, err = Open(t.Context(), Config{StateDir: stateDir(t), ListenAddr: l.Addr().String(), Executor: newFake(), Logger: testLogger()})
	if err == nil || !strings.Contains(err.Error(), "--listen-addr") || !strings.Contains(err.Error(), l.Addr().String()) {
		t.Errorf("open: %v", err)
	}
}

func TestDamagedTasksAreMadeAnew(t *testing.T) {
	dir := stateDir(t)
	n := startNode(t, dir, newFake(), nil)
	s := create(t, n, replicas("web", 2))
	awaitLive(t, n, s.ID, 2)
	n.stop()
	path := filepath.Join(dir, "worker", "tasks.db")
	if err := os.WriteFile(path, []byte(strings.Repeat("garbage", 10000)), 0o600); err != nil {
		t.Fatal(err)
	}
	f := newFake()
	n = startNode(t, dir, f, nil)
	eventually(t, 5*time.Second, "both tasks are adopted", func() string {
		if f.called("wait") == 2 {
			return ""
		}
		return fmt.Sprint(f.called("wait"))
	})
	if len(tasks(n, s.ID)) != 2 || f.called("start") != 0 {
		t.Errorf("%d tasks, %d started", len(tasks(n, s.ID)), f.called("start"))
	}
	if kept, _ := filepath.Glob(path + ".damaged-*"); len(kept) != 1 {
		t.Errorf("the damaged file was not kept: %v", kept)
	}
}

// TestDamagedStore: the daemon's error names the file and the way out
// (cases/store.md, store-4; every kind of damage is in package raft's tests).
func TestDamagedStore(t *testing.T) {
	dir := stateDir(t)
	n := startNode(t, dir, newFake(), nil)
	n.stop()
	path := filepath.Join(dir, "raft", "raft.db")
	if err := os.WriteFile(path, []byte(strings.Repeat("garbage", 10000)), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Open(t.Context(), Config{StateDir: dir, ListenAddr: "127.0.0.1:0", Executor: newFake(), Logger: testLogger()})
	if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "--force-new-cluster") {
		t.Errorf("open: %v", err)
	}
}

// TestLostStore: a log that is missing or empty in its directory is no fresh
// node; neither its certificates nor its tasks are touched.
func TestLostStore(t *testing.T) {
	dir := stateDir(t)
	n := startNode(t, dir, newFake(), nil)
	s := create(t, n, replicas("web", 1))
	was := awaitLive(t, n, s.ID, 1)[0].ID
	n.stop()
	path := filepath.Join(dir, "raft", "raft.db")
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	refused := func(what string, force bool) {
		t.Helper()
		_, err := Open(t.Context(), Config{StateDir: dir, ListenAddr: "127.0.0.1:0", Executor: newFake(), Logger: testLogger(), ForceNewCluster: force})
		if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), what) ||
			!strings.Contains(err.Error(), "copy") || !strings.Contains(err.Error(), "--force-new-cluster") {
			t.Errorf("%s (forced: %v): %v", what, force, err)
		}
	}
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	refused("empty", false)
	refused("empty", true) // there is no snapshot yet
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	refused("missing", false)
	refused("missing", true)
	// The certificates alone tell, too.
	if err := os.Rename(filepath.Join(dir, "worker"), filepath.Join(dir, "aside")); err != nil {
		t.Fatal(err)
	}
	refused("missing", false)
	if err := os.Rename(filepath.Join(dir, "aside"), filepath.Join(dir, "worker")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, good, 0o600); err != nil {
		t.Fatal(err)
	}
	f := newFake()
	n = startNode(t, dir, f, nil)
	if x := awaitLive(t, n, s.ID, 1)[0].ID; x != was || f.called("start") != 0 {
		t.Errorf("with the file back task %s runs instead of %s", x, was)
	}
}

// TestCrashAtTheFirstStart: a directory that was made, but never written to,
// is a fresh one.
func TestCrashAtTheFirstStart(t *testing.T) {
	dir := stateDir(t)
	if err := os.MkdirAll(filepath.Join(dir, "raft", "snapshots"), 0o700); err != nil {
		t.Fatal(err)
	}
	id, err := openIdentity(t.Context(), filepath.Join(dir, "certificates"), true)
	if err != nil {
		t.Fatal(err)
	}
	defer id.close()
	if err := os.WriteFile(filepath.Join(dir, "raft", "raft.db"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	n := startNode(t, dir, newFake(), nil)
	if n.NodeID() != id.nodeID() {
		t.Errorf("node %s instead of %s", n.NodeID(), id.nodeID())
	}
}

// TestStoreOfAnotherCluster: certificates and store of different copies.
func TestStoreOfAnotherCluster(t *testing.T) {
	dir := stateDir(t)
	startNode(t, dir, newFake(), nil).stop()
	certificates := filepath.Join(dir, "certificates")
	id, err := openIdentity(t.Context(), certificates, true)
	if err != nil {
		t.Fatal(err)
	}
	defer id.close()
	n, err := Open(t.Context(), Config{StateDir: dir, ListenAddr: "127.0.0.1:0", Executor: newFake(), Logger: testLogger()})
	if err != nil {
		t.Fatal(err)
	}
	err = n.Run(t.Context())
	if err == nil || !strings.Contains(err.Error(), certificates) || !strings.Contains(err.Error(), filepath.Join(dir, "raft")) || !strings.Contains(err.Error(), id.clusterID()) {
		t.Errorf("run: %v", err)
	}
}

func TestAdvertiseAddr(t *testing.T) {
	local := func() (netip.Addr, error) { return netip.MustParseAddr("10.0.0.5"), nil }
	for _, c := range []struct{ want, listening, addr, err string }{
		{"", "0.0.0.0:2377", "10.0.0.5:2377", ""},
		{"", "[::]:2377", "10.0.0.5:2377", ""},
		{"", "192.0.2.1:2377", "192.0.2.1:2377", ""},
		{"192.0.2.9", "0.0.0.0:2377", "192.0.2.9:2377", ""},
		{"192.0.2.9:99", "0.0.0.0:2377", "192.0.2.9:99", ""},
		{"192.0.2.9:0", "0.0.0.0:2377", "192.0.2.9:2377", ""},
		{"node.example:99", "0.0.0.0:2377", "node.example:99", ""},
		{"2001:db8::1", "0.0.0.0:2377", "[2001:db8::1]:2377", ""},
		{"0.0.0.0:99", "0.0.0.0:2377", "", "--advertise-addr"},
	} {
		l, err := net.ResolveTCPAddr("tcp", c.listening)
		if err != nil {
			t.Fatal(err)
		}
		addr, err := advertiseAddr(c.want, l, local)
		if addr != c.addr || (err != nil) != (c.err != "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%q on %s: %q, %v; want %q, %q", c.want, c.listening, addr, err, c.addr, c.err)
		}
	}
}
