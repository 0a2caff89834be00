// SPDX-License-Identifier: BSD-2-Clause

package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"

	"satld/internal/slowday"
)

// watched makes a service with a probe, on every node.
func (d *daemon) watched(name string, more ...string) {
	d.t.Helper()
	d.docker(slices.Concat([]string{"service", "create", "-d", "--name", name, "--health-cmd", "/app -probe http://127.0.0.1/health",
		"--health-interval", "1s", "--health-timeout", "10s", "--stop-grace-period", "1s", "--restart-delay", "100ms"}, more, []string{"app:1", "/app"})...)
}

// held is the one container of a service on a node.
func (d *daemon) held(service string) container.InspectResponse {
	d.t.Helper()
	ids := strings.Fields(d.docker("ps", "-q", "--no-trunc", "--filter", "name="+service+"."))
	if len(ids) != 1 {
		d.t.Fatalf("containers of %s here: %v", service, ids)
	}
	c, _ := d.look(ids[0])
	return c
}

// stillProbed waits for another probe of a container that nobody touched.
func (d *daemon) stillProbed(before container.InspectResponse) {
	d.t.Helper()
	since := time.Now()
	now := d.await(15*time.Second, before.ID, "probed again", func(c container.InspectResponse) bool {
		return c.State.Running && c.State.Health != nil && len(c.State.Health.Log) > 0 && c.State.Health.Log[len(c.State.Health.Log)-1].Start.After(since)
	})
	if now.State.Pid != before.State.Pid || now.State.Health.Status != "healthy" {
		d.t.Errorf("pid %d, %s; was pid %d", now.State.Pid, now.State.Health.Status, before.State.Pid)
	}
}

// leaderless waits until a manager has noticed that nobody leads.
func (d *daemon) leaderless() {
	d.t.Helper()
	eventually(d.t, 30*time.Second, "without a leader", func() bool {
		data, err := d.get("/info")
		return err == nil && strings.Contains(string(data), "the cluster has no leader")
	})
}

// onlyReads checks that a manager without a majority answers what it knows, at
// once, and refuses changes, in time.
func (d *daemon) onlyReads(service string) {
	d.t.Helper()
	for _, read := range [][]string{
		{"service", "ls"}, {"service", "ps", service}, {"service", "inspect", service}, {"node", "ls"}, {"network", "ls"}, {"ps"}, {"info"},
	} {
		begun := time.Now()
		if out := d.docker(read...); read[0] == "service" && !strings.Contains(out, service) {
			d.t.Errorf("docker %s: %s", strings.Join(read, " "), out)
		}
		if took := time.Since(begun); took > slowday.Of(4*time.Second) { // a leader would be waited for longer
			d.t.Errorf("docker %s took %v", strings.Join(read, " "), took)
		}
	}
	begun := time.Now()
	status, answer := d.call("POST", "/services/create", serviceSpec("no", nil))
	if status != 503 || !strings.Contains(string(answer), "try again") {
		d.t.Errorf("a change without a majority: %d %s", status, answer)
	}
	if took := time.Since(begun); took > slowday.Of(15*time.Second) {
		d.t.Errorf("it was refused after %v", took)
	}
}

// A manager that is cut off shows what it knows, refuses changes, and its
// tasks run and are probed; back on the wire it is as before. Then its address
// changes.
func TestMinority(t *testing.T) {
	t.Parallel()
	s := newSite(t, 3)
	a, c := s.nodes[0], s.nodes[2]
	s.join(1, "manager")
	s.join(2, "manager")
	a.watched("web", "--replicas", "3")
	eventually(t, 30*time.Second, "a task on each", func() bool { return len(a.placement("web")) == 3 })
	eventually(t, 10*time.Second, "known to all", func() bool { return len(c.running("web")) == 3 })
	here := c.held("web")
	s.cut(2, true)
	c.leaderless()
	c.onlyReads("web")
	c.stillProbed(here)
	a.docker("service", "create", "-d", "--name", "meanwhile", "--constraint", "node.id=="+node(t, a), "app:1", "/app")
	s.cut(2, false)
	eventually(t, 30*time.Second, "it follows again", func() bool {
		out, _, err := c.try("service", "ls", "--format", "{{.Name}}")
		return err == nil && strings.Contains(out, "meanwhile")
	})
	eventually(t, 30*time.Second, "it takes changes again", func() bool {
		_, _, err := c.try("service", "rm", "meanwhile")
		return err == nil
	})

	c.term()
	s.in(s.host(2), "addr", "del", s.addr(2)+"/24", "dev", "eth0")
	s.in(s.host(2), "addr", "add", "10.77.0.33/24", "dev", "eth0")
	s.in(s.host(2), "route", "replace", "default", "via", "10.77.0.254")
	c.start()
	eventually(t, 30*time.Second, "known under its new address", func() bool {
		return a.docker("node", "inspect", "--format", "{{.ManagerStatus.Addr}} {{.ManagerStatus.Reachability}} {{.Status.State}}", node(t, c)) ==
			"10.77.0.33:2377 reachable ready"
	})
	c.docker("service", "scale", "-d", "web=4")
}

// Two of three managers are lost for good: the last goes on alone, with its
// containers as they were, and takes others in. Then the flag does the same.
func TestLostQuorum(t *testing.T) {
	t.Parallel()
	s := newSite(t, 4)
	a, d := s.nodes[0], s.nodes[3]
	s.join(1, "manager")
	s.join(2, "manager")
	a.watched("web", "--replicas", "3", "-p", "8080:80")
	eventually(t, 30*time.Second, "a task on each", func() bool { return len(a.placement("web")) == 3 })
	lost := []string{node(t, s.nodes[1]), node(t, s.nodes[2])}
	here, before := a.held("web"), a.service("web")
	for i := 1; i < 3; i++ {
		s.nodes[i].kill()
		s.cut(i, true)
	}
	a.leaderless()
	a.onlyReads("web")
	if out := a.docker("swarm", "init", "--force-new-cluster"); !strings.Contains(out, "is now a manager") {
		t.Errorf("init --force-new-cluster says %s", out)
	}
	for _, id := range lost {
		a.docker("node", "rm", "--force", id)
	}
	eventually(t, 30*time.Second, "three tasks here", func() bool { return a.placement("web")[node(t, a)] == 3 })
	if now := a.service("web"); now.ID != before.ID || now.Version != before.Version {
		t.Errorf("the service is %s of version %d, was %s of %d", now.ID, now.Version.Index, before.ID, before.Version.Index)
	}
	a.stillProbed(here)
	s.join(3, "manager")
	if nodes := d.clusterNodes(); len(nodes) != 2 {
		t.Errorf("nodes %+v", nodes)
	}
	d.docker("service", "scale", "-d", "web=4")
	eventually(t, 30*time.Second, "four tasks", func() bool { return len(a.running("web")) == 4 })

	gone := node(t, d)
	d.kill()
	s.cut(3, true)
	a.leaderless()
	a.term()
	a.extra = append(a.extra, "--force-new-cluster")
	a.start()
	a.docker("node", "rm", "--force", gone)
	eventually(t, 30*time.Second, "four tasks here", func() bool { return a.placement("web")[node(t, a)] == 4 })
	a.stillProbed(here)
	eventually(t, 10*time.Second, "it answers", func() bool { _, err := s.fetch(s.addr(0) + ":8080"); return err == nil })
}

// The state of a lost manager goes on at another machine with another address:
// the same services, tokens and node. What is no whole backup is refused.
func TestBackupRestore(t *testing.T) {
	t.Parallel()
	s := newSite(t, 3)
	a, b, c := s.nodes[0], s.nodes[1], s.nodes[2]
	s.join(1, "worker")
	a.watched("web", "--replicas", "2", "-p", "8080:80")
	eventually(t, 30*time.Second, "a task on each", func() bool { return len(a.placement("web")) == 2 })
	file := filepath.Join(a.dir, "cluster.tar")
	if out, stderr, err := a.client(filepath.Join(bin, "satl"), nil, "swarm", "backup", file); err != nil {
		t.Fatalf("satl swarm backup: %v %s%s", err, out, stderr)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the backup: %v %v", info, err)
	}
	check := exec.Command("sh", "-c", "mkdir x && tar xf cluster.tar -C x && cd x && sha256sum -c SHA256SUMS")
	check.Dir = a.dir
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("sha256sum: %v %s", err, out)
	}
	if _, stderr, err := b.client(filepath.Join(bin, "satl"), nil, "swarm", "backup", filepath.Join(b.dir, "no")); err == nil || !strings.Contains(stderr, "not a swarm manager") {
		t.Errorf("backup on a worker: %v %s", err, stderr)
	}
	before, id, tokens := a.service("web"), node(t, a), a.docker("swarm", "join-token", "-q", "manager")
	a.docker("service", "create", "-d", "--name", "later", "app:1", "/app")
	a.kill()
	s.cut(0, true)

	restore := func(file string) (string, error) {
		args := append([]string{"--net=" + netnsDir + c.netns, "--", filepath.Join(bin, "satld"), "restore", file}, c.flags()...)
		out, err := exec.Command("nsenter", args...).CombinedOutput()
		return string(out), err
	}
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if out, err := restore(file); err == nil || !strings.Contains(out, "another satld") {
		t.Errorf("restored under a daemon: %s", out)
	}
	c.term()
	if out, err := restore(file); err == nil || !strings.Contains(out, "has the state of a cluster already") {
		t.Errorf("restored over a cluster: %s", out)
	}
	for _, name := range []string{"raft", "certificates", "cluster.json"} {
		if err := os.Rename(filepath.Join(c.state, name), filepath.Join(c.dir, name)); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
	}
	part := filepath.Join(a.dir, "part.tar")
	for _, damage := range [][]byte{whole[:len(whole)/2], bytes.Replace(whole, []byte("web"), []byte("wob"), 1)} {
		if err := os.WriteFile(part, damage, 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := restore(part); err == nil || !strings.Contains(out, part) {
			t.Errorf("a damaged backup: %v %s", err, out)
		}
		if left, _ := filepath.Glob(filepath.Join(c.state, "[rc][ae][fr]t*")); len(left) > 0 {
			t.Errorf("left behind %v", left)
		}
	}
	out, err := restore(file)
	if err != nil || !strings.Contains(out, "1 services, 2 nodes") || !strings.Contains(out, id) {
		t.Fatalf("restore: %v %s", err, out)
	}
	c.start()
	if now := node(t, c); now != id {
		t.Errorf("node %s, was %s", now, id)
	}
	if now := c.service("web"); now.ID != before.ID || now.Version != before.Version || c.docker("service", "ls", "-q") == "" {
		t.Errorf("service %s of version %d, was %s of %d", now.ID, now.Version.Index, before.ID, before.Version.Index)
	}
	if now := c.docker("swarm", "join-token", "-q", "manager"); now != tokens {
		t.Errorf("token %s, was %s", now, tokens)
	}
	if nodes := c.clusterNodes(); len(nodes) != 2 {
		t.Errorf("nodes %+v", nodes)
	}
	// The manager's address is another, so the worker is told by hand.
	old := node(t, b)
	b.docker("swarm", "leave")
	b.docker("swarm", "join", "--token", c.docker("swarm", "join-token", "-q", "worker"), s.addr(2)+":2377")
	c.docker("node", "rm", "--force", old)
	eventually(t, 60*time.Second, "two tasks on the nodes of today", func() bool {
		on := c.placement("web")
		return on[id]+on[node(t, b)] == 2 && len(c.running("web")) == 2
	})
	eventually(t, 10*time.Second, "it answers", func() bool { _, err := s.fetch(s.addr(2) + ":8080"); return err == nil })
	if n := len(c.clusterNodes()); n != 2 {
		t.Errorf("%d nodes", n)
	}
}

// The rest of what an operator does to a cluster, in Docker's words.
func TestOperations(t *testing.T) {
	t.Parallel()
	s := newSite(t, 4)
	a, b, c, d := s.nodes[0], s.nodes[1], s.nodes[2], s.nodes[3]
	s.join(1, "manager")
	s.join(2, "worker")
	eventually(t, 10*time.Second, "all ready", func() bool {
		return !slices.ContainsFunc(a.clusterNodes(), func(n clusterNode) bool { return n.Status != "Ready" })
	})
	a.refused("This node is already part of a swarm", "swarm", "init")
	a.refused("participating as a manager", "swarm", "leave")
	a.refused("is not down and can't be removed", "node", "rm", node(t, c))
	a.refused("must be demoted", "node", "rm", "--force", node(t, b))
	c.refused("This node is not a swarm manager", "node", "ls")

	// Tokens: the one of before is nobody's.
	old := a.docker("swarm", "join-token", "-q", "worker")
	if now := b.docker("swarm", "join-token", "-q", "--rotate", "worker"); now == old || now != a.docker("swarm", "join-token", "-q", "worker") {
		t.Errorf("rotated token %s, was %s", now, old)
	}
	d.refused("valid join token is necessary", "swarm", "join", "--token", old, s.addr(0)+":2377")
	d.docker("service", "create", "-d", "--name", "own", "app:1", "/app")
	d.refused("This node is already part of a swarm", "swarm", "join", "--token", a.docker("swarm", "join-token", "-q", "worker"), s.addr(0)+":2377")

	// Certificates: their life, and a new authority for all, which leaves the
	// tasks alone.
	a.watched("web", "--mode", "global")
	eventually(t, 30*time.Second, "a task on each", func() bool { return len(a.running("web")) == 3 })
	here := c.held("web")
	a.docker("swarm", "update", "--cert-expiry", "2h")
	eventually(t, 10*time.Second, "known on all", func() bool { return strings.Contains(b.docker("info"), "Expiry Duration: 2 hours") })
	root := a.docker("swarm", "ca")
	a.docker("swarm", "ca", "--rotate", "--quiet")
	now := a.docker("swarm", "ca")
	if now == root {
		t.Error("the authority is the old one")
	}
	for i, n := range s.nodes[:3] {
		eventually(t, 10*time.Second, fmt.Sprintf("node %d trusts the new authority alone", i), func() bool {
			data, err := os.ReadFile(filepath.Join(n.state, "certificates", "swarm-root-ca.crt"))
			return err == nil && strings.TrimSpace(string(data)) == now
		})
	}
	c.stillProbed(here)
	d.docker("service", "rm", "own")
	s.join(3, "worker")
	eventually(t, 30*time.Second, "a task on the new node", func() bool { return len(a.running("web")) == 4 })
	for _, n := range a.clusterNodes() {
		if n.Status != "Ready" {
			t.Errorf("%+v", n)
		}
	}

	// Placement: by preference over two racks, and none on a node that is paused.
	for i, rack := range []string{"1", "2", "2", "2"} {
		a.docker("node", "update", "--label-add", "rack="+rack, node(t, s.nodes[i]))
	}
	a.docker("node", "update", "--availability", "pause", node(t, d))
	a.docker("service", "create", "-d", "--name", "spread", "--replicas", "4", "--placement-pref", "spread=node.labels.rack", "app:1", "/app")
	eventually(t, 30*time.Second, "placed", func() bool { return len(a.running("spread")) == 4 })
	if on := a.placement("spread"); on[node(t, a)] != 2 || on[node(t, d)] != 0 {
		t.Errorf("spread over the racks as %v", on)
	}
	if len(a.running("web")) != 4 {
		t.Error("a paused node lost its task")
	}
}
