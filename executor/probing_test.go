// SPDX-License-Identifier: BSD-2-Clause

package executor

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	gogotypes "github.com/gogo/protobuf/types"
	"github.com/moby/swarmkit/v2/agent/exec"
	"github.com/moby/swarmkit/v2/api"

	"satld/healthcheck"
)

// labelled is a task of service web whose container has these labels beside
// its healthcheck.
func labelled(health *api.HealthConfig, labels map[string]string) *api.Task {
	t := webTask(health)
	t.Spec.GetContainer().Labels = labels
	return t
}

func startedTask(t *testing.T, b *bench, task *api.Task) exec.Controller {
	t.Helper()
	c := prepared(t, b, task)
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c
}

// spec/replica-health.txt, "Running": out of traffic at the first threshold,
// back at a pass, replaced at the second.
func TestTwoThresholds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		defer b.close()
		bad := switched(b)
		c := startedTask(t, b, labelled(everySecond(3), map[string]string{"satl.health.replace-after": "8"}))
		id := taskContainerID("task1")
		bad.Store(true)
		begun := time.Now()
		if text := said(t, c); !strings.HasPrefix(text, "withdrawn: unhealthy: 3/3") || strings.Contains(text, "turn") {
			t.Errorf("said %q", text)
		}
		s := mustGet(t, b, "web")
		if took := time.Since(begun); took != 3*time.Second || b.traffic.serving(id) || s.Serving || s.State != Running {
			t.Errorf("after %v: %+v", took, s)
		}
		if !strings.HasPrefix(s.NotServing, "withdrawn: ") {
			t.Errorf("not serving: %q", s.NotServing)
		}
		bad.Store(false)
		if text := said(t, c); text != "" || !b.traffic.serving(id) || !mustGet(t, b, "web").Serving {
			t.Errorf("after a pass: said %q, serving %t", text, b.traffic.serving(id))
		}
		bad.Store(true)
		begun = time.Now()
		said(t, c)
		if err := c.Wait(t.Context()); !errors.Is(err, errUnhealthy) || !strings.Contains(err.Error(), "8/8") {
			t.Errorf("Wait: %v", err)
		}
		if took := time.Since(begun); took != 8*time.Second {
			t.Errorf("replaced after %v", took)
		}
	})
}

// label satl.health.action.
func TestActions(t *testing.T) {
	for action, want := range map[string]struct{ serving, live bool }{
		"replace": {false, false}, "unroute": {false, true}, "none": {true, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			defer b.close()
			bad := switched(b)
			startedTask(t, b, labelled(everySecond(2), map[string]string{"satl.health.action": action}))
			time.Sleep(2 * time.Second)
			bad.Store(true)
			time.Sleep(10 * time.Second)
			s := mustGet(t, b, "web.1")
			if s.State.Live() != want.live || s.Serving != want.serving || b.traffic.serving(taskContainerID("task1")) != want.serving {
				t.Errorf("%s: state %v, serving %t (%s)", action, s.State, s.Serving, s.NotServing)
			}
			if s.Health == nil || s.Health.Status != healthcheck.Unhealthy {
				t.Errorf("%s: health %+v", action, s.Health)
			}
		})
	}
}

// With action none a task is RUNNING from its start, as with Docker.
func TestActionNoneGatesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		defer b.close()
		switched(b).Store(true)
		begun := time.Now()
		startedTask(t, b, labelled(everySecond(2), map[string]string{"satl.health.action": "none"}))
		if time.Since(begun) != 0 || !b.traffic.serving(taskContainerID("task1")) {
			t.Errorf("RUNNING after %v", time.Since(begun))
		}
	})
}

// It runs without a pass, so a restart of the daemon takes it for no proof: what
// is left of StartPeriod is left, and Docker's status stays starting.
func TestActionNoneKeepsItsStartPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		defer func() { b.close() }()
		switched(b).Store(true)
		check := everySecond(2)
		check.StartPeriod = gogotypes.DurationProto(time.Minute)
		startedTask(t, b, labelled(check, map[string]string{"satl.health.action": "none"}))
		time.Sleep(10 * time.Second)
		b.close()
		b.open()
		for _, want := range []healthcheck.Status{healthcheck.Starting, healthcheck.Unhealthy} {
			time.Sleep(40 * time.Second)
			if s := mustGet(t, b, "web.1"); s.Health == nil || s.Health.Status != want || !s.Serving {
				t.Errorf("serving %t, health %+v, want %v", s.Serving, s.Health, want)
			}
		}
	})
}

// A task that its health took out of traffic stays out over a restart of the
// daemon until it passes.
func TestUnroutedTaskIsAdopted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		defer func() { b.close() }()
		bad := switched(b)
		task := labelled(everySecond(2), map[string]string{"satl.health.action": "unroute"})
		c := startedTask(t, b, task)
		id := taskContainerID("task1")
		bad.Store(true)
		text := said(t, c)
		b.close()
		b.open()
		task.Status = api.TaskStatus{State: api.TaskStateRunning, Err: text}
		c = controllerOf(t, b, task)
		time.Sleep(10 * time.Second)
		if m := b.traffic.member(id); m.Serving || !m.Unhealthy {
			t.Errorf("adopted: %+v", m)
		}
		bad.Store(false)
		if said(t, c) != "" || !b.traffic.serving(id) {
			t.Error("a pass does not let it in again")
		}
	})
}

// A start limit judges a start in place of the streak.
func TestStartLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		defer b.close()
		switched(b).Store(true)
		c := prepared(t, b, labelled(everySecond(2), map[string]string{"satl.health.start-limit": "20s"}))
		begun := time.Now()
		err := c.Start(t.Context())
		if !errors.Is(err, errUnhealthy) || time.Since(begun) != 21*time.Second {
			t.Errorf("%v after %v, want 20s from the first probe", err, time.Since(begun))
		}
	})
}

// What admission refuses is refused here as well: no task runs unprobed that
// was to be probed.
func TestProbeThatCannotBeMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		defer b.close()
		for _, labels := range []map[string]string{
			{"satl.health.http": "no slash"}, {"satl.health.unknown": "1"}, {"satl.health.tcp": "0"}, {"satl.health.action": "none"},
		} {
			if err := controllerOf(t, b, labelled(nil, labels)).Prepare(t.Context()); err == nil {
				t.Errorf("%v: accepted", labels)
			}
		}
	})
}

// hostTask runs in the host's network, so that its probe meets a server of the
// test's.
func hostTask(labels map[string]string) *api.Task {
	task := labelled(&api.HealthConfig{Interval: everySecond(1).Interval}, labels)
	task.Networks = []*api.NetworkAttachment{{Network: &api.Network{ID: "h", Spec: api.NetworkSpec{DriverConfig: &api.Driver{Name: "host"}}}}}
	task.Endpoint = nil
	return task
}

// An HTTP and a TCP probe dial the task's own address.
func TestHTTPAndTCPProbes(t *testing.T) {
	var ready, asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if r.URL.Path != "/health" || ready.Load() == 0 {
			ready.Store(1) // for the next
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer server.Close()
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	for name, labels := range map[string]map[string]string{
		"http": {"satl.health.http": "/health", "satl.health.http.port": u.Port()},
		"tcp":  {"satl.health.tcp": u.Port()},
	} {
		b := newBench(t)
		startedTask(t, b, hostTask(labels))
		s := mustGet(t, b, "web.1")
		if !s.Serving || s.Health.Status != healthcheck.Healthy || s.Settings == nil {
			t.Errorf("%s: %+v", name, s.Health)
		}
		if name == "http" && asked.Load() < 2 {
			t.Errorf("passed though a 503 was answered first: asked %d times", asked.Load())
		}
		b.rt.end(taskContainerID("task1"), 0)
		b.close()
	}
}

// The first target port is that of a probe that names none.
func TestPortOfAProbe(t *testing.T) {
	task := labelled(nil, map[string]string{"satl.health.http": "/"})
	r, err := taskRecord(task, task.Spec.GetContainer())
	if err != nil {
		t.Fatal(err)
	}
	if s, ok := r.settings(); !ok || s.Port != 80 || s.Kind != healthcheck.HTTP {
		t.Errorf("%+v, %t", s, ok)
	}
	task.Endpoint = nil
	if _, err := taskRecord(task, task.Spec.GetContainer()); err == nil {
		t.Error("a probe without a port was accepted")
	}
}

// An image's labels say nothing of health.
func TestImageLabelsAreNotSettings(t *testing.T) {
	img, err := (&fakeImages{labels: map[string]string{"satl.health.action": "none", "maintainer": "me"}}).Get("app:1")
	if err != nil {
		t.Fatal(err)
	}
	task := webTask(everySecond(3))
	r, err := taskRecord(task, task.Spec.GetContainer())
	if err != nil {
		t.Fatal(err)
	}
	if err := r.fillFrom(img); err != nil {
		t.Fatal(err)
	}
	if s, ok := r.settings(); !ok || s.Action != healthcheck.Replace || r.Config.Labels["maintainer"] != "me" {
		t.Errorf("%+v %v", s, r.Config.Labels)
	}
}

// The status file is read in the task's own root.
func TestStatusFile(t *testing.T) {
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "run"), 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(word string) {
		t.Helper()
		text := fmt.Sprintf("%s\n%d\n", word, time.Now().Unix())
		if err := os.WriteFile(filepath.Join(root, "run", "health"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, func(b *bench) { b.jails, b.images.root = true, root })
		defer b.close()
		task := labelled(&api.HealthConfig{Interval: everySecond(2).Interval, Retries: 2}, map[string]string{"satl.health.file": "/run/health"})
		c := prepared(t, b, task)
		time.AfterFunc(3500*time.Millisecond, func() { write("Healthy") })
		begun := time.Now()
		err := c.Start(t.Context())
		if err == nil || time.Since(begun) != 2*time.Second {
			t.Errorf("without the file: %v after %v", err, time.Since(begun))
		}
		time.Sleep(2 * time.Second)
		task = task.Copy()
		task.ID, task.Slot = "task2", 2
		c = startedTask(t, b, task)
		write("unhealthy")
		if err := c.Wait(t.Context()); !errors.Is(err, errUnhealthy) || !strings.Contains(err.Error(), "status file") {
			t.Errorf("Wait: %v", err)
		}
	})
}

// Each change of verdict is an event, also those that come while the packet
// filter is waited for.
func TestEveryVerdictIsAnEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		defer b.close()
		bad := switched(b)
		b.traffic.putStuck = true
		_, live, cancel := b.events.Subscribe(time.Now())
		defer cancel()
		task := labelled(everySecond(1), map[string]string{"satl.health.action": "unroute"})
		c := prepared(t, b, task)
		go c.Start(t.Context())
		time.Sleep(1500 * time.Millisecond) // passed, and waits
		for range 2 {
			bad.Store(true)
			time.Sleep(time.Second)
			bad.Store(false)
			time.Sleep(time.Second)
		}
		time.Sleep(10 * time.Second)
		var got []string
		for len(live) > 0 {
			if said, ok := strings.CutPrefix(string((<-live).Action), "health_status: "); ok {
				got = append(got, said)
			}
		}
		if want := "healthy unhealthy healthy unhealthy healthy"; strings.Join(got, " ") != want {
			t.Errorf("events %q, want %s", got, want)
		}
	})
}
