// SPDX-License-Identifier: BSD-2-Clause

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"satld/api/wire"
)

// The verdict on an application (spec/application-health.txt), on the socket
// and on the listener for load balancers, of stacks and compose projects.
func TestApplications(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	shared := loaded(t, "--apps-addr", addr)
	for name, f := range map[string]func(*testing.T, *apps){
		"stack":          stackVerdict,
		"project":        projectVerdict,
		"replaced":       replacedVerdict,
		"status file":    fileVerdict,
		"who is not in":  notGated,
		"load balancers": onlyVerdicts,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, &apps{daemon: shared.in(t), addr: addr})
		})
	}
}

// apps is a daemon that answers load balancers.
type apps struct {
	*daemon
	addr string
}

// answer is what is said of an application, on the socket and to load
// balancers, which is the same but for when.
func (d *apps) answer(name string) wire.App {
	d.t.Helper()
	var on [2]wire.App
	for i, c := range []struct {
		host string
		dial func(context.Context, string, string) (net.Conn, error)
	}{
		{"satl", func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", d.sock)
		}},
		{d.addr, nil},
	} {
		client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true, DialContext: c.dial}}
		resp, err := client.Get("http://" + c.host + "/satl/v1/apps/" + name + "/health")
		if err != nil {
			d.t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil {
			d.t.Fatal(err)
		}
		if err := json.Unmarshal(body, &on[i]); err != nil {
			d.t.Fatalf("%s: %v: %s", name, err, body)
		}
		want := http.StatusServiceUnavailable
		if on[i].Healthy {
			want = http.StatusOK
		}
		if resp.StatusCode != want || on[i].Name != name || on[i].Rule == "" {
			d.t.Errorf("%s on %s: %s %s", name, c.host, resp.Status, body)
		}
		for _, never := range []string{"hunter2", "app:1", d.subnet + ".", "/health", "exit"} {
			if strings.Contains(string(body), never) {
				d.t.Errorf("%s: the answer quotes %q: %s", name, never, body)
			}
		}
	}
	if on[0].Checked.Equal(on[1].Checked) && on[0] != on[1] {
		d.t.Errorf("on the socket %+v, to load balancers %+v", on[0], on[1])
	}
	return on[1]
}

// awaitVerdict waits for a verdict and the rule that decided.
func (d *apps) awaitVerdict(name string, healthy bool, rule string) wire.App {
	d.t.Helper()
	var a wire.App
	deadline := time.Now().Add(40 * time.Second)
	for {
		if a = d.answer(name); a.Healthy == healthy && a.Rule == rule {
			return a
		}
		if time.Now().After(deadline) {
			d.t.Fatalf("%s is %+v, want healthy %v: %s", name, a, healthy, rule)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// deploy deploys a stack from the text of a compose file.
func (d *apps) deploy(stack, text string) {
	d.t.Helper()
	file := filepath.Join(d.dir, stack+".yml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		d.t.Fatal(err)
	}
	d.docker("stack", "deploy", "--detach=true", "--resolve-image", "never", "-c", file, stack)
}

// stackVerdict: a stack whose labels stand in its compose file. A container
// without a probe has no say, nor has another stack.
func stackVerdict(t *testing.T, d *apps) {
	port := d.port(0)
	if a := d.answer("shop"); a.Healthy {
		t.Errorf("before it is there: %+v", a)
	}
	d.awaitVerdict("shop", false, "no containers")
	d.deploy("other", `
services:
  web:
    image: app:1
    labels: {satl.app.health: "true", satl.health.http: "/status?code=500", satl.health.port: "80", satl.health.action: none}
    healthcheck: {interval: 1s, timeout: 2s, retries: 1}
`)
	d.deploy("shop", fmt.Sprintf(`
services:
  web:
    image: app:1
    ports: ["%d:80"]
    labels:
      satl.app.health: "true"
      satl.health.http: /health
      satl.health.unroute-after: 2
      satl.health.replace-after: 10m
    healthcheck: {interval: 1s, timeout: 2s}
    deploy: {replicas: 2}
  worker:
    image: app:1
    command: ["sh", "-c", "while :; do sleep 1; done"]
`, port))
	ids := d.slots("shop_web", 2)
	d.awaitReached("served", port, ids[1], ids[2])
	d.awaitVerdict("shop", true, "every container with a probe is healthy")
	d.awaitVerdict("other", false, "a container with a probe is unhealthy")
	d.makeBad(ids[2])
	d.awaitVerdict("shop", false, "a container with a probe is unhealthy")
	if out, _ := d.satl("apps"); !strings.Contains(out, "shop") || !strings.Contains(out, "a container with a probe is unhealthy") {
		t.Errorf("satl apps:\n%s", out)
	}
	d.awaitReached("the healthy one serves", port, ids[1])
	d.makeGood(ids[2])
	d.awaitVerdict("shop", true, "every container with a probe is healthy")
	out, code := d.satl("health", "explain", "shop_web")
	if code != 0 || !strings.Contains(out, "GET /health on port 80, 200-399 passes") || !strings.Contains(out, "after 2 failures in a row: out of traffic until it passes; after 600: replaced") {
		t.Errorf("explain: exit %d\n%s", code, out)
	}
	// The compose file again, with another check: its tasks are replaced.
	d.deploy("shop", fmt.Sprintf(`
services:
  web:
    image: app:1
    ports: ["%d:80"]
    labels: {satl.app.health: "true", satl.health.http: "/hang"}
    healthcheck: {interval: 1s, timeout: 2s, retries: 100, start_period: 60s}
`, port))
	d.awaitVerdict("shop", false, "a container with a probe is starting")
	d.docker("stack", "rm", "shop")
	d.awaitVerdict("shop", false, "no containers")
}

// projectVerdict: containers with a compose project's label, of `docker run`,
// which have no probe, and of a service.
func projectVerdict(t *testing.T, d *apps) {
	labels := []string{"com.docker.compose.project=plain", "satl.app.health=true"}
	d.docker("run", "-d", "--name", "bare", "--label", labels[0], "--label", labels[1], "app:1")
	d.awaitVerdict("plain", false, "no container has a probe")
	d.docker("service", "create", "-d", "-q", "--no-resolve-image", "--name", "checked", "--restart-condition", "none", "--container-label", labels[0], "--container-label", labels[1],
		"--health-cmd", "test ! -e /tmp/bad", "--health-interval", "1s", "--health-retries", "1", "app:1")
	id := d.slots("checked", 1)[1]
	d.awaitVerdict("plain", true, "every container with a probe is healthy")
	// Whatever was last said of it, it does not run.
	c, _ := d.look(id)
	signal(t, c.State.Pid, syscall.SIGKILL)
	d.awaitVerdict("plain", false, "a container with a probe is not running")
	d.docker("service", "rm", "checked")
	d.awaitVerdict("plain", false, "no container has a probe")
	d.docker("rm", "-f", "bare")
	d.awaitVerdict("plain", false, "no containers")
}

// replacedVerdict: while one of an application's tasks is stopped for its
// health, and until its successor passes, the application is not healthy.
func replacedVerdict(t *testing.T, d *apps) {
	d.deploy("pair", `
services:
  db:
    image: app:1
    labels: {satl.app.health: "true", satl.health.tcp: "80"}
    healthcheck: {interval: 1s}
  web:
    image: app:1
    command: ["sh", "-c", "trap '' TERM; while :; do sleep 1; done"]
    stop_grace_period: 6s
    healthcheck: {test: ["CMD-SHELL", "test ! -e /tmp/bad"], interval: 1s, retries: 1}
    deploy: {restart_policy: {delay: 5s}}
`)
	d.awaitVerdict("pair", true, "every container with a probe is healthy")
	first := d.slots("pair_web", 1)[1]
	d.makeBad(first)
	d.awaitVerdict("pair", false, "a container with a probe is unhealthy")
	replaced := func() bool {
		return slices.ContainsFunc(d.running("pair_web"), func(x task) bool { return x.Status.ContainerStatus.ContainerID != first })
	}
	for deadline := time.Now().Add(60 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		a, there := d.answer("pair"), replaced()
		if a.Healthy && !there {
			t.Fatalf("before its successor runs: %+v", a)
		}
		if there {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("it is not replaced")
		}
	}
	d.awaitVerdict("pair", true, "every container with a probe is healthy")
	d.docker("stack", "rm", "pair")
}

// fileVerdict: an application that answers for itself.
func fileVerdict(t *testing.T, d *apps) {
	ctl := controls(t)
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(ctl, "new"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(ctl, "new"), filepath.Join(ctl, "state")); err != nil {
			t.Fatal(err)
		}
	}
	d.deploy("batch", fmt.Sprintf(`
services:
  job:
    image: app:1
    labels: {satl.app.health.file: /ctl/state}
    volumes: ["%s:/ctl"]
`, ctl))
	d.awaitVerdict("batch", false, "status file: it does not exist")
	now := time.Now().Unix()
	write(fmt.Sprintf("healthy\n%d\n", now+3))
	d.awaitVerdict("batch", true, "the status file says healthy")
	write(fmt.Sprintf("unhealthy\n%d\n", now))
	d.awaitVerdict("batch", false, "status file: line 1 says unhealthy")
	write("hunter2\nhunter2\n")
	d.awaitVerdict("batch", false, "status file: line 1 is neither healthy nor unhealthy")
	write(fmt.Sprintf("healthy\n%d\n", now-100))
	d.awaitVerdict("batch", false, "status file: line 2 is older than 60 s")
	d.docker("stack", "rm", "batch")
}

// notGated: an application that did not opt in is healthy, whatever its
// containers do.
func notGated(t *testing.T, d *apps) {
	d.deploy("free", `
services:
  web:
    image: app:1
    healthcheck: {test: ["CMD", "false"], interval: 1s, retries: 1}
`)
	d.awaitTask(40*time.Second, "free_web", "failed", failed)
	if a := d.awaitVerdict("free", true, "the application did not opt in to be gated by its health"); a.Gated {
		t.Errorf("%+v", a)
	}
	d.docker("stack", "rm", "free")
}

// onlyVerdicts: the listener for load balancers has nothing else, and takes
// nothing.
func onlyVerdicts(t *testing.T, d *apps) {
	for _, c := range []struct{ method, path string }{
		{"GET", "/"}, {"GET", "/info"}, {"GET", "/v1.47/info"}, {"GET", "/containers/json"}, {"GET", "/satl/v1/apps"}, {"GET", "/satl/v1/apps/x"},
		{"POST", "/satl/v1/apps/x/health"}, {"DELETE", "/satl/v1/apps/x/health"}, {"POST", "/satl/v1/tasks/x/unready"}, {"GET", "/satl/v1/services/x/versions"},
	} {
		req, err := http.NewRequest(c.method, "http://"+d.addr+c.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusNotFound && resp.StatusCode != http.StatusMethodNotAllowed {
			t.Errorf("%s %s: %s", c.method, c.path, resp.Status)
		}
	}
}
