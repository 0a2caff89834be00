// SPDX-License-Identifier: BSD-2-Clause

package e2e

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
)

// probed makes a service whose probe is spelled in labels, each without its
// prefix, with docker's own command line. It is probed each second, is not
// replaced unless args say so, and its failures come to nothing that a test
// would see.
func (d *daemon) probed(name, labels string, args ...string) {
	d.t.Helper()
	argv := []string{"service", "create", "-d", "-q", "--no-resolve-image", "--name", name, "--stop-grace-period", "1s"}
	if !strings.Contains(labels, "profile=") {
		argv = append(argv, "--health-interval", "1s", "--health-timeout", "10s")
	}
	for l := range strings.FieldsSeq(labels) {
		argv = append(argv, "--container-label", "satl.health."+l)
	}
	image := []string{"app:1"}
	for i, a := range args {
		if a == "--" {
			args, image = args[:i], args[i+1:]
			break
		}
	}
	d.docker(append(append(argv, args...), image...)...)
}

// hits is how often a path of the application in a container was asked for.
func hits(t *testing.T, c container.InspectResponse, path string) string {
	t.Helper()
	n, err := fetch("http://" + address(t, c) + "/hits?of=" + path)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// stranger is a listener on every address of the machine, and how many came.
func stranger(t *testing.T) (port int, came *atomic.Int32) {
	t.Helper()
	l, err := net.Listen("tcp4", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	came = new(atomic.Int32)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			came.Add(1)
			c.Close()
		}
	}()
	return l.Addr().(*net.TCPAddr).Port, came
}

// Probes of satld's own against real servers (spec/replica-health.txt,
// "Endpoint"; cases/probe.md, probe-7 and probe-8).
func TestHTTPProbes(t *testing.T) {
	t.Parallel()
	shared := loaded(t)
	proxy, asked := stranger(t)
	shared.term()
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY"} {
		shared.env = append(shared.env, fmt.Sprintf("%s=http://127.0.0.1:%d", name, proxy))
	}
	shared.start()
	t.Cleanup(func() {
		if n := asked.Load(); n > 0 {
			t.Errorf("the proxy of the daemon's environment was asked %d times", n)
		}
	})
	for name, f := range map[string]func(*testing.T, *daemon){
		"nginx":          nginxProbe,
		"Go":             goProbe,
		"hangs":          hangs,
		"redirects":      redirects,
		"large, endless": largeAndEndless,
		"TCP":            tcpProbe,
		"refused specs":  refusedSpecs,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, shared.in(t))
		})
	}
}

// nginxImage is an archive with a real nginx, nginx:e2e.
var nginxImage = sync.OnceValues(func() (string, error) {
	out := filepath.Join(scratch, "nginx.tar")
	script, err := filepath.Abs("../scripts/make-nginx-image")
	if err != nil {
		return "", err
	}
	argv := append(outside(), script, out, "nginx:e2e") // apt needs the network
	if said, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("make-nginx-image: %w\n%s", err, said)
	}
	return out, nil
})

// nginxProbe: a server that is not ours, out of traffic for what it answers
// and back with it, the same process all along.
func nginxProbe(t *testing.T, d *daemon) {
	archive, err := nginxImage()
	if err != nil {
		for _, why := range []string{"apt-", "Unable to locate", "Failed to fetch", "Could not resolve", "Temporary failure"} {
			if strings.Contains(err.Error(), why) {
				t.Skipf("*** SKIPPED: Debian's package of nginx cannot be had: %v ***", err)
			}
		}
		t.Fatal(err)
	}
	d.docker("load", "-q", "-i", archive)
	port := d.port(0)
	url := fmt.Sprintf("http://127.0.0.1:%d/", port)
	d.probed("nginx", "http=/index.html replace-after=10m", "--health-retries", "2", "-p", fmt.Sprintf("%d:80", port), "--", "nginx:e2e")
	first := d.awaitHealth(20*time.Second+e(), "nginx", "healthy")
	if r := first.State.Health.Log[0]; r.Output != "HTTP 200 OK" {
		t.Errorf("the probe says %q", r.Output)
	}
	serves := func() bool { _, err := fetch(url); return err == nil }
	eventually(t, 10*time.Second, "served", serves)
	d.docker("exec", first.ID, "mv", "/srv/www/index.html", "/srv/www/away")
	eventually(t, 20*time.Second, "out of traffic", func() bool { return !serves() })
	c := d.awaitHealth(5*time.Second, "nginx", "unhealthy")
	if r := c.State.Health.Log[len(c.State.Health.Log)-1]; r.ExitCode != 1 || !strings.HasPrefix(r.Output, "HTTP 404 Not Found: <html>") {
		t.Errorf("the probe says %d %q", r.ExitCode, r.Output)
	}
	d.docker("exec", first.ID, "mv", "/srv/www/away", "/srv/www/index.html")
	eventually(t, 20*time.Second, "back in traffic", serves)
	if c, _ := d.look("nginx"); c.State.Pid != first.State.Pid {
		t.Error("it was replaced")
	}
}

// goProbe: what is sent: the scheme that users come by, so that a server which
// sends them to https answers the probe, and a header of the service's own.
func goProbe(t *testing.T, d *daemon) {
	d.probed("tls", "http=/tls http.port=80 http.pass=200")
	d.probed("named", "http=/health port=80 header.Host=shop.example.com")
	for _, name := range []string{"tls", "named"} {
		c := d.awaitHealth(20*time.Second+e(), name, "healthy")
		if r := c.State.Health.Log[0]; r.ExitCode != 0 || r.Output != "HTTP 200 OK" {
			t.Errorf("%s: %d %q", name, r.ExitCode, r.Output)
		}
	}
}

// hangs: a server that takes the request and answers nothing fails at the
// timeout, is asked again, and keeps nobody else waiting.
func hangs(t *testing.T, d *daemon) {
	d.probed("hung", "http=/hang http.port=80", "--health-timeout", "1s", "--health-retries", "1000")
	c := d.awaitProbes(30*time.Second, "hung", 3)
	for _, r := range c.State.Health.Log {
		if r.ExitCode != -1 || !strings.HasPrefix(r.Output, "Health check exceeded timeout (1s)") || r.End.Sub(r.Start) < time.Second {
			t.Errorf("%d %q after %v", r.ExitCode, r.Output, r.End.Sub(r.Start))
		}
	}
	if c.State.Health.Status != "starting" {
		t.Errorf("it is %s", c.State.Health.Status)
	}
}

// redirects: 302 passes with 200-399 and fails with 200; it is followed
// neither to another path nor to another host.
func redirects(t *testing.T, d *daemon) {
	port, came := stranger(t)
	elsewhere := fmt.Sprintf("http://%s.0.1:%d/", d.subnet, port)
	d.probed("path", "http=/redirect?to=/followed http.port=80")
	d.probed("host", "http=/redirect?to="+elsewhere+" http.port=80")
	d.probed("strict", "http=/redirect?to=/followed http.port=80 http.pass=200", "--health-retries", "1000")
	for _, name := range []string{"path", "host", "strict"} {
		c := d.awaitProbes(20*time.Second+e(), name, 2)
		want, code := "healthy", 0
		if name == "strict" {
			want, code = "starting", 1
		}
		r := c.State.Health.Log[1]
		if c.State.Health.Status != want || r.ExitCode != code || !strings.HasPrefix(r.Output, "HTTP 302 Found (redirect not followed)") {
			t.Errorf("%s: %s, %d %q", name, c.State.Health.Status, r.ExitCode, r.Output)
		}
		if n := hits(t, c, "/followed"); n != "0" {
			t.Errorf("%s: followed %s times", name, n)
		}
		if n := hits(t, c, "/redirect"); n == "0" {
			t.Errorf("%s: the application has not seen its probes", name)
		}
	}
	if n := came.Load(); n > 0 {
		t.Errorf("another host was contacted %d times", n)
	}
}

// largeAndEndless: the status line decides, within 200 ms of which the verdict
// is there. The body has no say, whether it is 5 MiB or has no end.
func largeAndEndless(t *testing.T, d *daemon) {
	for _, name := range []string{"stream", "huge"} {
		d.probed(name, "http=/"+name+" http.port=80")
	}
	for _, name := range []string{"stream", "huge"} {
		d.awaitHealth(20*time.Second+e(), name, "healthy")
		// Of several, one that no busy machine held up.
		d.await(60*time.Second, name, "judged within 200 ms", func(c container.InspectResponse) bool {
			for _, r := range c.State.Health.Log {
				if r.ExitCode != 0 || r.Output != "HTTP 200 OK" {
					t.Fatalf("%s: %d %q", name, r.ExitCode, r.Output)
				}
				if r.End.Sub(r.Start) < 200*time.Millisecond {
					return true
				}
			}
			return false
		})
	}
}

// tcpProbe: a connection that opens passes; it is what a check of port 80 that
// is switched off still does.
func tcpProbe(t *testing.T, d *daemon) {
	d.probed("open", "tcp=80", "--health-retries", "1000", "--", "app:1", "/app", "-delay", "3s")
	d.probed("shut", "tcp=81", "--health-retries", "1000")
	d.probed("off", "profile=off tcp=80 first=1s")
	for _, name := range []string{"open", "off"} {
		d.awaitHealth(20*time.Second+e(), name, "healthy")
		d.awaitTask(10*time.Second, name, "running", func(x task) bool { return x.Status.State == "running" })
	}
	c := d.awaitProbes(20*time.Second, "shut", 2)
	if r := c.State.Health.Log[0]; r.ExitCode != 1 || !strings.Contains(r.Output, "refused") || c.State.Health.Status != "starting" {
		t.Errorf("nothing listens: %s, %d %q", c.State.Health.Status, r.ExitCode, r.Output)
	}
	// Switched off without a port there is no probe, and traffic from the start.
	d.probed("none", "profile=off http=/health")
	d.awaitTask(20*time.Second, "none", "running", func(x task) bool { return x.Status.State == "running" })
	if c, _ := d.look("none"); c.State.Health != nil {
		t.Errorf("a check that is off has %+v", c.State.Health)
	}
}

// refusedSpecs: what cannot be meant is refused, and the field is named.
func refusedSpecs(t *testing.T, d *daemon) {
	create := func(labels string, args ...string) []string {
		argv := []string{"service", "create", "-d", "--no-resolve-image", "--name", "refused"}
		for l := range strings.SplitSeq(labels, "|") {
			argv = append(argv, "--container-label", "satl.health."+l)
		}
		return append(append(argv, args...), "app:1")
	}
	for _, c := range []struct {
		want string
		args []string
	}{
		{"satl.health.http must start with /", create("http=health|http.port=80")},
		{"satl.health.http cannot contain spaces", create("http=/a b|http.port=80")},
		{"Timeout must be 1s to 1m0s", create("http=/|http.port=80|profile=manual", "--health-timeout", "61s")},
		{"Timeout must be 1s to 1m0s", create("http=/|http.port=80|profile=manual", "--health-timeout", "500ms")},
		{"satl.health.first must be 0s to 10m0s", create("http=/|http.port=80|profile=manual|first=601s")},
		{"satl.health.http.port", create("http=/health")},
		{"unknown label satl.health.htp", create("htp=/health")},
		{"a task has one probe", create("http=/|http.port=80|tcp=80")},
	} {
		d.refused(c.want, c.args...)
	}
	if out, _, err := d.try("service", "inspect", "refused"); err == nil {
		t.Errorf("a refused service is there: %s", out)
	}
}

// The status file (spec/application-health.txt): renamed into place or written
// in place, stale, a FIFO, and links that lead out of the task's root.
func TestFileProbe(t *testing.T) {
	t.Parallel()
	d := loaded(t)
	ctl := controls(t)
	const secret = "hunter2"
	status := func(word string, age time.Duration) []byte {
		return fmt.Appendf(nil, "%s\n%d\n", word, time.Now().Add(-age).Unix())
	}
	write := func(name string, data []byte) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(ctl, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// Outside of the task's root, which sees only ctl, as /ctl.
	outside := filepath.Join(d.dir, "outside")
	if err := os.WriteFile(outside, status("healthy", 0), 0o600); err != nil {
		t.Fatal(err)
	}
	link := func(to string) {
		t.Helper()
		if err := os.Symlink(to, filepath.Join(ctl, "health")); err != nil {
			t.Fatal(err)
		}
	}
	clear := func() {
		if err := os.Remove(filepath.Join(ctl, "health")); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
	}
	d.docker("service", "create", "-d", "-q", "--name", "job", "--health-interval", "300ms", "--health-timeout", "5s", "--health-retries", "1000", "--stop-grace-period", "1s",
		"--container-label", "satl.health.file=/ctl/health", "--mount", "type=bind,source="+ctl+",target=/ctl", "app:1", "sleep", "1000")
	said := func(what string, code int, says string) {
		t.Helper()
		begun := time.Now()
		c := d.await(20*time.Second, "job", what, func(c container.InspectResponse) bool {
			if c.State.Health == nil || len(c.State.Health.Log) == 0 {
				return false
			}
			r := c.State.Health.Log[len(c.State.Health.Log)-1]
			return r.Start.After(begun) && r.ExitCode == code && r.Output == says
		})
		for _, r := range c.State.Health.Log {
			if strings.Contains(r.Output, secret) {
				t.Errorf("%s: the file is quoted: %q", what, r.Output)
			}
		}
	}
	const passes = "the status file says healthy"
	said("missing", 1, "status file: it does not exist")
	write("new", status("Healthy", 0))
	if err := os.Rename(filepath.Join(ctl, "new"), filepath.Join(ctl, "health")); err != nil {
		t.Fatal(err)
	}
	said("renamed into place", 0, passes)
	d.awaitTask(10*time.Second, "job", "running", func(x task) bool { return x.Status.State == "running" })
	// Written in place over and over: no reader takes a file that is cut short
	// for a failure.
	before, _ := d.look("job")
	for until := time.Now().Add(3 * time.Second); time.Now().Before(until); time.Sleep(5 * time.Millisecond) {
		write("health", status("HEALTHY", 0))
	}
	after := d.await(10*time.Second, "job", "probed meanwhile", func(c container.InspectResponse) bool {
		return c.State.Health.Log[0].Start.After(before.State.Health.Log[len(before.State.Health.Log)-1].End)
	})
	for _, r := range after.State.Health.Log {
		if r.ExitCode != 0 {
			t.Errorf("written in place: %d %q", r.ExitCode, r.Output)
		}
	}
	write("health", status("unhealthy", 0))
	said("unhealthy", 1, "status file: line 1 says unhealthy")
	write("health", status("healthy", 70*time.Second))
	said("stale", 1, "status file: line 2 is older than 60 s")
	write("health", []byte(secret+"\n"+secret+"\n"))
	said("nonsense", 1, "status file: line 1 is neither healthy nor unhealthy")
	clear()
	if err := exec.Command("mkfifo", filepath.Join(ctl, "health")).Run(); err != nil {
		t.Fatal(err)
	}
	said("FIFO", 1, "status file: it is not a regular file")
	said("FIFO again: nothing waits for its writer", 1, "status file: it is not a regular file")
	for _, to := range []string{outside, "../../../../../../../.." + outside} {
		clear()
		link(to)
		said("link out of the root", 1, "status file: it does not exist")
	}
	clear()
	write("real", status("healthy", 0))
	link("/ctl/real") // absolute, as the task sees it
	said("link within the root", 0, passes)
	clear()
	write("health", status("healthy", 0))
	said("written in place", 0, passes)
	if len(d.tasks("job")) != 1 {
		t.Error("it was replaced")
	}
}
