// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/docker/docker/api/types/swarm"

	"satld/api/wire"
)

// answering is a daemon that answers with fixed values, by method and path,
// and keeps the bodies that it was sent.
func answering(t *testing.T, answers map[string]any) (*daemon, func(request string) string) {
	t.Helper()
	var mu sync.Mutex
	bodies := map[string]string{}
	d := startDaemon(t, func(w http.ResponseWriter, r *http.Request) {
		request := r.Method + " " + versioned.ReplaceAllString(r.URL.Path, "")
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		bodies[request] = string(body)
		mu.Unlock()
		answer, ok := answers[request]
		if status, is := answer.(int); is {
			w.WriteHeader(status)
			fmt.Fprint(w, `{"message":"it is refused"}`)
			return
		}
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"message":"no such thing"}`)
			return
		}
		_ = json.NewEncoder(w).Encode(answer)
	})
	return d, func(request string) string {
		mu.Lock()
		defer mu.Unlock()
		return bodies[request]
	}
}

// expect runs satl and checks what comes of it.
func expect(t *testing.T, d *daemon, code int, out, stderr []string, args ...string) {
	t.Helper()
	stdout, errs, got := satl(t, []string{EnvHost + "=" + d.socket}, args...)
	bad := got != code
	for _, part := range out {
		bad = bad || !strings.Contains(stdout, part)
	}
	for _, part := range stderr {
		bad = bad || !strings.Contains(errs, part)
	}
	if bad || stderr == nil && errs != "" {
		t.Errorf("satl %s: exit %d, want %d\nstdout: %s\nwant %q\nstderr: %s\nwant %q", strings.Join(args, " "), got, code, stdout, out, errs, stderr)
	}
}

func table() wire.Health {
	now := time.Now()
	next := now.Add(3500 * time.Millisecond)
	return wire.Health{
		ID: "svc", Name: "web", Desired: 3, Serving: 1, Probed: true,
		Budget: wire.Budget{Text: "1 of 3 attempts used in slot 2"},
		Tasks: []wire.TaskHealth{
			{ID: "task1aaaaaaaaaaaaaaaaaaaaa", Name: "web.1", Node: "vm", State: "running", Since: now.Add(-time.Minute), Serving: true, Verdict: "healthy",
				UnrouteAfter: 2, ReplaceAfter: 2, NextProbe: &next, Log: []wire.Result{{End: now.Add(-1500 * time.Millisecond)}}},
			{ID: "task2aaaaaaaaaaaaaaaaaaaaa", Name: "web.2", Node: "vm", State: "running", Since: now.Add(-time.Hour), Verdict: "unhealthy", FailingStreak: 7,
				Why: "withdrawn: unhealthy: 5/5 probes failed", UnrouteAfter: 5, ReplaceAfter: 30, Flapping: "its health changed 6 times in 10m",
				Log: []wire.Result{{End: now.Add(-1500 * time.Millisecond), ExitCode: 1, Output: "503 Service\x1b[31m Unavailable\n"}}},
			{ID: "task3aaaaaaaaaaaaaaaaaaaaa", Name: "web.3", Node: "", State: "running", Verdict: "unknown", Why: "its node has not told", Since: now},
			{ID: "task4aaaaaaaaaaaaaaaaaaaaa", Name: "web.4", Node: "vm", State: "running", Verdict: "unhealthy", FailingStreak: 2, UnrouteAfter: 2, Why: "stopping: unhealthy", Since: now,
				Log: []wire.Result{{End: now.Add(-1500 * time.Millisecond), ExitCode: 1}}},
		},
	}
}

func TestHealthVerb(t *testing.T) {
	whole := table()
	whole.Serving = 3
	open := table()
	open.FailingOpen, open.Serving = true, 3
	d, _ := answering(t, map[string]any{
		"GET /satl/v1/services/web/health": table(), "GET /satl/v1/services/whole/health": whole, "GET /satl/v1/services/open/health": open,
		"GET /satl/v1/services/none/health": wire.Health{Name: "none", Budget: wire.Budget{Text: "unlimited"}},
		"GET /satl/v1/services/down/health": 503,
	})
	expect(t, d, 1, []string{
		"web: 1 of 3 tasks serving\n", "restarts: 1 of 3 attempts used in slot 2\n",
		"TASK           NAME    NODE   STATE", "task1aaaaaaa   web.1   vm     running 1m ", "healthy     0/2", "passed 1.", "3.", "yes",
		"unhealthy   7/5/30", "failed 1.", "503 Service[31m Unav...", "running", "no: withdrawn: unhealthy: 5/5 probes failed",
		"web.3   -     ", "unknown ", "no: its node has not told", "-         no: stopping: unhealthy\n", "web.2: its health changed 6 times in 10m\n",
	}, nil, "health", "web")
	expect(t, d, 0, []string{"3 of 3 tasks serving"}, nil, "health", "whole")
	expect(t, d, 0, []string{"failing open"}, nil, "health", "open")
	expect(t, d, 0, []string{"none: 0 of 0 tasks serving", "it has no probe"}, nil, "health", "none")
	expect(t, d, 1, []string{"task1aaaaaaaaaaaaaaaaaaaaa\ntask2aaaaaaaaaaaaaaaaaaaaa\n"}, nil, "health", "-q", "web")
	expect(t, d, 1, []string{"task1aaaaaaaaaaaaaaaaaaaaa   web.1"}, nil, "health", "--no-trunc", "web")
	expect(t, d, 1, []string{"1/3\n"}, nil, "health", "--format", "{{.Serving}}/{{.Desired}}", "web")
	expect(t, d, 1, []string{`"FailingStreak": 7`}, nil, "health", "--format", "json", "web")
	expect(t, d, 64, nil, []string{"template parsing error"}, "health", "--format", "{{", "web")
	expect(t, d, 1, nil, []string{"Error response from daemon: no such thing"}, "health", "nope")
	expect(t, d, 1, nil, []string{"Error response from daemon: it is refused"}, "health", "down")
	expect(t, d, 1, nil, []string{"requires 1 argument"}, "health")
	stdout, _, _ := satl(t, []string{EnvHost + "=" + d.socket}, "health", "web")
	if strings.ContainsRune(stdout, 0x1b) {
		t.Error("a probe's output reaches the terminal as it is")
	}
	if _, stderr, code := satl(t, []string{EnvHost + "=/nonexistent"}, "health", "web"); code != 1 || !strings.Contains(stderr, "Cannot connect to satld at unix:///nonexistent. Is it running?") {
		t.Errorf("no daemon: %d, %s", code, stderr)
	}
}

// TestHealthWatch: it goes on until the service is gone.
func TestHealthWatch(t *testing.T) {
	var mu sync.Mutex
	looks := 0
	d := startDaemon(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		looks++
		gone := looks > 2
		mu.Unlock()
		if gone {
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"message":"service web not found"}`)
			return
		}
		_ = json.NewEncoder(w).Encode(table())
	})
	stdout, stderr, code := satl(t, []string{EnvHost + "=" + d.socket}, "health", "--watch", "web")
	if code != 1 || !strings.Contains(stderr, "service web not found") || strings.Count(stdout, "web: 1 of 3 tasks serving") != 2 {
		t.Errorf("exit %d\n%s\n%s", code, stdout, stderr)
	}
}

func TestReadyVerbs(t *testing.T) {
	d, _ := answering(t, map[string]any{
		"POST /satl/v1/tasks/web.1/unready": nil, "POST /satl/v1/tasks/web.1/ready": nil,
		"POST /satl/v1/nodes/vm/unready": nil, "POST /satl/v1/nodes/web.1/ready": nil, "POST /satl/v1/tasks/bad/ready": 409,
	})
	expect(t, d, 0, []string{"web.1\n"}, nil, "unready", "web.1")
	expect(t, d, 0, []string{"web.1\nvm\n"}, nil, "unready", "web.1", "vm")
	expect(t, d, 0, []string{"web.1\n"}, nil, "ready", "--node", "web.1")
	expect(t, d, 1, []string{"web.1\n"}, []string{"there is no task and no node nope"}, "ready", "nope", "web.1")
	expect(t, d, 1, nil, []string{"there is no task and no node a/b"}, "ready", "a/b")
	expect(t, d, 1, nil, []string{"it is refused"}, "ready", "bad")
	expect(t, d, 1, nil, []string{"requires at least 1 argument"}, "ready")
	asked, _ := d.requests()
	if want := "POST /satl/v1/nodes/vm/unready"; !slices.Contains(asked, want) {
		t.Errorf("asked %q", asked)
	}
}

func TestVersionsVerb(t *testing.T) {
	d, _ := answering(t, map[string]any{"GET /satl/v1/services/web/versions": wire.Versions{ID: "svc", Name: "web", Versions: []wire.Version{
		{Version: 12, Image: "app:2", State: "current", Failed: true, Running: 1, Update: &swarm.UpdateStatus{State: "paused", Message: "update paused due to failure"},
			Reports: []wire.Report{{TaskID: "t9", Slot: 2, Node: "vm", At: time.Now().Add(-time.Minute),
				Record: json.RawMessage(`{"state":"failed","step":"health_gate","detail":"No route at the health path.","gate":{"ended_early":true}}`)}}},
		{Version: 1, Image: "app:1", State: "previous", Running: 2},
	}}})
	expect(t, d, 0, []string{
		"VERSION   IMAGE   STATE      RUNNING   FAILED   UPDATE\n", "12        app:2   current    1         1 task   paused: update paused due to failure\n",
		"1         app:1   previous   2         -", "version 12, web.2 (task t9 on vm), About a minute ago: failed health_gate\n  No route at the health path.\n",
	}, nil, "service", "versions", "web")
	expect(t, d, 0, []string{"12\n1\n"}, nil, "service", "versions", "-q", "web")
	expect(t, d, 0, []string{`"ended_early": true`}, nil, "service", "versions", "--reports", "web")
	expect(t, d, 0, []string{"app:2 app:1 \n"}, nil, "service", "versions", "--format", "{{range .Versions}}{{.Image}} {{end}}", "web")
	expect(t, d, 1, nil, []string{"no such thing"}, "service", "versions", "nope")
}

// TestHints: the commands that satl names are its own, for docker's would go to
// another daemon. A token alone is as it is.
func TestHints(t *testing.T) {
	d, _ := answering(t, map[string]any{
		"GET /swarm": swarm.Swarm{JoinTokens: swarm.JoinTokens{Worker: "SWMTKN-1-x", Manager: "SWMTKN-1-y"}}, "POST /swarm/init": "n1",
		"GET /info":     map[string]any{"Swarm": swarm.Info{NodeID: "n1"}},
		"GET /nodes/n1": swarm.Node{ID: "n1", ManagerStatus: &swarm.ManagerStatus{Addr: "192.0.2.1:2377"}},
	})
	expect(t, d, 0, []string{"\n    satl swarm join --token SWMTKN-1-x 192.0.2.1:2377\n\n"}, nil, "swarm", "join-token", "worker")
	expect(t, d, 0, []string{"SWMTKN-1-y\n"}, nil, "swarm", "join-token", "-q", "manager")
	expect(t, d, 0, []string{"\n    satl swarm join --token SWMTKN-1-x 192.0.2.1:2377\n\n", "run 'satl swarm join-token manager' and"}, nil, "swarm", "init")
}

func TestAppsVerb(t *testing.T) {
	up := wire.App{Name: "shop", Healthy: true, Gated: true, Rule: "every probed container is healthy", Checked: time.Now().Add(-2*time.Hour - 10*time.Minute)}
	down := wire.App{Name: "blog", Gated: true, Rule: "no containers"}
	d, _ := answering(t, map[string]any{
		"GET /satl/v1/apps": []wire.App{up, down}, "GET /satl/v1/apps/shop": up, "GET /satl/v1/apps/blog": down,
	})
	expect(t, d, 0, []string{"NAME   HEALTHY   GATED   CHECKED     WHY\n", "shop   yes       yes     2", "blog   no        yes     not yet     no containers"}, nil, "apps")
	expect(t, d, 0, []string{"shop\nblog\n"}, nil, "apps", "-q")
	expect(t, d, 0, []string{"shop: healthy (every probed container is healthy), checked 2"}, nil, "apps", "shop")
	expect(t, d, 1, []string{"blog: not healthy (no containers), checked not yet"}, nil, "apps", "blog")
	expect(t, d, 1, []string{"false\n"}, nil, "apps", "--format", "{{.Healthy}}", "blog")
	expect(t, d, 1, nil, []string{"no such thing"}, "apps", "nope")
}

func explanation() wire.Explanation {
	return wire.Explanation{
		Probe: &wire.Probe{Kind: "exec", Text: "exit code 0 of: x", Profile: "docker", Action: "replace", Interval: 5 * time.Second, Timeout: 3 * time.Second,
			First: 5 * time.Second, StartInterval: 5 * time.Second, UnrouteAfter: 2, ReplaceAfter: 2},
		Bounds: &wire.Bounds{Sustained: 10 * time.Second, OutOfPoolText: "3 x (5 + 3) + 10 + 5 = 39 s", ReplacedText: "3 x (5 + 3) + 10 = 34 s", FirstPass: 5 * time.Second, StartFailed: 16 * time.Second, Drain: 5 * time.Second},
		Table: []wire.Row{
			{Setting: "as it is", Interval: 5 * time.Second, Timeout: 3 * time.Second, Retries: 2, Sustained: 10 * time.Second, Text: "3 x (5 + 3) + 10 + 5 = 39 s"},
			{Setting: "retries 4", Interval: 5 * time.Second, Timeout: 3 * time.Second, Retries: 4, Sustained: 20 * time.Second, Text: "5 x (5 + 3) + 10 + 5 = 55 s"},
		},
		Warnings: []string{"service web: mind the gap"},
	}
}

// TestExplainVerb: of a service that is there, or of the flags of create, with
// which nothing is created.
func TestExplainVerb(t *testing.T) {
	patient := explanation()
	patient.Bounds.StartFailed, patient.Warnings = 0, nil
	d, body := answering(t, map[string]any{
		"POST /satl/v1/health/explain": explanation(), "GET /satl/v1/services/web": wire.Service{Name: "web", Explain: explanation()},
		"GET /satl/v1/services/bare":    wire.Service{Name: "bare"},
		"GET /satl/v1/services/patient": wire.Service{Name: "patient", Explain: patient},
	})
	says := []string{
		"exit code 0 of: x\n", "every 5s, timeout 3s", "after 2 failures in a row: out of traffic and replaced", "5s after the start",
		"is given up after 16s at most", "Worst case out of the pool   3 x (5 + 3) + 10 + 5 = 39 s\n", "retries 4", "55 s\n", "Drain",
	}
	expect(t, d, 0, says, []string{"WARNING: service web: mind the gap\n"}, "health", "explain", "web")
	if got := body("POST /satl/v1/health/explain"); got != "" {
		t.Errorf("a service that is there was sent: %s", got)
	}
	expect(t, d, 0, []string{"No probe"}, nil, "health", "explain", "bare")
	expect(t, d, 1, nil, []string{"no such thing\nof a service that is not there yet"}, "health", "explain", "nope")
	expect(t, d, 1, nil, []string{"nothing is called registry.example.com/app:1: no name has a / in it\nof a service that is not there yet"}, "health", "explain", "registry.example.com/app:1")
	expect(t, d, 0, []string{"is waited for, however long it takes\n"}, nil, "health", "explain", "patient")
	expect(t, d, 0, says, []string{"mind the gap"}, "health", "explain", "--name", "web", "-p", "8080:80", "--health-cmd", "x", "--health-interval", "5s", "--drain", "5s", "app:1", "serve", "--fast")
	var spec swarm.ServiceSpec
	if err := json.Unmarshal([]byte(body("POST /satl/v1/health/explain")), &spec); err != nil {
		t.Fatal(err)
	}
	c := spec.TaskTemplate.ContainerSpec
	if spec.Name != "web" || c.Image != "app:1" || strings.Join(c.Args, " ") != "serve --fast" || c.Healthcheck.Test[1] != "x" || c.Healthcheck.Interval != 5*time.Second ||
		spec.EndpointSpec.Ports[0].PublishedPort != 8080 || spec.Labels["satl.traffic.drain"] != "5s" {
		t.Errorf("%+v %+v", spec, c)
	}
	expect(t, d, 0, []string{"39 s\n"}, nil, "health", "explain", "--format", "{{.Bounds.OutOfPoolText}}", "web")
	expect(t, d, 125, nil, []string{"unknown flag: --nosuch"}, "health", "explain", "--nosuch", "x")
	asked, _ := d.requests()
	if slices.Contains(asked, "POST /services/create") {
		t.Error("a service was created")
	}
}

func TestPrettyInspect(t *testing.T) {
	d, _ := answering(t, map[string]any{
		"GET /services/web": swarm.Service{ID: "svc", Spec: swarm.ServiceSpec{Annotations: swarm.Annotations{Name: "web"},
			TaskTemplate: swarm.TaskSpec{ContainerSpec: &swarm.ContainerSpec{Image: "app:1"}}}},
		"GET /satl/v1/services/web": wire.Service{Name: "web", Explain: explanation(), Budget: wire.Budget{MaxAttempts: 3, Text: "restart budget exhausted (3/3) in slot 1", Exhausted: true,
			Slots: []wire.SlotBudget{{Slot: 1, Used: 3, Exhausted: true}, {Slot: 2}}}},
	})
	expect(t, d, 0, []string{"Name:\t\tweb\n", "Health:\n", " Worst case out of the pool: 3 x (5 + 3) + 10 + 5 = 39 s\n",
		"Restart Budget:\n State:\t\trestart budget exhausted (3/3) in slot 1\n Slot 1:\t3 of 3 attempts used, exhausted\n"}, nil, "service", "inspect", "--pretty", "web")
	stdout, _, _ := satl(t, []string{EnvHost + "=" + d.socket}, "service", "inspect", "web")
	var plain []map[string]any
	if err := json.Unmarshal([]byte(stdout), &plain); err != nil || len(plain) != 1 {
		t.Errorf("not docker's own without --pretty: %v\n%s", err, stdout)
	}
}
