// SPDX-License-Identifier: BSD-2-Clause

package apps

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/docker/docker/api/types/container"

	"satld/api/wire"
	"satld/executor"
	"satld/healthcheck"
)

// ask asks a handler for a verdict.
func ask(t *testing.T, h http.Handler, method, path string) (code int, v Verdict, body string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, path, nil))
	body = w.Body.String()
	if w.Code == http.StatusOK || w.Code == http.StatusServiceUnavailable {
		if method == http.MethodGet {
			if err := json.Unmarshal(w.Body.Bytes(), &v); err != nil {
				t.Fatalf("%v in %q", err, body)
			}
		}
		if got := w.Header().Get("Content-Type"); got != "application/json" {
			t.Errorf("content type %s", got)
		}
	}
	return w.Code, v, body
}

// TestCache: nothing is healthy before the first pass; then the verdicts are
// those of the last pass, every 5 s, however many ask; and none stands for ever.
func TestCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var passes atomic.Int64
		var block atomic.Pointer[chan struct{}]
		status := healthcheck.Starting
		var log strings.Builder
		c := New(Options{
			List: func(context.Context) []Container {
				passes.Add(1)
				if b := block.Load(); b != nil {
					<-*b
				}
				return []Container{
					{Labels: compose("shop"), Running: true, Probed: true, Health: status},
					{Labels: map[string]string{labelProject: "quiet"}, Running: true},
				}
			},
			Declared: func() map[string]Declared { return map[string]Declared{"away": OptedIn, "calm": OptedOut} },
			Logger:   slog.New(slog.NewTextHandler(&log, nil)),
		})
		h := c.Handler()
		get := func(name string) string {
			code, v, _ := ask(t, h, "GET", "/satl/v1/apps/"+name+"/health")
			if v.Name != name || v.Healthy != (code == 200) {
				t.Errorf("%s: %d %+v", name, code, v)
			}
			return fmt.Sprintf("%d %s", code, v.Rule)
		}
		expect := func(name, want string) {
			t.Helper()
			if got := get(name); got != want {
				t.Errorf("%s: %s, want %s", name, got, want)
			}
		}
		for _, name := range []string{"shop", "quiet", "nobody"} {
			expect(name, "503 "+ruleNotYet)
		}
		if all := c.All(); len(all) != 0 || all == nil {
			t.Errorf("before the first pass: %+v", all)
		}

		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- c.Run(ctx) }()
		synctest.Wait()
		expect("shop", "503 "+ruleStarting)
		expect("quiet", "200 "+ruleUngated)
		expect("away", "503 "+ruleNone)
		expect("calm", "200 "+ruleUngated)
		expect("nobody", "503 "+ruleNone)

		status = healthcheck.Healthy
		time.Sleep(Every - 1)
		for range 100 {
			expect("shop", "503 "+ruleStarting)
		}
		time.Sleep(2)
		synctest.Wait()
		expect("shop", "200 "+ruleHealthy)
		if n := passes.Load(); n != 2 {
			t.Errorf("%d passes in 5 s", n)
		}
		if v := c.Get("shop"); time.Since(v.Checked) > time.Second || !v.Gated {
			t.Errorf("%+v", v)
		}
		var listed []string
		for _, v := range c.All() {
			listed = append(listed, fmt.Sprintf("%s %v %v", v.Name, v.Healthy, v.Gated))
		}
		if want := []string{"away false true", "calm true false", "quiet true false", "shop true true"}; !reflect.DeepEqual(listed, want) {
			t.Errorf("all: %v", listed)
		}
		time.Sleep(time.Minute)
		if got := strings.Count(log.String(), "app=shop"); got != 2 || strings.Contains(log.String(), "app=quiet") {
			t.Errorf("log:\n%s", log.String())
		}

		// A pass that hangs leaves no verdict standing.
		b := make(chan struct{})
		block.Store(&b)
		time.Sleep(Every + Stale + time.Second)
		if got := get("shop"); !strings.HasPrefix(got, "503 not checked for 2") {
			t.Errorf("stale: %s", got)
		}
		if all := c.All(); len(all) != 4 || all[3].Healthy {
			t.Errorf("stale: %+v", all)
		}
		block.Store(nil)
		close(b)
		synctest.Wait()
		time.Sleep(Every)
		synctest.Wait()
		expect("shop", "200 "+ruleHealthy)
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestHandler: what it answers to, and the form of the answer, which is the
// wire's.
func TestHandler(t *testing.T) {
	c := New(Options{Logger: slog.New(slog.DiscardHandler), List: func(context.Context) []Container {
		return []Container{{Labels: compose("my shop/1"), Running: true, Probed: true, Health: healthcheck.Healthy}}
	}})
	c.refresh(t.Context(), time.Now())
	h := c.Handler()
	code, v, body := ask(t, h, "GET", "/satl/v1/apps/my%20shop%2F1/health")
	if code != 200 || !v.Healthy || !v.Checked.Equal(c.Get("my shop/1").Checked) {
		t.Errorf("%d %s", code, body)
	}
	var onWire wire.App
	if err := json.Unmarshal([]byte(body), &onWire); err != nil {
		t.Fatal(err)
	}
	if again, err := json.Marshal(onWire); err != nil || string(again)+"\n" != body {
		t.Errorf("%s is not the wire's %s (%v)", body, again, err)
	}
	for path, want := range map[string]int{"/satl/v1/apps/x/health": 503, "/satl/v1/apps": 404, "/containers/json": 404, "/": 404} {
		if code, _, _ := ask(t, h, "GET", path); code != want {
			t.Errorf("GET %s: %d", path, code)
		}
	}
	if code, _, _ := ask(t, h, "HEAD", "/satl/v1/apps/x/health"); code != 503 {
		t.Errorf("HEAD: %d", code)
	}
	if code, _, _ := ask(t, h, "POST", "/satl/v1/apps/x/health"); code != 405 {
		t.Errorf("POST: %d", code)
	}
}

// TestServe: on a listener of its own, until it is told to end.
func TestServe(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, l, New(Options{}).Handler()) }()
	res, err := http.Get("http://" + l.Addr().String() + "/satl/v1/apps/shop/health")
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(res.Body)
	res.Body.Close()
	if res.StatusCode != 503 || !strings.Contains(string(body), ruleNotYet) || res.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("%d %s", res.StatusCode, body)
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if _, err := net.Dial("tcp", l.Addr().String()); err == nil {
		t.Error("the listener is still open")
	}
	l, err = net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if err := Serve(t.Context(), l, http.NotFoundHandler()); err == nil {
		t.Error("a listener that is closed is served")
	}
}

// TestFromNode: a node's snapshots as a verdict needs them, status files read.
func TestFromNode(t *testing.T) {
	root := t.TempDir()
	write := func(text string) {
		if err := os.WriteFile(filepath.Join(root, "health"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	config := &container.Config{Labels: compose("shop", LabelFile, "/health")}
	snapshots := []executor.Snapshot{
		{Config: config, State: executor.Running, Root: root},
		{Config: &container.Config{Labels: compose("shop")}, State: executor.Running, TaskID: "t", ServiceID: "web", Slot: 2, Stopping: true,
			Settings: &healthcheck.Settings{}, Health: &healthcheck.Health{Status: healthcheck.Unhealthy}},
		{Config: &container.Config{}, State: executor.Exited, Finished: now, Created: now.Add(-time.Hour), Settings: &healthcheck.Settings{}, Stopping: true},
		{State: executor.Paused},
	}
	list := FromNode(func() []executor.Snapshot { return snapshots })
	const secret = "hunter2"
	for _, c := range []struct{ text, problem string }{
		{fmt.Sprintf("healthy\n%d\n", time.Now().Unix()), ""},
		{secret + "\n1\n", "line 1 is neither healthy nor unhealthy"},
		{"healthy\n1\n", "line 2 is older than 60 s"},
	} {
		write(c.text)
		got := list(t.Context())
		want := []Container{
			{Labels: config.Labels, Running: true, FileProblem: c.problem},
			{Labels: compose("shop"), Running: true, Slot: "web/2", Stopping: true, Probed: true, Health: healthcheck.Unhealthy},
			{Ended: now, Created: now.Add(-time.Hour), Probed: true},
			{Running: true},
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%q:\n got %+v\nwant %+v", c.text, got, want)
		}
		cache := New(Options{List: list, Logger: slog.New(slog.DiscardHandler)})
		cache.refresh(t.Context(), time.Now())
		code, v, body := ask(t, cache.Handler(), "GET", "/satl/v1/apps/shop/health")
		if v.Healthy != (c.problem == "") || code == 200 != v.Healthy || !strings.Contains(v.Rule, c.problem) || strings.Contains(body, secret) {
			t.Errorf("%d %s", code, body)
		}
	}
}
