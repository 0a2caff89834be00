// SPDX-License-Identifier: BSD-2-Clause

package cluster

import (
	"bufio"
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	gogotypes "github.com/gogo/protobuf/types"
	"github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/manager/state/store"
)

// childDir makes the test binary run a node in the directory named, create a
// service of two tasks, print their IDs once they run, and wait to be killed.
const childDir = "CLUSTER_TEST_CHILD"

func TestChild(t *testing.T) {
	dir := os.Getenv(childDir)
	if dir == "" {
		t.Skip("only as the child process of TestKillAndRestart")
	}
	n := startNode(t, dir, newFake(), nil)
	s := create(t, n, replicas("web", 2))
	ids := []string{s.ID}
	for _, x := range awaitLive(t, n, s.ID, 2) {
		ids = append(ids, x.ID)
	}
	// Short heartbeats, so that TestPause need not be long.
	c, err := n.Control().GetCluster(t.Context(), &api.GetClusterRequest{ClusterID: n.ClusterID()})
	if err != nil {
		t.Fatal(err)
	}
	c.Cluster.Spec.Dispatcher.HeartbeatPeriod = gogotypes.DurationProto(time.Second)
	if _, err := n.Control().UpdateCluster(t.Context(), &api.UpdateClusterRequest{
		ClusterID: n.ClusterID(), ClusterVersion: &c.Cluster.Meta.Version, Spec: &c.Cluster.Spec,
	}); err != nil {
		t.Fatal(err)
	}
	fmt.Println("child:", strings.Join(ids, " "))
	for range 300 {
		time.Sleep(100 * time.Millisecond)
		now := []string{s.ID}
		for _, x := range tasks(n, s.ID) {
			now = append(now, x.ID)
		}
		fmt.Println("tasks:", strings.Join(now, " "), nodeState(n, api.NodeStatus_READY))
	}
}

// startChild starts TestChild in its own process and returns the IDs it prints
// and its further lines.
func startChild(t *testing.T, dir string) (cmd *exec.Cmd, ids []string, lines *bufio.Scanner) {
	t.Helper()
	cmd = exec.Command(os.Args[0], "-test.run=^TestChild$", "-test.v")
	cmd.Env = append(os.Environ(), childDir+"="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	lines = bufio.NewScanner(out)
	for ids == nil && lines.Scan() {
		if line, ok := strings.CutPrefix(lines.Text(), "child: "); ok {
			ids = strings.Fields(line)
		}
	}
	if len(ids) != 3 {
		t.Fatalf("the child said %q", ids)
	}
	return cmd, ids, lines
}

// TestPause stops the whole process for longer than three heartbeats: a machine
// that stood still. Its tasks are not replaced.
func TestPause(t *testing.T) {
	cmd, ids, lines := startChild(t, stateDir(t))
	time.Sleep(6 * time.Second) // one long heartbeat, then short ones
	cmd.Process.Signal(syscall.SIGSTOP)
	time.Sleep(5 * time.Second)
	cmd.Process.Signal(syscall.SIGCONT)
	for until := time.Now().Add(2500 * time.Millisecond); time.Now().Before(until) && lines.Scan(); {
		if line, ok := strings.CutPrefix(lines.Text(), "tasks: "); ok && !sameSet(strings.Fields(line), ids) {
			t.Fatalf("service, tasks and node are %s, were %v", line, ids)
		}
	}
}

func TestKillAndRestart(t *testing.T) {
	dir := stateDir(t)
	cmd, ids, _ := startChild(t, dir)
	cmd.Process.Kill()
	cmd.Wait()

	f := newFake()
	begin := time.Now()
	n := startNode(t, dir, f, nil)
	t.Logf("ready again after %v", time.Since(begin))
	if begun := time.Since(begin); begun > 5*time.Second {
		t.Errorf("a leader after %v", begun)
	}
	eventually(t, 5*time.Second, "node is ready", func() string { return nodeState(n, api.NodeStatus_READY) })
	t.Logf("node READY after %v", time.Since(begin))
	// Long enough for an orchestrator that wants to replace something.
	time.Sleep(500 * time.Millisecond)
	var got []string
	for _, x := range awaitLive(t, n, ids[0], 2) {
		got = append(got, x.ID)
	}
	if !sameSet(got, ids[1:]) {
		t.Errorf("tasks %v run, want the adopted %v", got, ids[1:])
	}
	if all := tasks(n, ids[0]); len(all) != 2 {
		t.Errorf("%d tasks where 2 were adopted", len(all))
	}
	for op, want := range map[string]int{"controller": 2, "wait": 2, "prepare": 0, "start": 0, "shutdown": 0, "remove": 0} {
		if c := f.called(op); c != want {
			t.Errorf("%s called %d times, want %d", op, c, want)
		}
	}
}

// TestRestarts is case store-3: three restarts, a change of address, the loss
// of the raft directory, a change of hostname.
func TestRestarts(t *testing.T) {
	dir := stateDir(t)
	n := startNode(t, dir, newFake(), nil)
	id := n.NodeID()
	s := create(t, n, replicas("web", 1))
	was := awaitLive(t, n, s.ID, 1)[0].ID
	n.stop()
	for i, change := range []func(*Config){
		nil,
		func(c *Config) { c.AdvertiseAddr = "127.0.0.9" },
		func(c *Config) { c.Hostname = "renamed" },
	} {
		f := newFake()
		n = startNode(t, dir, f, change)
		if n.NodeID() != id {
			t.Errorf("restart %d: node ID %s became %s", i, id, n.NodeID())
		}
		if x := awaitLive(t, n, s.ID, 1)[0].ID; x != was || f.called("start") != 0 {
			t.Errorf("restart %d: task %s runs instead of %s", i, x, was)
		}
		eventually(t, 5*time.Second, "one member with the new address", func() string {
			m := n.m().raft.Members()
			if len(m) == 1 && m[0].ID == id && m[0].Addr == n.AdvertiseAddr() && m[0].Leader {
				return ""
			}
			return fmt.Sprintf("%+v, address %s", m, n.AdvertiseAddr())
		})
		if err := n.stop(); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.RemoveAll(dir + "/raft"); err != nil {
		t.Fatal(err)
	}
	f := newFake()
	var logged bytes.Buffer
	n = startNode(t, dir, f, func(c *Config) {
		c.Logger = slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelError}))
	})
	if n.NodeID() != id {
		t.Errorf("node ID %s became %s with the loss of the store", id, n.NodeID())
	}
	if len(n.m().raft.Members()) != 1 {
		t.Errorf("members %+v", n.m().raft.Members())
	}
	eventually(t, 5*time.Second, "the tasks of the lost store are removed", func() string {
		if f.called("remove") == 1 {
			return ""
		}
		return fmt.Sprint(f.called("remove"))
	})
	awaitLive(t, n, create(t, n, replicas("again", 1)).ID, 1)
	n.stop()
	for _, want := range []string{"the cluster's store is gone", "task_id=" + was} {
		if !strings.Contains(logged.String(), want) {
			t.Errorf("the log does not say %q: %s", want, &logged)
		}
	}
}

func nodeState(n *running, want api.NodeStatus_State) string {
	var node *api.Node
	n.Store().View(func(tx store.ReadTx) { node = store.GetNode(tx, n.NodeID()) })
	if node == nil {
		return "no node object"
	}
	if node.Status.State != want {
		return node.Status.State.String()
	}
	return ""
}

func sameSet(a, b []string) bool {
	in := map[string]bool{}
	for _, x := range a {
		in[x] = true
	}
	for _, x := range b {
		if !in[x] {
			return false
		}
	}
	return len(a) == len(b)
}
