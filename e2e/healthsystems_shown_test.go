// SPDX-License-Identifier: BSD-2-Clause

package e2e

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"

	"satld/api/wire"
)

// Health, records and an operator's word across nodes: asked on one, done and
// seen on another.
func TestHealthAcrossNodes(t *testing.T) {
	t.Parallel()
	s := newSite(t, 2)
	a, b := s.nodes[0], s.nodes[1]
	a.docker("swarm", "init", "--advertise-addr", s.addr(0))
	s.join(1, "worker")
	worker := node(t, b)
	a.probed("web", "http=/health http.port=80 replace-after=10m", "--mode", "global", "--health-retries", "2")
	there := func(h wire.Health) (out wire.TaskHealth) {
		for _, x := range h.Tasks {
			if x.NodeID == worker {
				out = x
			}
		}
		return out
	}
	await := func(what string, ok func(h wire.Health, x wire.TaskHealth) bool) {
		t.Helper()
		eventually(t, 60*time.Second, what, func() bool { h := a.health("web"); return ok(h, there(h)) })
	}
	await("both serve", func(h wire.Health, x wire.TaskHealth) bool {
		return h.Desired == 2 && h.Serving == 2 && x.Verdict == "healthy" && len(x.Log) > 0 && x.NextProbe != nil
	})
	var id string // the worker's word of what it serves may come before its report to the manager
	eventually(t, 10*time.Second, "the worker's task is RUNNING", func() bool {
		for _, x := range a.running("web") {
			if x.NodeID == worker {
				id = x.Status.ContainerStatus.ContainerID
			}
		}
		return id != ""
	})
	b.makeBad(id)
	await("why the worker's does not serve", func(h wire.Health, x wire.TaskHealth) bool {
		return h.Serving == 1 && x.Verdict == "unhealthy" && x.FailingStreak >= 2 && strings.Contains(x.Why, "unhealthy") && strings.HasPrefix(x.Log[len(x.Log)-1].Output, "HTTP 503")
	})
	if out, code := a.satl("health", "--no-trunc", "web"); code != 1 || !strings.Contains(out, "web: 1 of 2 tasks serving") || !strings.Contains(out, "HTTP 503") || !strings.Contains(out, "no: ") {
		t.Errorf("health: exit %d\n%s", code, out)
	}
	b.makeGood(id)
	await("it serves again", func(h wire.Health, x wire.TaskHealth) bool { return h.Serving == 2 && x.FailingStreak == 0 })
	if out, code := a.satl("unready", "--node", worker); code != 0 {
		t.Fatalf("unready: exit %d, %s", code, out)
	}
	await("the worker is out", func(h wire.Health, x wire.TaskHealth) bool {
		return h.Serving == 1 && !x.Ready && x.Verdict == "healthy"
	})
	a.satl("ready", worker)
	await("the worker is back", func(h wire.Health, x wire.TaskHealth) bool { return h.Serving == 2 && x.Ready })

	// What fails on the worker leaves its record with the cluster, for good.
	a.probed("bad", "http=/status?code=403 http.port=80", "--mode", "global", "--health-retries", "2", "--restart-condition", "none", "--constraint", "node.id=="+worker)
	version, f := a.awaitRecord(60*time.Second, "bad")
	if version.Reports[0].NodeID != worker || !strings.HasPrefix(f.Detail, "The health path asks for credentials (403)") || f.sequence() != "403 x 2" {
		t.Errorf("record %+v of node %s", f, version.Reports[0].NodeID)
	}
	a.kill()
	a.start()
	eventually(t, 60*time.Second, "the record after a restart", func() bool {
		status, _ := a.call("GET", "/services/bad", nil)
		return status == 200
	})
	if again, _ := a.awaitRecord(30*time.Second, "bad"); again.Version != version.Version || len(again.Reports) != len(version.Reports) {
		t.Errorf("after a restart %+v, was %+v", again, version)
	}
}

// A service that wavers is warned of before its restarts are used up: one
// whose probe fails and passes by turns, and one that has used half of them.
func TestFlapping(t *testing.T) {
	t.Parallel()
	d := loaded(t)
	begun := time.Now()
	d.probed("wavers", "http=/health http.port=80", "--health-retries", "1000")
	d.probed("fails", "http=/status?code=500 http.port=80", "--health-retries", "1", "--restart-max-attempts", "4", "--restart-delay", "500ms")
	id := d.slots("wavers", 1)[1]
	for range 3 {
		d.makeBad(id)
		d.await(30*time.Second, id, "failing", func(c container.InspectResponse) bool { return c.State.Health.FailingStreak > 0 })
		d.makeGood(id)
		d.await(30*time.Second, id, "passing", func(c container.InspectResponse) bool { return c.State.Health.FailingStreak == 0 })
	}
	warns := func(service, says string) {
		t.Helper()
		eventually(t, 60*time.Second, "warning of "+service, func() bool {
			return slices.ContainsFunc(d.health(service).Tasks, func(x wire.TaskHealth) bool { return strings.Contains(x.Flapping, says) })
		})
	}
	warns("wavers", "its probe failed and passed again 3 times in 10m0s")
	if out, code := d.satl("health", "wavers"); code != 0 || !strings.Contains(out, "wavers.1: its probe failed and passed again") {
		t.Errorf("health: exit %d\n%s", code, out)
	}
	if !strings.Contains(d.whole(), `msg="health wavers"`) {
		t.Error("the log does not say that it wavers")
	}
	eventually(t, 90*time.Second, "an event before the budget is used up", func() bool {
		var actions []string
		for _, m := range d.happened(begun, `{"service":["fails"]}`) {
			actions = append(actions, string(m.Action))
		}
		low, out := slices.Index(actions, "restart_budget_low"), slices.Index(actions, "restart_budget_exhausted")
		if out >= 0 && (low < 0 || low > out) {
			t.Fatalf("exhausted before it was warned of: %v", actions)
		}
		return low >= 0 && out >= 0
	})
	if out, _ := d.satl("health", "fails"); !strings.Contains(out, "restart budget exhausted (4/4") {
		t.Errorf("health:\n%s", out)
	}
}

// Before anything is deployed: what a probe amounts to, for each style, with
// the table of trade-offs (spec/healthchecks.txt).
func TestExplainBeforeItIsDeployed(t *testing.T) {
	t.Parallel()
	d := loaded(t)
	for _, c := range []struct {
		args []string
		says []string
	}{
		{[]string{"-p", "8080:80", "--health-cmd", "true"}, []string{"3 x (5 + 3) + 10 + 5 = 39 s", "5 x (5 + 3) + 10 + 5 = 55 s", "SUSTAINED FAILURE NEEDED"}},
		{[]string{"--health-cmd", "true", "--health-interval", "30s", "--health-timeout", "30s", "--health-retries", "3"}, []string{"4 x (30 + 30) + 10 + 5 = 255 s"}},
		{[]string{"-p", "8080:80", "--health-http", "/health", "--health-profile", "automatic"}, []string{"after 5 failures in a row: out of traffic until it passes; after 30: replaced", "given up after 10m"}},
		{[]string{"-p", "8080:80", "--health-http", "/health", "--health-profile", "gate"}, []string{"gate", "200 passes", "given up after 3m1s at most"}},
		{[]string{"--health-tcp", "5432", "--health-action", "none"}, []string{"is only shown"}},
		{[]string{"--health-file", "/run/health"}, []string{"/run/health"}},
		{nil, []string{"No probe: a task gets traffic as soon as its process runs"}},
	} {
		out, code := d.satl(append(append([]string{"health", "explain"}, c.args...), "--name", "web", "app:1")...)
		for _, want := range c.says {
			if code != 0 || !strings.Contains(out, want) {
				t.Errorf("explain %v: exit %d, no %q in\n%s", c.args, code, want, out)
			}
		}
	}
	if out, code := d.satl("health", "explain", "--health-http", "health", "--health-port", "80", "--name", "web", "app:1"); code == 0 || !strings.Contains(out, "must start with /") {
		t.Errorf("explain of nonsense: exit %d, %s", code, out)
	}
	if out := d.docker("service", "ls", "-q"); out != "" {
		t.Errorf("something was deployed: %s", out)
	}
}

// Every example of docs/health.md is taken as it stands, but for its image and
// ports, and those of which the tests' application is one serve.
func TestExamplesOfTheDocument(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/health.md")
	if err != nil {
		t.Fatal(err)
	}
	d := &apps{daemon: loaded(t)}
	blocks := examples(string(text))
	var names []string
	for i, block := range blocks {
		for _, image := range []string{"nginx:1", "web:1", "web:2", "model:1", "worker:1", "batch:1"} {
			block = strings.ReplaceAll(block, "registry.example.com/"+image, "app:1")
		}
		for _, port := range []string{"8080:", "9000:"} {
			block = strings.ReplaceAll(block, port, fmt.Sprintf("%d:", d.port(i)))
		}
		name := fmt.Sprintf("example%d", i)
		switch {
		case strings.HasPrefix(block, "services:"):
			d.deploy(name, block)
			names = append(names, name)
		case strings.HasPrefix(block, "docker service create"):
			argv := words(strings.ReplaceAll(block, "\\\n", " "))
			d.docker(append([]string{argv[1], argv[2], "-d", "--no-resolve-image"}, argv[3:]...)...)
			names = append(names, argv[slices.Index(argv, "--name")+1])
		}
	}
	if len(names) < 6 {
		t.Fatalf("only %d examples: %q", len(names), names)
	}
	// The one with a command is as in Docker; the one that is automatic is asked
	// after ten seconds, the one that is gated after three.
	serves := 0
	for _, name := range names {
		for _, service := range []string{name, name + "_web"} {
			if status, _ := d.call("GET", "/services/"+service, nil); status != 200 || service == "model" {
				continue
			}
			serves++
			eventually(t, 60*time.Second, service+" serves", func() bool { h := d.health(service); return h.Desired > 0 && h.Serving == h.Desired })
		}
	}
	if serves < 4 {
		t.Errorf("only %d of them serve", serves)
	}
}

// examples are the blocks of a document that stand as code, without their
// indentation.
func examples(text string) (blocks []string) {
	var block strings.Builder
	for line := range strings.Lines(text + "\nend\n") {
		code, ok := strings.CutPrefix(line, "    ")
		ok = ok && !strings.HasPrefix(code, "$ ") // what is typed at a prompt is an example of its own
		switch {
		case ok:
			block.WriteString(code)
		case strings.TrimSpace(line) == "" && block.Len() > 0:
			block.WriteString("\n")
		case block.Len() > 0:
			blocks = append(blocks, strings.TrimSpace(block.String())+"\n")
			block.Reset()
		}
	}
	return blocks
}

// words splits a command line, as a shell does where there are but single quotes.
func words(line string) (argv []string) {
	for i, part := range strings.Split(line, "'") {
		if i%2 == 1 {
			argv = append(argv, part)
		} else {
			argv = append(argv, strings.Fields(part)...)
		}
	}
	return argv
}
