// SPDX-License-Identifier: BSD-2-Clause

package cluster

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/manager/state/store"
)

func backup(t testing.TB, n *running) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := n.Backup(&b, time.Now()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func clusterOf(n *running) (c *api.Cluster) {
	n.Store().View(func(tx store.ReadTx) { c = store.GetCluster(tx, n.ClusterID()) })
	return c
}

// What a follower backs up is the whole cluster: on another machine, with
// another address, it goes on with the same services, tokens and key, one
// manager, and takes nodes in.
func TestBackupAndRestore(t *testing.T) {
	t.Parallel()
	a, b := startNode(t, stateDir(t), newFake(), nil), startNode(t, stateDir(t), newFake(), nil)
	join(t, b, a, api.NodeRoleManager)
	s := create(t, a, replicas("web", 4))
	awaitLive(t, a, s.ID, 4)
	eventually(t, 5*time.Second, "all on the follower", func() string {
		if len(live(b, s.ID)) != 4 {
			return "not yet"
		}
		return ""
	})
	saved := backup(t, b)
	was, id := clusterOf(b), b.NodeID()
	create(t, a, replicas("later", 1))
	if err := errors.Join(a.stop(), b.stop()); err != nil {
		t.Fatal(err)
	}

	dir := stateDir(t)
	about, err := Restore(dir, bytes.NewReader(saved), testLogger())
	if err != nil {
		t.Fatal(err)
	}
	if about.NodeID != id || about.ClusterID != was.ID || about.Services != 1 || about.Nodes != 2 || about.Hostname != "host" {
		t.Errorf("it says %+v", about)
	}
	n := startNode(t, dir, newFake(), nil)
	now := clusterOf(n)
	if n.NodeID() != id || !n.Leader() || now == nil || now.RootCA.JoinTokens != was.RootCA.JoinTokens || !bytes.Equal(now.RootCA.CAKey, was.RootCA.CAKey) {
		t.Errorf("node %s, leader %t, cluster %+v", n.NodeID(), n.Leader(), now)
	}
	if got := service(n, s.ID); got == nil || len(services(n)) != 1 {
		t.Errorf("services %v", services(n))
	}
	if m := n.m().raft.Members(); len(m) != 1 || m[0].ID != id || m[0].Addr != n.AdvertiseAddr() {
		t.Errorf("members %+v, address %s", m, n.AdvertiseAddr())
	}
	if other := nodeOf(n, a.NodeID()); other.Role != api.NodeRoleWorker || other.Spec.DesiredRole != api.NodeRoleWorker {
		t.Errorf("the other manager is %+v", other)
	}
	eventually(t, 5*time.Second, "its tasks here go on", func() string {
		for _, x := range live(n, s.ID) {
			if x.NodeID == id {
				return ""
			}
		}
		return "none"
	})
	c := startNode(t, stateDir(t), newFake(), nil)
	join(t, c, n, api.NodeRoleManager)
	if l := leader(t, n, c); len(l.m().raft.Members()) != 2 {
		t.Errorf("members %v", l.m().raft.Members())
	}
	create(t, c, replicas("more", 1))
}

func services(n *running) (out []*api.Service) {
	n.Store().View(func(tx store.ReadTx) { out, _ = store.FindServices(tx, store.All) })
	return out
}

// A backup that is not whole, and one for a node that has a cluster, are
// refused; nothing is left of the attempt, and the good one can be restored.
func TestRestoreRefused(t *testing.T) {
	t.Parallel()
	n := startNode(t, stateDir(t), newFake(), nil)
	create(t, n, replicas("web", 1))
	good := backup(t, n)
	n.stop()
	dir := stateDir(t)
	refuse := func(what string, data []byte, want string) {
		t.Helper()
		_, err := Restore(dir, bytes.NewReader(data), testLogger())
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Fatalf("%s: %v, want %q", what, err, want)
		}
		if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) > 0 {
			t.Fatalf("%s: left behind %v", what, left)
		}
	}
	refuse("nothing", nil, "cut short")
	refuse("something else", bytes.Repeat([]byte("text "), 1000), "no backup")
	for cut := 0; cut < len(good)-1024; cut += 1024 { // what ends a tar is 1024 zeros
		refuse("cut short", good[:cut], "cut short")
	}
	_, parts, err := readBackup(bytes.NewReader(good))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range backupParts {
		at := bytes.Index(good, parts[name]) + len(parts[name])/2
		bad := bytes.Clone(good)
		bad[at] ^= 1
		refuse(name+" damaged", bad, "damaged")
	}
	remade := func(change func(parts map[string][]byte)) []byte {
		_, parts, err := readBackup(bytes.NewReader(good))
		if err != nil {
			t.Fatal(err)
		}
		change(parts)
		var b bytes.Buffer
		if err := writeBackup(&b, time.Now(), parts); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	other := startNode(t, stateDir(t), newFake(), nil)
	_, others, err := readBackup(bytes.NewReader(backup(t, other)))
	if err != nil {
		t.Fatal(err)
	}
	refuse("of a later satld", remade(func(p map[string][]byte) {
		p[backupAbout] = bytes.Replace(p[backupAbout], []byte(`"Format": 1`), []byte(`"Format": 2`), 1)
	}), "format is 2")
	refuse("another's key", remade(func(p map[string][]byte) { p[backupKey] = others[backupKey] }), "certificate")
	refuse("another's certificate", remade(func(p map[string][]byte) {
		p[backupKey], p[backupCert] = others[backupKey], others[backupCert]
	}), other.NodeID())
	refuse("another's store", remade(func(p map[string][]byte) { p[backupStore] = others[backupStore] }), "lacks the cluster")
	refuse("half a store", remade(func(p map[string][]byte) { p[backupStore] = p[backupStore][:len(p[backupStore])/2] }), "its store")

	if _, err := Restore(dir, bytes.NewReader(good), testLogger()); err != nil {
		t.Fatal(err)
	}
	if _, err := Restore(dir, bytes.NewReader(good), testLogger()); err == nil || !strings.Contains(err.Error(), "move raft, certificates and cluster.json away") {
		t.Errorf("over a cluster: %v", err)
	}
	if len(services(startNode(t, dir, newFake(), nil))) != 1 {
		t.Error("the service is not back")
	}
}

// A restore that was decided on is finished by the next start, wherever it was
// broken off.
func TestRestoreBrokenOff(t *testing.T) {
	t.Parallel()
	n := startNode(t, stateDir(t), newFake(), nil)
	create(t, n, replicas("web", 1))
	saved := backup(t, n)
	n.stop()
	for done := range 3 {
		dir := stateDir(t)
		if _, err := Restore(dir, bytes.NewReader(saved), testLogger()); err != nil {
			t.Fatal(err)
		}
		d := dirsOf(dir)
		back := []struct{ from, to string }{{rememberedFile(dir), d.change}, {d.certificates, d.next}, {d.raft, d.nextRaft}}
		for _, r := range back[:3-done] {
			if err := os.Rename(r.from, r.to); err != nil {
				t.Fatal(err)
			}
		}
		again := startNode(t, dir, newFake(), nil)
		if again.NodeID() != n.NodeID() || len(services(again)) != 1 {
			t.Errorf("broken off after %d steps: node %s, %d services", done, again.NodeID(), len(services(again)))
		}
		again.stop()
	}
}

// The last of three managers goes on alone; the tasks of before stay. Should
// the lost ones return together, they change nothing here.
func TestForceNewCluster(t *testing.T) {
	t.Parallel()
	nodes := trio(t)
	l := leader(t, nodes...)
	s := create(t, l, replicas("web", 6))
	awaitLive(t, l, s.ID, 6)
	last := nodes[2]
	if last == l {
		last = nodes[1]
	}
	eventually(t, 5*time.Second, "all there", func() string {
		if len(live(last, s.ID)) != 6 {
			return "not yet"
		}
		return ""
	})
	here := map[string]bool{}
	for _, x := range live(last, s.ID) {
		here[x.ID] = x.NodeID == last.NodeID()
	}
	var lost []*running
	for _, n := range nodes {
		if n != last {
			lost = append(lost, n)
			if err := n.stop(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := last.ForceNewCluster(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := last.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	if m := last.m().raft.Members(); len(m) != 1 || m[0].ID != last.NodeID() {
		t.Errorf("members %v", m)
	}
	for _, x := range lost {
		if node := nodeOf(last, x.NodeID()); node.Role != api.NodeRoleWorker || node.Spec.DesiredRole != api.NodeRoleWorker {
			t.Errorf("the lost manager is %+v", node)
		}
	}
	create(t, last, replicas("after", 1))
	for _, x := range live(last, s.ID) {
		if mine, before := here[x.ID]; !before && x.NodeID == last.NodeID() {
			t.Errorf("task %s is new here", x.ID)
		} else if mine {
			delete(here, x.ID)
		}
	}
	for id, mine := range here {
		if mine {
			t.Errorf("task %s is gone", id)
		}
	}

	// They are the majority of what they know, so that they lead each other.
	var returned []*running
	for _, x := range lost {
		returned = append(returned, startLater(t, x))
	}
	r := leader(t, returned...)
	create(t, r, replicas("elsewhere", 1))
	time.Sleep(2 * time.Second) // some heartbeats and attempts
	if !last.Leader() || len(last.m().raft.Members()) != 1 || len(services(last)) != 2 {
		t.Errorf("leader %t, members %v, services %v", last.Leader(), last.m().raft.Members(), services(last))
	}
	// One of them gives its cluster up, and joins.
	if err := returned[0].Leave(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	join(t, returned[0], last, api.NodeRoleManager)
	if got := services(returned[0]); len(got) != 2 {
		t.Errorf("services %v", got)
	}
}

// startLater starts a node again, on its address of before, without waiting
// for a leader.
func startLater(t testing.TB, n *running) *running {
	t.Helper()
	cfg := n.cfg
	cfg.ListenAddr = n.AdvertiseAddr()
	return run(t, cfg)
}
