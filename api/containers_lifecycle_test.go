// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"

	"satld/executor"
)

func TestContainerChanges(t *testing.T) {
	f := newFixture(t)
	var got string
	fail := error(nil)
	record := func(what string, args ...any) error {
		got = strings.TrimSpace(what + " " + fmt.Sprintln(args...))
		return fail
	}
	seconds := func(n *int) any {
		if n == nil {
			return "-"
		}
		return *n
	}
	c := f.containers
	c.start = func(_ context.Context, id string) error { return record("start", id) }
	c.stop = func(_ context.Context, id string, g *int, s string) error { return record("stop", id, seconds(g), s) }
	c.restart = func(_ context.Context, id string, g *int, s string) error {
		return record("restart", id, seconds(g), s)
	}
	c.kill = func(_ context.Context, id, s string) error { return record("kill", id, s) }
	c.remove = func(_ context.Context, id string, force, v bool) error { return record("remove", id, force, v) }
	c.rename = func(_ context.Context, id, name string) error { return record("rename", id, name) }
	c.pause = func(_ context.Context, id string) error { return record("pause", id) }
	c.unpause = func(_ context.Context, id string) error { return record("unpause", id) }
	c.resize = func(_ context.Context, id string, w, h uint16) error { return record("resize", id, w, h) }
	for _, x := range []struct {
		method, path, want string
		code               int
	}{
		{"POST", "/containers/web/start", "start web", 204},
		{"POST", "/containers/web/stop", "stop web -", 204},
		{"POST", "/containers/web/stop?t=3&signal=SIGINT", "stop web 3 SIGINT", 204},
		{"POST", "/v1.41/containers/web/stop?t=0&signal=SIGINT", "stop web 0", 204}, // signal came with 1.42
		{"POST", "/containers/web/restart?t=-1", "restart web -1", 204},
		{"POST", "/containers/web/kill?signal=HUP", "kill web HUP", 204},
		{"DELETE", "/containers/web?force=1&v=1", "remove web true true", 204},
		{"DELETE", "/containers/web.1.abc", "remove web.1.abc false false", 204},
		{"POST", "/containers/web/rename?name=/other", "rename web other", 204},
		{"POST", "/containers/web/pause", "pause web", 204},
		{"POST", "/containers/web/unpause", "unpause web", 204},
		{"POST", "/containers/web/resize?h=24&w=80", "resize web 80 24", 200},
	} {
		got = ""
		if code, _, body := f.do(t, x.method, x.path, ""); code != x.code || got != x.want {
			t.Errorf("%s %s: %d %q %s, want %q", x.method, x.path, code, got, body, x.want)
		}
	}
	if code, _, body := f.do(t, "POST", "/containers/web/start", `{"Binds":["/:/x"]}`); code != 400 || !strings.Contains(body, "removed in v1.24") {
		t.Errorf("start with a body: %d %s", code, body)
	}
	if code, _, body := f.do(t, "POST", "/containers/web/start", `{}`); code != 204 {
		t.Errorf("start with an empty object: %d %s", code, body)
	}
	for _, x := range []struct {
		err  error
		code int
		body string
	}{
		{errdefs.ErrNotModified.WithMessage("container web is already started"), 304, ""},
		{noContainer("web"), 404, "No such container: web"},
		{errdefs.ErrConflict.WithMessage("Bind for 0.0.0.0:80 failed: port is already allocated"), 409, "port is already allocated"},
		{errdefs.ErrNotImplemented.WithMessage("jails cannot be paused"), 501, "jails cannot be paused"},
		{errors.New("broken"), 500, "broken"},
	} {
		fail = x.err
		if code, _, body := f.do(t, "POST", "/containers/web/start", ""); code != x.code || !strings.Contains(body, x.body) || x.body == "" && body != "" {
			t.Errorf("%v: %d %q", x.err, code, body)
		}
	}
	fail = errdefs.ErrConflict.WithMessage("container web is not running")
	if code, _, body := f.do(t, "POST", "/containers/web/kill", ""); code != 409 || !strings.Contains(body, "cannot kill container: web: container web is not running") {
		t.Errorf("kill: %d %s", code, body)
	}
}

// A change goes on when the client that asked for it leaves.
func TestContainerChangeOutlivesClient(t *testing.T) {
	noLeak(t)
	f := newSocketFixture(t, "")
	ctx, leave := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	f.containers.stop = func(ctx context.Context, _ string, _ *int, _ string) error {
		leave()
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
		ended <- ctx.Err()
		return ctx.Err()
	}
	_ = f.client.ContainerStop(ctx, "web", container.StopOptions{})
	if err := <-ended; err != nil {
		t.Errorf("the stop was given up: %v", err)
	}
}

func TestContainerWait(t *testing.T) {
	noLeak(t)
	f := newSocketFixture(t, "")
	asked := make(chan container.WaitCondition, 1)
	end := make(chan executor.WaitResult, 1)
	f.containers.wait = func(_ context.Context, _ string, c container.WaitCondition) (<-chan executor.WaitResult, error) {
		asked <- c
		return end, nil
	}
	results, errs := f.client.ContainerWait(t.Context(), "web", container.WaitConditionNextExit)
	// The client's call has returned: the head was there before the end.
	if c := <-asked; c != container.WaitConditionNextExit {
		t.Errorf("condition %q", c)
	}
	end <- executor.WaitResult{ExitCode: 42}
	select {
	case r := <-results:
		if r.StatusCode != 42 || r.Error != nil {
			t.Errorf("%+v", r)
		}
	case err := <-errs:
		t.Error(err)
	}
	end <- executor.WaitResult{Err: errors.New("lost")}
	code, _, body := f.do(t, "POST", "/containers/web/wait", "")
	if c := <-asked; c != container.WaitConditionNotRunning || code != 200 || body != `{"Error":{"Message":"lost"},"StatusCode":0}`+"\n" {
		t.Errorf("%q %d %s", c, code, body)
	}
	// Before 1.30 there were no conditions, and the head came with the end.
	end <- executor.WaitResult{ExitCode: 1}
	if _, _, body := f.do(t, "POST", "/v1.29/containers/web/wait?condition=removed", ""); body != `{"StatusCode":1}`+"\n" || <-asked != container.WaitConditionNotRunning {
		t.Errorf("%s", body)
	}
	f.containers.wait = nil
	if code, _, _ := f.do(t, "POST", "/containers/nobody/wait", ""); code != 404 {
		t.Errorf("%d", code)
	}
}

// A client that leaves a wait leaves nothing behind.
func TestContainerWaitLeft(t *testing.T) {
	noLeak(t)
	f := newSocketFixture(t, "")
	begun, left := make(chan struct{}), make(chan struct{})
	f.containers.wait = func(ctx context.Context, _ string, _ container.WaitCondition) (<-chan executor.WaitResult, error) {
		context.AfterFunc(ctx, func() { close(left) })
		close(begun)
		return make(chan executor.WaitResult), nil
	}
	ctx, cancel := context.WithCancel(t.Context())
	_, errs := f.client.ContainerWait(ctx, "web", container.WaitConditionRemoved)
	<-begun
	cancel()
	<-left
	if err := <-errs; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestContainerTop(t *testing.T) {
	f := newFixture(t)
	f.containers.top = func(_ context.Context, id, args string) ([]string, [][]string, error) {
		return []string{"PID", "CMD", id + args}, nil, nil
	}
	if _, _, body := f.do(t, "GET", "/containers/web/top?ps_args=aux", ""); body != `{"Processes":[],"Titles":["PID","CMD","webaux"]}`+"\n" {
		t.Errorf("%s", body)
	}
}

func TestContainerPrune(t *testing.T) {
	f := newFixture(t)
	withContainers(f)
	task := webTask()
	task.State, task.ID = executor.Exited, strings.Repeat("e", 64)
	f.containers.list = func() []executor.Snapshot {
		return []executor.Snapshot{oldContainer(), webTask(), runContainer(), task}
	}
	var removed []string
	f.containers.remove = func(_ context.Context, id string, force, _ bool) error {
		if force {
			t.Error("forced")
		}
		removed = append(removed, id)
		return nil
	}
	for _, c := range []struct {
		filter string
		want   []string
		code   int
	}{
		{``, []string{oldID, runID}, 200},
		{`{"label":["tier=back"]}`, []string{runID}, 200},
		{`{"label!":["tier=back"]}`, []string{oldID}, 200},
		{`{"until":["2026-11-28T12:00:00Z"]}`, []string{oldID}, 200},
		{`{"until":["whenever"]}`, nil, 400},
		{`{"until":["1h","2h"]}`, nil, 400},
		{`{"name":["x"]}`, nil, 400},
	} {
		removed = nil
		code, _, body := f.do(t, "POST", "/containers/prune?filters="+url.QueryEscape(c.filter), "")
		if code != c.code || !reflect.DeepEqual(removed, c.want) {
			t.Errorf("%s: %d %s %v", c.filter, code, body, removed)
		}
		var rep container.PruneReport
		if code == 200 {
			if err := json.Unmarshal([]byte(body), &rep); err != nil || rep.SpaceReclaimed != uint64(10*len(c.want)) || !reflect.DeepEqual(rep.ContainersDeleted, c.want) {
				t.Errorf("%s: %s", c.filter, body)
			}
		}
	}
}
