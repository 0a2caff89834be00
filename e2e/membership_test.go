// SPDX-License-Identifier: BSD-2-Clause

package e2e

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"
)

// A cluster is made and taken apart with the docker CLI alone.
func TestMembership(t *testing.T) {
	t.Parallel()
	s := newSite(t, 3)
	a, b, c := s.nodes[0], s.nodes[1], s.nodes[2]
	if out := a.docker("swarm", "init", "--advertise-addr", s.addr(0)); !strings.Contains(out, "swarm join --token SWMTKN-1-") || !strings.Contains(out, s.addr(0)+":2377") {
		t.Errorf("init says: %s", out)
	}
	b.refused("invalid join token", "swarm", "join", "--token", "nonsense", s.addr(0)+":2377")
	s.join(1, "worker")
	s.join(2, "manager")
	// A change of leader, as a slow machine may have one, begins with nodes unknown.
	var nodes []clusterNode
	eventually(t, 30*time.Second, "three nodes are ready", func() bool {
		nodes = a.clusterNodes()
		return len(nodes) == 3 && !slices.ContainsFunc(nodes, func(n clusterNode) bool { return n.Status != "Ready" || n.Availability != "Active" })
	})
	b.refused("This node is not a swarm manager", "node", "ls")
	b.refused("This node is not a swarm manager", "service", "ls")
	b.refused("already part of a swarm", "swarm", "join", "--token", a.docker("swarm", "join-token", "-q", "worker"), s.addr(0)+":2377")
	if info := b.docker("info", "--format", "{{json .Swarm}}"); !strings.Contains(info, `"ControlAvailable":false`) || !strings.Contains(info, s.addr(0)+":2377") {
		t.Errorf("info of a worker: %s", info)
	}

	// Any manager answers; a service is spread over all nodes.
	c.docker("service", "create", "-q", "--name", "web", "--replicas", "6", "app:1", "/app")
	eventually(t, 30*time.Second, "six tasks", func() bool { return len(a.running("web")) == 6 })
	if on := a.placement("web"); len(on) != 3 {
		t.Errorf("tasks on %v", on)
	}
	c.docker("service", "create", "-q", "--name", "every", "--mode", "global", "app:1", "/app")
	if got := a.running("every"); len(got) != 3 {
		t.Errorf("%d tasks of a global service", len(got))
	}
	// A worker serves its own containers.
	if ps := b.docker("ps", "--format", "{{.Names}}"); !strings.Contains(ps, "web.") {
		t.Errorf("ps on the worker:\n%s", ps)
	}

	worker := node(t, b)
	a.docker("node", "update", "--label-add", "disk=ssd", worker)
	a.docker("service", "create", "-q", "--name", "pinned", "--constraint", "node.labels.disk==ssd", "app:1", "/app")
	if on := a.placement("pinned"); len(on) != 1 || on[worker] != 1 {
		t.Errorf("pinned on %v, want %s", on, worker)
	}
	a.docker("node", "update", "--availability", "drain", worker)
	eventually(t, 30*time.Second, "drained", func() bool {
		return len(a.running("web")) == 6 && a.placement("web")[worker] == 0 && a.placement("every")[worker] == 0
	})
	a.docker("node", "update", "--availability", "active", worker)

	// Roles.
	a.docker("node", "promote", worker)
	eventually(t, 30*time.Second, "promoted", func() bool { _, _, err := b.try("node", "ls"); return err == nil })
	b.docker("service", "scale", "-d", "web=4")
	eventually(t, 30*time.Second, "scaled by the new manager", func() bool { return len(a.running("web")) == 4 })
	a.docker("node", "demote", worker)
	begun := time.Now()
	eventually(t, 30*time.Second, "demoted", func() bool {
		data, err := b.get("/info")
		return err == nil && strings.Contains(string(data), `"ControlAvailable":false`)
	})
	t.Logf("a worker %v after the demotion", time.Since(begun))

	// The worker leaves; it is Down for the others, and then removed.
	b.docker("swarm", "leave")
	eventually(t, 10*time.Second, "a fresh cluster of one", func() bool {
		out, _, err := b.try("node", "ls", "-q")
		return err == nil && strings.Count(out, "\n") == 1
	})
	eventually(t, 20*time.Second, "its tasks stopped", func() bool { return b.docker("ps", "-q") == "" })
	eventually(t, 30*time.Second, "Down", func() bool {
		return slices.ContainsFunc(a.clusterNodes(), func(n clusterNode) bool { return n.ID == worker && n.Status == "Down" })
	})
	a.docker("node", "rm", worker)
	eventually(t, 30*time.Second, "its tasks replaced", func() bool { return len(a.running("web")) == 4 })
	c.refused("participating as a manager", "swarm", "leave")
	c.docker("swarm", "leave", "--force")
	eventually(t, 30*time.Second, "one manager goes on", func() bool {
		out, _, err := a.try("service", "create", "-d", "--name", "last", "app:1", "/app")
		return err == nil && out != ""
	})
}

// node is the ID of another daemon's node, as asked of the daemon itself.
func node(t *testing.T, of *daemon) string {
	t.Helper()
	var info struct{ NodeID string }
	if err := json.Unmarshal([]byte(of.docker("info", "--format", "{{json .Swarm}}")), &info); err != nil {
		t.Fatal(err)
	}
	return info.NodeID
}

// placement counts a service's running tasks by node.
func (d *daemon) placement(service string) map[string]int {
	d.t.Helper()
	on := map[string]int{}
	for _, x := range d.running(service) {
		on[x.NodeID]++
	}
	return on
}
