// SPDX-License-Identifier: BSD-2-Clause

package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/swarm"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// The cases of the list "verdict", and where each is shown:
//
//	verdict-1  TestVerdicts/first probe
//	verdict-2  TestVerdicts/start period
//	verdict-3  TestVerdicts/start period after a slow pull
//	verdict-4  TestVerdicts/whatever is no pass
//	verdict-5  TestVerdicts/replaced; a late result: healthcheck.TestRemove, in virtual time
//	verdict-6  TestVerdictsOverARestart
//	verdict-7  TestVerdicts/edge values
//	verdict-8  TestVerdicts/first probe, the row "retries 1"; the invariant:
//	           healthcheck.TestInvariant; FreeBSD's own: the FreeBSD tests
func TestVerdicts(t *testing.T) {
	t.Parallel()
	shared := loaded(t)
	for name, f := range map[string]func(*testing.T, *daemon){
		"first probe":                    firstProbe,
		"start period":                   startPeriod,
		"start period after a slow pull": startPeriodAfterPull,
		"whatever is no pass":            noPass,
		"replaced":                       replaced,
		"edge values":                    edgeValues,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, shared.in(t))
		})
	}
}

// since is the time from the start of a container's main process.
func since(t *testing.T, c container.InspectResponse, at time.Time) time.Duration {
	t.Helper()
	started, err := time.Parse(time.RFC3339Nano, c.State.StartedAt)
	if err != nil {
		t.Fatal(err)
	}
	return at.Sub(started)
}

// firstProbe: one wait after the start, never at 0, and healthy at the first
// pass. The wait is StartInterval where one is given, else min(interval, 5 s).
func firstProbe(t *testing.T, d *daemon) {
	rows := []struct {
		name  string
		hc    *container.HealthConfig
		ready time.Duration // of the application
		wait  time.Duration // until the first probe
		pass  time.Duration // until the first pass
	}{
		{"short", shell("", timing(time.Second, 0, 1)), 0, time.Second, time.Second}, // retries 1
		{"si1", shell("", timing(30*time.Second, 0, 3), starting(0, time.Second)), 0, time.Second, time.Second},
		{"hour", shell("", timing(time.Hour, 0, 3), starting(time.Minute, time.Second)), 2 * time.Second, time.Second, 3 * time.Second},
		{"si5", shell("", timing(30*time.Second, 0, 3), starting(0, 5*time.Second)), 0, 5 * time.Second, 5 * time.Second},
		{"unset", shell("", timing(30*time.Second, 0, 3)), 0, 5 * time.Second, 5 * time.Second},
	}
	for _, r := range rows {
		r.hc.Test[1] = "[ -e /tmp/ready ]"
		d.create(r.name, r.hc, command("sh", "-c", fmt.Sprintf("sleep %v; touch /tmp/ready; exec /app", r.ready.Seconds())))
	}
	for _, r := range rows {
		c := d.awaitHealth(10*time.Second+2*e(), r.name, "healthy")
		log := c.State.Health.Log
		if first := since(t, c, log[0].Start); first < r.wait || first > r.wait+e() && len(log) < 5 {
			t.Errorf("%s: first probe after %v, want %v", r.name, first, r.wait)
		}
		pass := slices.IndexFunc(log, func(r *container.HealthcheckResult) bool { return r.ExitCode == 0 })
		if at := since(t, c, log[pass].End); at > r.pass+e() && len(log) < 5 {
			t.Errorf("%s: healthy after %v, want %v", r.name, at, r.pass)
		}
		d.awaitTask(5*time.Second, r.name, "running", func(x task) bool { return x.Status.State == "running" })
	}
}

// startPeriod: it is a time not to punish, not a time not to look: a pass
// counts at once, and from then on failures count as well.
func startPeriod(t *testing.T, d *daemon) {
	ctl := controls(t)
	d.create("graced", shell("[ -e /ctl/ok ]", timing(time.Second, time.Second, 2), starting(300*time.Second, 500*time.Millisecond)), control(ctl))
	c := d.awaitProbes(20*time.Second, "graced", 4)
	if h := c.State.Health; h.Status != "starting" || h.FailingStreak != 0 || h.Log[0].ExitCode != 1 {
		t.Errorf("inside the start period: %s, streak %d, %+v", h.Status, h.FailingStreak, h.Log[0])
	}
	touch(t, ctl, "ok")
	passed := time.Now()
	d.awaitTask(500*time.Millisecond+e(), "graced", "running", func(x task) bool { return x.Status.State == "running" })
	t.Logf("RUNNING %v after it was ready", time.Since(passed))
	untouch(t, ctl, "ok")
	x := d.awaitTask(2*time.Second+2*e(), "graced", "failed", failed)
	if !strings.Contains(x.Status.Err, "2/2") {
		t.Errorf("failed with %q", x.Status.Err)
	}
}

// startPeriodAfterPull: the period runs from the start of the process, not
// from the creation of the task: a pull that takes longer eats nothing of it.
func startPeriodAfterPull(t *testing.T, d *daemon) {
	const slow, period = 6 * time.Second, 4 * time.Second
	store := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/") {
			time.Sleep(slow / 2) // the config, then the layer
		}
		store.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	ref, err := name.ParseReference(strings.TrimPrefix(server.URL, "http://") + "/static:1")
	if err != nil {
		t.Fatal(err)
	}
	images, err := staticImages()
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(ref, images[tag("static:1")]); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	hc := probe([]string{"CMD", "/app", "-probe", "http://127.0.0.1/health"}, timing(500*time.Millisecond, time.Second, 1), starting(period, 0))
	d.create("pulled", hc, image(ref.String()), command("/app", "-delay", "2s"), restarts(0))
	d.awaitTask(slow+period+2*e(), "pulled", "running", func(x task) bool { return x.Status.State == "running" })
	if took := time.Since(begun); took < slow+2*time.Second {
		t.Fatalf("running after %v: the pull was not slow", took)
	}
	if tasks := d.tasks("pulled"); len(tasks) != 1 {
		t.Errorf("%d tasks: killed at birth: %+v", len(tasks), tasks)
	}
	c, _ := d.look("pulled")
	if log := c.State.Health.Log; log[0].ExitCode == 0 {
		t.Error("no probe failed inside the period: this test shows nothing")
	}
}

// noPass: every outcome that is no pass is a failure that counts.
func noPass(t *testing.T, d *daemon) {
	once := timing(time.Second, time.Second, 1)
	rows := []struct {
		name string
		hc   *container.HealthConfig
		err  []string
	}{
		{"timeout", shell("echo slow; sleep 4", timing(time.Second, time.Second, 3)), []string{"unhealthy", "3/3", "last exit code -1", "Health check exceeded timeout (1s)", "slow"}},
		{"missing", probe([]string{"CMD", "/nosuch"}, once), []string{"1/1", "last exit code -1", "/nosuch", "no such file"}},
		{"directory", probe([]string{"CMD", "/tmp"}, once), []string{"1/1", "last exit code -1", "/tmp"}},
		{"code", shell("echo no; exit 7", once), []string{"1/1", "last exit code 7", "no"}},
		{"killed", shell("kill -9 $$", once), []string{"1/1", "last exit code 137"}},
		{"refused", probe([]string{"CMD", "/app", "-probe", "http://127.0.0.1:9/"}, once), []string{"1/1", "last exit code 1", "connection refused"}},
	}
	for _, r := range rows {
		d.create(r.name, r.hc)
	}
	for _, r := range rows {
		x := d.awaitTask(20*time.Second+e(), r.name, "failed", failed)
		for _, want := range r.err {
			if !strings.Contains(x.Status.Err, want) {
				t.Errorf("%s: %q does not say %q", r.name, x.Status.Err, want)
			}
		}
		c, ok := d.look(x.Status.ContainerStatus.ContainerID)
		if !ok {
			continue
		}
		if h := c.State.Health; h == nil || h.Status != "unhealthy" || h.FailingStreak != len(h.Log) {
			t.Errorf("%s: health afterwards %+v", r.name, h)
		} else if r.name == "timeout" {
			if len(h.Log) != 3 {
				t.Errorf("unhealthy after %d timeouts, want 3", len(h.Log))
			}
		}
	}
}

// replaced: what a task was found to be is not held against its successor.
func replaced(t *testing.T, d *daemon) {
	ctl := controls(t)
	d.create("heir", shell("[ -e /ctl/ok ]", timing(time.Second, time.Second, 2)), control(ctl), restarts(0))
	first := d.await(20*time.Second, "heir.1", "up", func(c container.InspectResponse) bool { return c.State.Running })
	d.awaitTask(20*time.Second, "heir", "failed", failed)
	second := d.await(20*time.Second, "heir.1", "replaced", func(c container.InspectResponse) bool { return c.State.Running && c.ID != first.ID })
	if h := second.State.Health; h == nil || h.Status != "starting" || h.FailingStreak != 0 || h.Log == nil || len(h.Log) != 0 {
		t.Errorf("its successor begins with %+v", h)
	}
	touch(t, ctl, "ok")
	if c := d.awaitHealth(10*time.Second, "heir.1", "healthy"); c.ID != second.ID {
		t.Errorf("the successor was replaced as well")
	}
	d.remove("heir")
}

// edgeValues: what cannot be meant is refused by name, zeros are defaults.
func edgeValues(t *testing.T, d *daemon) {
	for _, r := range []struct {
		hc   string
		want []string
	}{
		{`"Interval":500000`, []string{"Interval", "0 or >= 1ms"}},
		{`"Timeout":-1`, []string{"Timeout", "0 or >= 1ms"}},
		{`"Retries":-1`, []string{"Retries", "0 or >= 1"}},
		{`"StartPeriod":1`, []string{"StartPeriod", "0 or >= 1ms"}},
		{`"StartInterval":1`, []string{"StartInterval", "0 or >= 1ms"}},
		{`"Test":["CMD-SHELL",""]`, []string{"Test", "empty command"}},
		{`"Test":["CMD"]`, []string{"Test"}},
		{`"Interval":"10s"`, []string{"Interval"}},
	} {
		text := `"Test":["CMD","true"],` + r.hc
		if strings.HasPrefix(r.hc, `"Test"`) {
			text = r.hc
		}
		status, answer := d.call("POST", "/services/create", json.RawMessage(`{"Name":"edge","TaskTemplate":{"ContainerSpec":{"Image":"app:1","Healthcheck":{`+text+`}}}}`))
		if status != http.StatusBadRequest {
			t.Errorf("%s: %d %s", r.hc, status, answer)
		}
		for _, want := range r.want {
			if !strings.Contains(string(answer), want) {
				t.Errorf("%s: refused without naming %q: %s", r.hc, want, answer)
			}
		}
	}
	if status, _ := d.call("GET", "/services/edge", nil); status != http.StatusNotFound {
		t.Errorf("a refused service is there: %d", status)
	}
	if warnings := d.create("zeros", &container.HealthConfig{Test: []string{"CMD", "true"}}); len(warnings) != 0 {
		t.Errorf("zeros are warned of: %q", warnings)
	}
	if hc := d.service("zeros").Spec.TaskTemplate.ContainerSpec.Healthcheck; hc == nil || hc.Interval != 0 || hc.Retries != 0 {
		t.Errorf("stored %+v", hc)
	}
	if warnings := d.create("foo", probe([]string{"FOO", "x"})); len(warnings) != 1 {
		t.Errorf("an unknown kind: %q", warnings)
	}
	d.awaitHealth(5*time.Second+2*e(), "zeros", "healthy")
	x := serviceSpec("edge2", probe([]string{"CMD", "true"}))
	x.TaskTemplate.ContainerSpec.Healthcheck.Interval = 500000
	if err := d.change("zeros", func(s *swarm.ServiceSpec) { s.TaskTemplate = x.TaskTemplate }); err == nil || !strings.Contains(err.Error(), "400") {
		t.Errorf("an update to nonsense: %v", err)
	}
}

// The daemon killed and started again: who was healthy serves without a gap,
// who was condemned never does, who was starting keeps what is left of its
// start period, and who has no probe serves.
func TestVerdictsOverARestart(t *testing.T) {
	t.Parallel()
	d := loaded(t)
	ctl := controls(t)
	const period = 12 * time.Second
	good, plain := fmt.Sprintf("http://127.0.0.1:%d/", d.port(0)), fmt.Sprintf("http://127.0.0.1:%d/", d.port(1))
	second := timing(time.Second, time.Second, 2)
	d.create("a", shell("[ ! -e /ctl/a ]", second), control(ctl), publish(d.port(0)))
	d.create("b", shell("[ ! -e /ctl/b ]", second), control(ctl), grace(15*time.Second), command("sh", "-c", `trap "" TERM; while :; do sleep 1; done`))
	d.create("dd", nil, publish(d.port(1)))
	for _, name := range []string{"a", "b", "dd"} {
		d.awaitTask(20*time.Second, name, "running", func(x task) bool { return x.Status.State == "running" })
	}
	d.create("c", shell("exit 1", timing(time.Second, time.Second, 1), starting(period, 0)))
	touch(t, ctl, "b")
	d.awaitHealth(10*time.Second, "b", "unhealthy")
	was := map[string]container.InspectResponse{}
	for _, name := range []string{"a", "b", "dd"} {
		was[name], _ = d.look(name)
	}
	was["c"] = d.awaitProbes(20*time.Second, "c", 1)
	pid := was["b"].State.Pid

	// Clients of the published ports, and of DNS as far as it answers: the
	// daemon is the resolver.
	stop, gaps := make(chan struct{}), make(chan string, 10000)
	watch := func(what string, ask func() string) {
		go func() {
			for {
				select {
				case <-stop:
					gaps <- ""
					return
				default:
				}
				if gap := ask(); gap != "" {
					gaps <- what + ": " + gap
				}
				time.Sleep(10 * time.Millisecond)
			}
		}()
	}
	host := was["b"].Config.Hostname
	for what, url := range map[string]string{"a": good, "dd": plain} {
		watch("port of "+what, func() string {
			if body, err := fetch(url); err != nil {
				return err.Error()
			} else if body == host {
				return "answered by b"
			}
			return ""
		})
	}
	for _, name := range []string{"a", "dd"} {
		watch("name "+name, func() string {
			if addrs, _, err := d.ask(name); err == nil && len(addrs) != 1 || err != nil && strings.Contains(err.Error(), "NXDOMAIN") {
				return fmt.Sprint("answered ", addrs, err)
			}
			return ""
		})
	}
	watch("name b", func() string {
		if addrs, _, err := d.ask("b"); err == nil && len(addrs) != 0 {
			return fmt.Sprint("answered ", addrs)
		}
		return ""
	})
	time.Sleep(200 * time.Millisecond)
	d.kill()
	time.Sleep(time.Second)
	d.start()
	up := time.Now()
	for _, name := range []string{"a", "c"} {
		c := d.awaitProbes(time.Second+2*e(), name, 1)
		if first := c.State.Health.Log[0].Start.Sub(up); first > time.Second+e() {
			t.Errorf("%s is probed %v after the restart", name, first)
		}
		if c.ID != was[name].ID || c.State.Pid != was[name].State.Pid {
			t.Errorf("%s was disturbed", name)
		}
	}
	if _, ok := d.look("dd"); !ok {
		t.Error("dd is gone")
	}

	// c fails at once, were its period over; it has what is left of it.
	x := d.awaitTask(period+2*e(), "c", "failed", failed)
	c, ok := d.look(x.Status.ContainerStatus.ContainerID)
	if !ok {
		t.Fatal("c's container is gone")
	}
	last := c.State.Health.Log[len(c.State.Health.Log)-1]
	if at := since(t, was["c"], last.Start); at < period || at > period+time.Second+e() {
		t.Errorf("c was condemned by a probe %v after its start, want its start period of %v", at, period)
	}

	// b is stopped to its end, by the second daemon, for the first one's reason.
	x = d.awaitTask(20*time.Second+e(), "b", "failed", failed)
	if !strings.Contains(x.Status.Err, "unhealthy") || !strings.Contains(x.Status.Err, "2/2") {
		t.Errorf("b failed with %q", x.Status.Err)
	}
	if lives(pid) {
		t.Error("b's main process still lives")
	}
	close(stop)
	for watchers := 5; watchers > 0; {
		if gap := <-gaps; gap == "" {
			watchers--
		} else {
			t.Error(gap)
		}
	}

	// a needs two failures of its own again.
	touch(t, ctl, "a")
	x = d.awaitTask(3*time.Second+2*e(), "a", "failed", failed)
	if !strings.Contains(x.Status.Err, "2/2") {
		t.Errorf("a failed with %q", x.Status.Err)
	}
	c, ok = d.look(x.Status.ContainerStatus.ContainerID)
	if ok {
		bad := 0 // in a row, at the end
		for _, r := range c.State.Health.Log {
			if bad++; r.ExitCode == 0 {
				bad = 0
			}
		}
		if bad < 2 { // where its withdrawal took as long as an interval there is one more
			t.Errorf("a was condemned after %d failures in a row", bad)
		}
	}
}
