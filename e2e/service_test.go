// SPDX-License-Identifier: BSD-2-Clause

package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// port gives each test ports of its own.
func (d *daemon) port(i int) int { return 20000 + (base()*100+d.n*7+i+5000)%10000 }

// fetch GETs a URL with a connection of its own.
func fetch(url string) (string, error) {
	client := http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get(url)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	data := make([]byte, 256)
	n, _ := resp.Body.Read(data)
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s", resp.Status)
	}
	return strings.TrimSpace(string(data[:n])), nil
}

// The whole main job: created, proved, published, broken, withdrawn, failed,
// replaced.
func TestServiceIsProvedPublishedBrokenAndReplaced(t *testing.T) {
	t.Parallel()
	d := loaded(t)
	port := d.port(0)
	url := fmt.Sprintf("http://127.0.0.1:%d/", port)
	begun := time.Now()
	id := d.docker("service", "create", "--quiet", "--name", "web", "--replicas", "2", "-p", fmt.Sprintf("%d:80", port),
		"--health-cmd", "/app -probe http://127.0.0.1/health", "--health-interval", "1s", "--health-timeout", "10s", "--health-retries", "2",
		"--stop-grace-period", "2s", "--update-monitor", "1s", "app:1", "/app", "-delay", "1s")
	t.Logf("converged after %v", time.Since(begun))
	if len(id) != 25 {
		t.Errorf("service create printed %q on stdout, want the ID alone", id)
	}
	seen := map[string]int{}
	for range 20 {
		body, err := fetch(url)
		if err != nil {
			t.Fatalf("published port: %v", err)
		}
		seen[body]++
	}
	if len(seen) != 2 || seen[keys(seen)[0]] != 10 {
		t.Errorf("20 connections over 2 tasks went %v, want round robin", seen)
	}
	if h := path(d.inspect("", "web.1"), "State", "Health", "Status"); h != "healthy" {
		t.Errorf("health of web.1 is %v", h)
	}
	if out := d.docker("ps"); strings.Count(out, "(healthy)") != 2 {
		t.Errorf("docker ps:\n%s", out)
	}
	victim := d.running("web")[0]
	container := victim.Status.ContainerStatus.ContainerID
	d.docker("exec", container, "touch", "/tmp/bad")
	broken := time.Now()
	host := container[:12]
	eventually(t, 4*time.Second, "withdrawn", func() bool {
		for range 4 {
			if body, err := fetch(url); err == nil && body == host {
				return false
			}
		}
		return true
	})
	t.Logf("out of the pool %v after it broke", time.Since(broken))
	var failed task
	eventually(t, 8*time.Second, "failed", func() bool {
		for _, x := range d.tasks("web") {
			if x.ID == victim.ID && x.Status.State == "failed" {
				failed = x
				return true
			}
		}
		return false
	})
	t.Logf("FAILED %v after it broke: %s", time.Since(broken), failed.Status.Err)
	for _, want := range []string{"unhealthy", "2/2", "exit code 1", "503"} {
		if !strings.Contains(failed.Status.Err, want) {
			t.Errorf("Status.Err %q does not name %q", failed.Status.Err, want)
		}
	}
	eventually(t, 20*time.Second, "replaced", func() bool { return len(d.running("web")) == 2 })
	t.Logf("replaced %v after it broke", time.Since(broken))
	if out := d.docker("service", "ps", "--no-trunc", "web"); !strings.Contains(out, "unhealthy") {
		t.Errorf("service ps does not say why:\n%s", out)
	}
	d.docker("service", "rm", "web")
	eventually(t, 10*time.Second, "containers gone", func() bool { return d.docker("ps", "-aq") == "" })
	if body, err := fetch(url); err == nil {
		t.Errorf("published port of a removed service answers %q", body)
	}
}

func keys(m map[string]int) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	return out
}

// Services and tasks survive kill -9 of the daemon, undisturbed; SIGTERM
// leaves them running; no log line and no exit code is lost.
func TestTasksSurviveTheDaemon(t *testing.T) {
	t.Parallel()
	d := loaded(t)
	port := d.port(0)
	url := fmt.Sprintf("http://127.0.0.1:%d/", port)
	d.docker("service", "create", "-q", "--name", "web", "-p", fmt.Sprintf("%d:80", port), "--health-cmd", "/app -probe http://127.0.0.1/health", "--health-interval", "1s", "--health-timeout", "10s", "app:1")
	d.docker("service", "create", "-q", "--name", "count", "--restart-condition", "none", "app:1", "sh", "-c", "i=0; while [ $i -lt 60 ]; do echo line $i; i=$((i+1)); sleep 0.1; done; exit 7")
	web := d.running("web")[0]
	for _, stop := range []func(){d.kill, d.term, d.kill} {
		stop()
		if _, err := fetch(url); err != nil {
			t.Errorf("published port while the daemon is down: %v", err)
		}
		d.start()
		eventually(t, 10*time.Second, "task running again", func() bool { return len(d.running("web")) == 1 })
		now := d.running("web")[0]
		if now.ID != web.ID || now.Status.ContainerStatus.PID != web.Status.ContainerStatus.PID {
			t.Fatalf("the task was disturbed: %+v, was %+v", now, web)
		}
		if pid := path(d.inspect("", "web"), "State", "Pid"); pid != float64(web.Status.ContainerStatus.PID) {
			t.Errorf("pid %v, was %d", pid, web.Status.ContainerStatus.PID)
		}
		if _, err := fetch(url); err != nil {
			t.Errorf("published port after the restart: %v", err)
		}
	}
	eventually(t, 15*time.Second, "probed afresh", func() bool {
		return path(d.inspect("", "web"), "State", "Health", "Status") == "healthy"
	})
	eventually(t, 15*time.Second, "count ends", func() bool { return len(d.tasks("count")) == 1 && d.tasks("count")[0].Status.State == "failed" })
	if x := d.tasks("count")[0]; x.Status.ContainerStatus.ExitCode != 7 {
		t.Errorf("exit code %d, want 7", x.Status.ContainerStatus.ExitCode)
	}
	lines := strings.Split(d.docker("service", "logs", "--raw", "count"), "\n")
	if len(lines) != 60 || lines[0] != "line 0" || lines[59] != "line 59" {
		t.Errorf("%d log lines, first %q, last %q", len(lines), lines[0], lines[len(lines)-1])
	}
}

// Published-port defaults, written into the stored spec (issue item 7).
func TestPublishedDefaults(t *testing.T) {
	t.Parallel()
	d := loaded(t)
	port := d.port(0)
	stored := func() map[string]any {
		h, _ := path(d.inspect("service", "web"), "Spec", "TaskTemplate", "ContainerSpec", "Healthcheck").(map[string]any)
		return h
	}
	d.docker("service", "create", "-d", "-q", "--name", "web", "-p", fmt.Sprintf("%d:80", port), "--health-cmd", "true", "app:1")
	if h := stored(); h["Interval"] != 5e9 || h["Timeout"] != 3e9 || h["Retries"] != 2.0 || h["StartPeriod"] != nil {
		t.Errorf("stored %v", h)
	}
	want := fmt.Sprintf("tighter health probe defaults applied to a published service name=web published=%d->80/tcp applied=interval=5s timeout=3s retries=2", port)
	if !strings.Contains(d.logTail(), want) {
		t.Errorf("no log line %q", want)
	}
	d.docker("service", "update", "-d", "-q", "--publish-rm", "80", "web")
	if h := stored(); h["Interval"] != 5e9 || h["Retries"] != 2.0 {
		t.Errorf("removal of the port restored something: %v", h)
	}
	d.docker("service", "create", "-d", "-q", "--name", "slow", "-p", fmt.Sprintf("%d:80", d.port(1)), "--health-cmd", "true", "--health-interval", "10s", "app:1")
	h := path(d.inspect("service", "slow"), "Spec", "TaskTemplate", "ContainerSpec", "Healthcheck").(map[string]any)
	if h["Interval"] != 10e9 || h["Timeout"] != 10e9 || h["Retries"] != 2.0 {
		t.Errorf("explicit interval: stored %v", h)
	}
	_, stderr, err := d.try("service", "create", "-d", "--name", "bare", "-p", fmt.Sprintf("%d:80", d.port(2)), "app:1")
	warning := fmt.Sprintf("service bare publishes %d->80/tcp and has no healthcheck: its tasks are published as soon as the jail starts, before the workload can answer, and stay published while a dead container keeps its share of the traffic", d.port(2))
	if err != nil || !strings.Contains(stderr, warning) {
		t.Errorf("warning %q not in %q (%v)", warning, stderr, err)
	}
}

// The docker CLI and satl against one daemon (issue items 3 and 4).
func TestClientCommands(t *testing.T) {
	t.Parallel()
	d := loaded(t)
	d.docker("service", "create", "-q", "--name", "web", "--label", "tier=front", "--health-cmd", "true", "--health-interval", "1s", "app:1")
	for _, c := range []struct {
		want string
		args []string
	}{
		{"web", []string{"service", "ls"}},
		{"1/1", []string{"service", "ls", "--filter", "name=web"}},
		{"Running", []string{"service", "ps", "web"}},
		{"Service Mode", []string{"service", "inspect", "--pretty", "web"}},
		{"Leader", []string{"node", "ls"}},
		{"Ready", []string{"node", "inspect", "--pretty", "self"}},
		{"app", []string{"images"}},
		{"healthy", []string{"ps", "--filter", "health=healthy"}},
		{"hello", []string{"exec", "web.1", "echo", "hello"}},
		{"active", []string{"info"}},
		{"Server", []string{"version"}},
		{"bridge", []string{"network", "ls"}},
		{"Images", []string{"system", "df"}},
		{"app", []string{"ps"}},
	} {
		if out := d.docker(c.args...); !strings.Contains(out, c.want) {
			t.Errorf("docker %s: no %q in\n%s", strings.Join(c.args, " "), c.want, out)
		}
		if out, stderr, err := d.client(filepath.Join(bin, "satl"), nil, c.args...); err != nil || !strings.Contains(out, c.want) {
			t.Errorf("satl %s: %v, no %q in\n%s%s", strings.Join(c.args, " "), err, c.want, out, stderr)
		}
	}
	d.docker("service", "scale", "web=3")
	if n := len(d.running("web")); n != 3 {
		t.Errorf("%d tasks run after scale to 3", n)
	}
	d.docker("service", "update", "-q", "--image", "app:2", "--update-delay", "0s", "--update-monitor", "1s", "web")
	for _, x := range d.running("web") {
		if v := d.docker("exec", x.Status.ContainerStatus.ContainerID, "sh", "-c", "echo $V"); v != "2" {
			t.Errorf("task %s runs version %q after the update", x.ID, v)
		}
	}
	out := d.docker("run", "--rm", "app:1", "echo", "from run")
	if out != "from run" {
		t.Errorf("run printed %q", out)
	}
	if out, _, err := d.client(filepath.Join(bin, "satl"), []byte("typed"), "run", "--rm", "-i", "app:1", "cat"); err != nil || out != "typed" {
		t.Errorf("satl run -i printed %q, %v", out, err)
	}
	_, _, err := d.try("run", "--rm", "app:1", "sh", "-c", "exit 3")
	if exit, ok := err.(*exec.ExitError); !ok || exit.ExitCode() != 3 {
		t.Errorf("run of exit 3: %v", err)
	}
	compose := filepath.Join(d.dir, "stack.yml")
	text := "services:\n  front:\n    image: app:1\n    healthcheck: {test: [\"CMD\", \"true\"], interval: 1s}\n  back:\n    image: app:1\n    deploy: {replicas: 2}\n"
	if err := os.WriteFile(compose, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	d.docker("stack", "deploy", "--detach=false", "-c", compose, "shop")
	if out := d.docker("stack", "services", "shop"); !strings.Contains(out, "shop_front") || !strings.Contains(out, "2/2") {
		t.Errorf("stack services:\n%s", out)
	}
	if out := d.docker("stack", "ps", "shop"); strings.Count(out, "Running") < 3 {
		t.Errorf("stack ps:\n%s", out)
	}
	if out := d.docker("stack", "ls"); !strings.Contains(out, "shop") {
		t.Errorf("stack ls:\n%s", out)
	}
	front := d.running("shop_front")[0].Status.ContainerStatus.ContainerID
	if out := d.docker("exec", front, "nslookup", "back"); strings.Count(out, "Address") < 2 {
		t.Errorf("compose name of a service in its stack's network:\n%s", out)
	}
	d.docker("stack", "rm", "shop")
	eventually(t, 20*time.Second, "network of the stack gone", func() bool { return !strings.Contains(d.docker("network", "ls"), "shop") })
	_, logs, _ := d.try("service", "logs", "web") // the server logs on its stderr
	if !strings.Contains(logs, "listening on") || !strings.Contains(logs, "web.1.") {
		t.Errorf("service logs:\n%s", logs)
	}
}

// DNS answers a service name with serving tasks only (issue item 8).
func TestDNSFollowsHealth(t *testing.T) {
	t.Parallel()
	d := loaded(t)
	d.docker("service", "create", "-q", "--name", "client", "app:1", "sleep", "1000")
	d.docker("service", "create", "-q", "--name", "web", "--replicas", "3", "--restart-condition", "none", "--health-cmd", "test ! -e /tmp/bad", "--health-interval", "1s", "--health-retries", "1", "--health-timeout", "10s", "app:1")
	client := d.running("client")[0].Status.ContainerStatus.ContainerID
	lookup := func(name string) []string {
		out, _, _ := d.try("exec", client, "nslookup", "-type=a", name)
		var addrs []string
		for line := range strings.Lines(out) {
			if a, ok := strings.CutPrefix(strings.TrimSpace(line), "Address: "); ok && !strings.Contains(a, ":53") {
				addrs = append(addrs, a)
			}
		}
		return addrs
	}
	if got := lookup("web"); len(got) != 3 {
		t.Fatalf("web has %v, want 3 addresses", got)
	}
	victim := d.running("web")[0].Status.ContainerStatus.ContainerID
	addr := lookup("web.1")
	d.docker("exec", victim, "touch", "/tmp/bad")
	eventually(t, 5*time.Second, "out of DNS", func() bool { return len(lookup("web")) == 2 })
	_ = addr
	if out, _, _ := d.try("exec", client, "nslookup", "nosuchname"); !strings.Contains(out, "NXDOMAIN") && !strings.Contains(out, "can't find") && !strings.Contains(out, "SERVFAIL") {
		t.Errorf("unknown name:\n%s", out)
	}
}

// Bad input: Docker's error form, the right status, nothing half-done.
func TestBadInput(t *testing.T) {
	t.Parallel()
	d := loaded(t)
	d.refused("name", "service", "create", "-d", "--name", "bad name", "app:1")
	d.refused("Retries", "service", "create", "-d", "--name", "x", "--health-cmd", "true", "--health-retries", "-1", "app:1")
	d.refused("nosuch", "run", "--rm", "nosuch.invalid/image:1")
	d.docker("service", "create", "-q", "--name", "web", "-p", strconv.Itoa(d.port(0))+":80", "app:1")
	d.refused("already in use", "service", "create", "-d", "--name", "web2", "-p", strconv.Itoa(d.port(0))+":80", "app:1")
	d.refused("name conflicts", "service", "create", "-d", "--name", "web", "app:1")
	if out := d.docker("service", "ls", "-q"); strings.Count(out, "\n") != 0 {
		t.Errorf("refused services were created:\n%s", out)
	}
	second := exec.Command(filepath.Join(bin, "satld"), "--socket", d.sock+"2", "--state-dir", d.state, "--listen-addr", "127.0.0.1:0", "--network-name", d.network+"x", "--network-pool", "10.129.0.0/17", "--overlay-pool", "10.129.128.0/17")
	out, err := second.CombinedOutput()
	if exit, ok := err.(*exec.ExitError); !ok || exit.ExitCode() != 1 || strings.Count(strings.TrimSpace(string(out)), "\n") != 0 {
		t.Errorf("second daemon on one state directory: %v\n%s", err, out)
	}
	id := d.docker("run", "-d", "app:1", "true")
	d.docker("wait", id)
	d.refused("is not running", "exec", id, "true")
	d.docker("rm", id)
}

// Several daemons on one host do not meet.
func TestTwoDaemonsSideBySide(t *testing.T) {
	t.Parallel()
	a, b := loaded(t), loaded(t)
	for _, d := range []*daemon{a, b} {
		d.docker("service", "create", "-q", "--name", "web", "-p", strconv.Itoa(d.port(0))+":80", "--health-cmd", "true", "--health-interval", "1s", "--health-timeout", "10s", "app:1")
	}
	for _, d := range []*daemon{a, b} {
		if _, err := fetch(fmt.Sprintf("http://127.0.0.1:%d/", d.port(0))); err != nil {
			t.Error(err)
		}
		var list []any
		data, err := d.get("/tasks")
		if err != nil || json.Unmarshal(data, &list) != nil || len(list) != 1 {
			t.Errorf("%d tasks, %v", len(list), err)
		}
	}
	if _, err := fetch(fmt.Sprintf("http://%s:%d/", uplink, a.port(0))); err != nil {
		t.Errorf("published port on the host's own address: %v", err)
	}
}
