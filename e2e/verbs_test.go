// SPDX-License-Identifier: BSD-2-Clause

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"satld/api/wire"
)

// satl runs our own client and returns all it printed, and its exit code.
func (d *daemon) satl(args ...string) (string, int) {
	d.t.Helper()
	out, stderr, err := d.client(filepath.Join(bin, "satl"), nil, args...)
	exit := new(exec.ExitError)
	switch {
	case err == nil:
		return out + stderr, 0
	case errors.As(err, &exit):
		return out + stderr, exit.ExitCode()
	}
	d.t.Fatalf("satl %s: %v", strings.Join(args, " "), err)
	return "", 0
}

// health is the live table of a service.
func (d *daemon) health(service string) (h wire.Health) {
	d.t.Helper()
	out, _, _ := d.client(filepath.Join(bin, "satl"), nil, "health", "--format", "json", service)
	if err := json.Unmarshal([]byte(out), &h); err != nil {
		d.t.Fatalf("health of %s: %v: %s", service, err, out)
	}
	return h
}

// TestHealthVerbs is what satl has beyond docker's commands, with a service
// that is probed by HTTP and leaves traffic long before it is replaced.
func TestHealthVerbs(t *testing.T) {
	t.Parallel()
	d := loaded(t)
	port := d.port(0)
	url := fmt.Sprintf("http://127.0.0.1:%d/", port)
	spec := []string{"--name", "web", "--replicas", "2", "-p", fmt.Sprintf("%d:80", port), "--health-http", "/health",
		"--health-interval", "1s", "--health-timeout", "5s", "--health-retries", "2", "--health-replace-after", "600", "--restart-max-attempts", "3"}

	out, code := d.satl(append(append([]string{"health", "explain"}, spec...), "app:1")...)
	if code != 0 || !strings.Contains(out, "3 x (1 + 5) + 5 = 23 s") || !strings.Contains(out, "GET /health on port 80, 200-399 passes") {
		t.Errorf("explain before it is there: exit %d\n%s", code, out)
	}
	out, code = d.satl(append(append([]string{"service", "create", "-q", "--no-resolve-image", "--wait-timeout", "60s"}, spec...), "app:1")...)
	if code != 0 {
		t.Fatalf("create: exit %d\n%s", code, out)
	}
	out, code = d.satl("health", "explain", "web")
	if code != 0 || !strings.Contains(out, "3 x (1 + 5) + 5 = 23 s") {
		t.Errorf("explain of the service: exit %d\n%s", code, out)
	}
	out, code = d.satl("service", "inspect", "--pretty", "web")
	if code != 0 || !strings.Contains(out, "Worst case out of the pool: 3 x (1 + 5) + 5 = 23 s") || !strings.Contains(out, "0 of 3 attempts used") {
		t.Errorf("inspect --pretty: exit %d\n%s", code, out)
	}
	out, code = d.satl("health", "web")
	if code != 0 || !strings.Contains(out, "web: 2 of 2 tasks serving") || strings.Count(out, "healthy ") != 2 || !strings.Contains(out, "passed ") {
		t.Errorf("health: exit %d\n%s", code, out)
	}
	for _, task := range d.health("web").Tasks {
		if !task.Serving || !task.Ready || task.Verdict != "healthy" || task.UnrouteAfter != 2 || task.ReplaceAfter != 600 || len(task.Log) == 0 {
			t.Errorf("%+v", task)
		}
	}

	hosts := func() map[string]bool {
		seen := map[string]bool{}
		for range 6 {
			if body, err := fetch(url); err == nil {
				seen[body] = true
			}
		}
		return seen
	}
	container := func(slot int) string {
		for _, x := range d.running("web") {
			if x.Slot == slot {
				return x.Status.ContainerStatus.ContainerID
			}
		}
		t.Fatalf("nothing runs in slot %d", slot)
		return ""
	}
	first, second := container(1), container(2)
	only := func(what, id string) {
		t.Helper()
		eventually(t, 10*time.Second, what, func() bool { seen := hosts(); return len(seen) == 1 && seen[id[:12]] })
	}
	both := func(what string) {
		t.Helper()
		eventually(t, 10*time.Second, what, func() bool { return len(hosts()) == 2 && d.health("web").Serving == 2 })
	}
	why := func(what, says string) {
		t.Helper()
		eventually(t, 10*time.Second, what, func() bool {
			h := d.health("web")
			return h.Serving == 1 && strings.Contains(fmt.Sprint(h.Tasks), says)
		})
	}

	// An operator's word on a task.
	if out, code = d.satl("unready", "web.1"); code != 0 || strings.TrimSpace(out) != "web.1" {
		t.Fatalf("unready: exit %d, %s", code, out)
	}
	only("the one that is ready", second)
	why("why web.1 is out", "not ready")
	if out, code = d.satl("health", "web"); code != 1 || !strings.Contains(out, "web: 1 of 2 tasks serving") {
		t.Errorf("health with one unready: exit %d\n%s", code, out)
	}
	d.satl("ready", "web.1")
	both("web.1 is back")

	// Out of traffic for its health, and back, without being replaced.
	d.docker("exec", second, "touch", "/tmp/bad")
	only("the healthy one", first)
	why("why web.2 is out", "unhealthy")
	d.docker("exec", second, "rm", "/tmp/bad")
	both("web.2 is back")
	if container(1) != first || container(2) != second {
		t.Error("a task was replaced")
	}

	// An operator's word on the node does not fail open.
	if out, code = d.satl("service", "update", "-q", "-d", "--fail-open", "web"); code != 0 {
		t.Fatalf("update: exit %d, %s", code, out)
	}
	node := strings.TrimSpace(d.docker("info", "--format", "{{.Swarm.NodeID}}"))
	if out, code = d.satl("unready", "--node", node[:8]); code != 0 {
		t.Fatalf("unready: exit %d, %s", code, out)
	}
	eventually(t, 10*time.Second, "nobody", func() bool { return len(hosts()) == 0 && d.health("web").Serving == 0 })
	d.satl("ready", node)
	both("all are back")
	if out, code = d.satl("unready", "nobody"); code != 1 || !strings.Contains(out, "there is no task and no node nobody") {
		t.Errorf("unready of nobody: exit %d, %s", code, out)
	}
	out, code = d.satl("service", "versions", "web")
	if code != 0 || !strings.Contains(out, "current") || !strings.Contains(out, "app:1") {
		t.Errorf("versions: exit %d\n%s", code, out)
	}
}
