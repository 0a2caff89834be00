// SPDX-License-Identifier: BSD-2-Clause

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// A node that falls silent gets no traffic after two questions without an
// answer, is Down in about 15 s, and its tasks are replaced; what runs there
// runs on and is probed. When it is back the surplus is stopped there.
func TestSilentNode(t *testing.T) {
	t.Parallel()
	s := newSite(t, 3, "--node-health-interval", "500ms", "--node-health-timeout", "500ms")
	a, c := s.nodes[0], s.nodes[2]
	s.join(1, "worker")
	s.join(2, "worker")
	a.docker("service", "create", "-q", "--name", "web", "--replicas", "3", "-p", "8080:80",
		"--health-cmd", "/app -probe http://127.0.0.1/health", "--health-interval", "500ms", "--health-timeout", "10s", "--health-retries", "1", "--stop-grace-period", "1s",
		"--update-monitor", "500ms", "app:1", "/app")
	addr := s.addr(0) + ":8080"
	eventually(t, 30*time.Second, "all three answer", func() bool { return len(s.answers(addr, 9)) == 3 })
	silent := node(t, c)
	lost := c.docker("ps", "-q", "--filter", "name=web")

	// Health is shown where the task is, and nowhere in the store.
	if out := c.docker("inspect", "--format", "{{.State.Health.Status}}", lost); out != "healthy" {
		t.Errorf("health on its node: %q", out)
	}
	a.refused("No such", "inspect", lost)
	if _, body := a.call("GET", "/tasks", nil); strings.Contains(string(body), `"Health":`) {
		t.Errorf("health in the documents of tasks: %s", body)
	}

	cut := time.Now()
	s.cut(2, true)
	eventually(t, 10*time.Second, "no traffic to the silent node", func() bool {
		seen := s.answers(addr, 6)
		return len(seen) == 2 && seen[lost] == 0
	})
	t.Logf("out of traffic %v after the cut", time.Since(cut))
	status := func() string {
		i := slices.IndexFunc(a.clusterNodes(), func(n clusterNode) bool { return n.ID == silent })
		return a.clusterNodes()[i].Status
	}
	if out, _ := a.satl("health", "web"); status() != "Down" && !strings.Contains(out, "its node does not answer") {
		t.Errorf("health:\n%s", out)
	}
	eventually(t, 40*time.Second, "it is Down", func() bool { return status() == "Down" })
	t.Logf("Down %v after the cut", time.Since(cut))
	eventually(t, 30*time.Second, "its task is replaced", func() bool { on := a.placement("web"); return on[silent] == 0 && len(a.running("web")) == 3 })
	eventually(t, 15*time.Second, "the new one answers", func() bool { return len(s.answers(addr, 9)) == 3 })
	if out := c.docker("ps", "--format", "{{.ID}} {{.Status}}"); !strings.Contains(out, lost) || !strings.Contains(out, "(healthy)") {
		t.Errorf("on the silent node: %q", out)
	}

	s.cut(2, false)
	eventually(t, 60*time.Second, "the surplus is stopped", func() bool { return !strings.Contains(c.docker("ps", "-q"), lost) })
	eventually(t, 30*time.Second, "it is Ready", func() bool { return status() == "Ready" })
	if n := len(a.running("web")); n != 3 {
		t.Errorf("%d tasks run", n)
	}
}

// With gating off every task that runs elsewhere is sent traffic, whatever its
// node says, and that is told; an operator's word still counts.
func TestGatingOff(t *testing.T) {
	t.Parallel()
	s := newSite(t, 2, "--node-health-enabled=false")
	a, b := s.nodes[0], s.nodes[1]
	s.join(1, "worker")
	worker := node(t, b)
	a.probed("web", "http=/health http.port=80 replace-after=10m", append(publishes(8080), "--mode", "global", "--health-retries", "1")...)
	addr := s.addr(0) + ":8080"
	eventually(t, 30*time.Second, "both answer", func() bool { return len(s.answers(addr, 6)) == 2 })
	container := b.docker("ps", "-q", "--filter", "name=web")
	b.makeBad(container)
	eventually(t, 20*time.Second, "unhealthy on its node", func() bool {
		return b.docker("inspect", "--format", "{{.State.Health.Status}}", container) == "unhealthy"
	})
	if seen := s.answers(addr, 8); seen[container] != 4 {
		t.Errorf("with gating off it answers %v", seen)
	}
	out, code := a.satl("health", "web")
	if code != 0 || !strings.Contains(out, "web: 2 of 2 tasks serving") || !strings.Contains(out, "unknown (gating off)") {
		t.Errorf("health: exit %d\n%s", code, out)
	}
	if info, err := a.get("/info"); err != nil || !strings.Contains(string(info), "node_health.enabled = false") {
		t.Errorf("info: %v\n%s", err, info)
	}
	a.satl("unready", "--node", worker)
	eventually(t, 10*time.Second, "out by an operator's word", func() bool {
		seen := s.answers(addr, 6)
		return len(seen) == 1 && seen[container] == 0 && !strings.Contains(fmt.Sprint(seen), "error")
	})
}
