// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	dockerevents "github.com/docker/docker/api/types/events"
	"github.com/docker/docker/pkg/stdcopy"

	"satld/events"
	"satld/executor"
	"satld/jail"
)

var logTime = time.Date(2026, 11, 29, 19, 20, 0, 1000, time.UTC)

func sendLines(lines ...jail.LogLine) func(context.Context, string, jail.LogQuery, func(jail.LogLine) error) error {
	return func(_ context.Context, _ string, _ jail.LogQuery, each func(jail.LogLine) error) error {
		for _, l := range lines {
			if err := each(l); err != nil {
				return err
			}
		}
		return nil
	}
}

func out(s string) jail.LogLine {
	return jail.LogLine{Time: logTime, Stream: "stdout", Line: []byte(s), Partial: !strings.HasSuffix(s, "\n")}
}

func errLine(s string) jail.LogLine {
	l := out(s)
	l.Stream = "stderr"
	return l
}

func TestLogsRendering(t *testing.T) {
	f := newSocketFixture(t, "")
	withContainers(f.fixture)
	f.containers.logs = sendLines(out("one\n"), errLine("two\n"), out("thr"), errLine("x\n"), out("ee\n"))
	for _, c := range []struct {
		o        container.LogsOptions
		out, err string
	}{
		{container.LogsOptions{}, "one\nthree\n", "two\nx\n"},
		{container.LogsOptions{Timestamps: true}, "2026-11-29T19:20:00.000001000Z one\n2026-11-29T19:20:00.000001000Z three\n",
			"2026-11-29T19:20:00.000001000Z two\n2026-11-29T19:20:00.000001000Z x\n"},
		{container.LogsOptions{Details: true}, " one\n three\n", " two\n x\n"},
	} {
		c.o.ShowStdout, c.o.ShowStderr = true, true
		body, err := f.client.ContainerLogs(t.Context(), "web", c.o)
		if err != nil {
			t.Fatal(err)
		}
		var stdout, stderr bytes.Buffer
		if _, err := stdcopy.StdCopy(&stdout, &stderr, body); err != nil {
			t.Fatal(err)
		}
		body.Close()
		if stdout.String() != c.out || stderr.String() != c.err {
			t.Errorf("%+v: %q %q", c.o, stdout.String(), stderr.String())
		}
	}
}

func TestLogsOfTerminalAreRaw(t *testing.T) {
	f := newFixture(t)
	withContainers(f)
	tty := webTask()
	tty.Config.Tty = true
	f.containers.get = func(string) (executor.Snapshot, error) { return tty, nil }
	f.containers.logs = sendLines(out("raw\r\n"))
	code, h, body := f.do(t, "GET", "/containers/web/logs?stdout=1", "")
	if code != 200 || body != "raw\r\n" || h.Get("Content-Type") != "application/vnd.docker.raw-stream" {
		t.Errorf("%d %q %s", code, body, h.Get("Content-Type"))
	}
	tty.Config.Tty = false
	for path, want := range map[string]string{"/v1.41": "application/vnd.docker.raw-stream", "/v1.42": "application/vnd.docker.multiplexed-stream"} {
		if _, h, _ := f.do(t, "GET", path+"/containers/web/logs?stdout=1", ""); h.Get("Content-Type") != want {
			t.Errorf("%s: %s", path, h.Get("Content-Type"))
		}
	}
}

func TestLogsQuery(t *testing.T) {
	f := newFixture(t)
	withContainers(f)
	var got jail.LogQuery
	asked := 0
	f.containers.logs = func(_ context.Context, id string, q jail.LogQuery, _ func(jail.LogLine) error) error {
		got, asked = q, asked+1
		return nil
	}
	for _, c := range []struct {
		query string
		want  jail.LogQuery
	}{
		{"stdout=1", jail.LogQuery{Stdout: true, Tail: -1}},
		{"stderr=1&tail=all", jail.LogQuery{Stderr: true, Tail: -1}},
		{"stdout=1&stderr=1&tail=5&follow=1", jail.LogQuery{Stdout: true, Stderr: true, Tail: 5, Follow: true}},
		{"stdout=1&since=1796000000.5&until=1796000001", jail.LogQuery{Stdout: true, Tail: -1, Since: time.Unix(1796000000, 5e8), Until: time.Unix(1796000001, 0)}},
	} {
		if code, _, body := f.do(t, "GET", "/containers/web/logs?"+c.query, ""); code != 200 {
			t.Errorf("%s: %d %s", c.query, code, body)
		}
		if !got.Since.Equal(c.want.Since) || !got.Until.Equal(c.want.Until) {
			t.Errorf("%s: %v", c.query, got)
		}
		got.Since, got.Until, c.want.Since, c.want.Until = time.Time{}, time.Time{}, time.Time{}, time.Time{}
		if got != c.want {
			t.Errorf("%s: %+v, want %+v", c.query, got, c.want)
		}
	}
	asked = 0
	if _, _, body := f.do(t, "GET", "/containers/web/logs?stdout=1&tail=0", ""); body != "" || asked != 0 {
		t.Errorf("tail=0: %q, asked %d times", body, asked)
	}
	before := time.Now()
	if _, _, _ = f.do(t, "GET", "/containers/web/logs?stdout=1&tail=0&follow=1", ""); got.Tail != -1 || got.Since.Before(before) {
		t.Errorf("tail=0&follow: %+v", got)
	}
	for query, code := range map[string]int{"follow=1": 400, "stdout=1&since=soon": 400, "stdout=1&until=x": 400} {
		if got, _, body := f.do(t, "GET", "/containers/web/logs?"+query, ""); got != code {
			t.Errorf("%s: %d %s", query, got, body)
		}
	}
	if code, _, _ := f.do(t, "GET", "/containers/nobody/logs?stdout=1", ""); code != 404 {
		t.Errorf("nobody: %d", code)
	}
	none := webTask()
	none.HostConfig.LogConfig.Type = "none"
	f.containers.get = func(string) (executor.Snapshot, error) { return none, nil }
	if code, _, body := f.do(t, "GET", "/containers/web/logs?stdout=1", ""); code != 501 || !strings.Contains(body, "does not support reading") {
		t.Errorf("none: %d %s", code, body)
	}
	none.State = executor.Dead
	if code, _, _ := f.do(t, "GET", "/containers/web/logs?stdout=1", ""); code != 409 {
		t.Errorf("dead: %d", code)
	}
}

func TestLogsFollow(t *testing.T) {
	noLeak(t)
	f := newSocketFixture(t, "")
	withContainers(f.fixture)
	more, left := make(chan string), make(chan error, 1)
	f.containers.logs = func(ctx context.Context, _ string, _ jail.LogQuery, each func(jail.LogLine) error) error {
		err := func() error {
			for {
				select {
				case s, ok := <-more:
					if !ok {
						return nil // the container ended
					}
					if err := each(out(s)); err != nil {
						return err
					}
				case <-ctx.Done():
					return ctx.Err()
				}
			}
		}()
		left <- err
		return err
	}
	body, err := f.client.ContainerLogs(t.Context(), "web", container.LogsOptions{ShowStdout: true, Follow: true})
	if err != nil {
		t.Fatal(err) // the head comes before the first line
	}
	frame := make([]byte, 8+4)
	for _, line := range []string{"aaa\n", "bbb\n"} {
		more <- line // each line arrives by itself
		if _, err := io.ReadFull(body, frame); err != nil || string(frame[8:]) != line {
			t.Fatalf("%q %v", frame, err)
		}
	}
	close(more)
	if rest, err := io.ReadAll(body); err != nil || len(rest) != 0 {
		t.Errorf("after the end: %q %v", rest, err)
	}
	body.Close()
	if err := <-left; err != nil {
		t.Error(err)
	}

	more = make(chan string)
	ctx, cancel := context.WithCancel(t.Context())
	if body, err = f.client.ContainerLogs(ctx, "web", container.LogsOptions{ShowStdout: true, Follow: true}); err != nil {
		t.Fatal(err)
	}
	cancel() // the client leaves a silent container
	body.Close()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("left with %v", err)
	}
}

func TestLogsBrokenOff(t *testing.T) {
	f := newFixture(t)
	withContainers(f)
	f.containers.logs = func(_ context.Context, _ string, _ jail.LogQuery, each func(jail.LogLine) error) error {
		_ = each(out("one\n"))
		return errors.New("read error")
	}
	resp, err := http.Get(f.URL + "/containers/web/logs?stdout=1")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var stdout, stderr bytes.Buffer
	_, err = stdcopy.StdCopy(&stdout, &stderr, resp.Body)
	if stdout.String() != "one\n" || err == nil || !strings.Contains(err.Error(), "Error grabbing logs: read error") {
		t.Errorf("%q %v", stdout.String(), err)
	}
}

// A container that was never started has said nothing; its logs can be
// followed all the same.
func TestLogsBeforeStart(t *testing.T) {
	noLeak(t)
	f := newSocketFixture(t, "")
	withContainers(f.fixture)
	var state atomic.Pointer[executor.Snapshot]
	c := oldContainer()
	state.Store(&c)
	looked := make(chan struct{}, 100)
	f.containers.get = func(id string) (executor.Snapshot, error) {
		looked <- struct{}{}
		if s := state.Load(); s != nil {
			return *s, nil
		}
		return executor.Snapshot{}, noContainer(id)
	}
	f.containers.logs = sendLines(out("first\n"))
	if code, _, body := f.do(t, "GET", "/containers/old/logs?stdout=1", ""); code != 200 || body != "" {
		t.Errorf("%d %q", code, body)
	}
	<-looked
	happens := func(action dockerevents.Action, id string) { f.events.Publish(events.Container(action, id, nil)) }
	for _, removed := range []bool{false, true} {
		state.Store(&c)
		body, err := f.client.ContainerLogs(t.Context(), "old", container.LogsOptions{ShowStdout: true, Follow: true})
		if err != nil {
			t.Fatal(err)
		}
		<-looked // by the handler
		<-looked // before it waits
		happens("start", webID)
		want := "first\n"
		if removed {
			want = ""
			state.Store(nil)
			happens("destroy", c.ID)
		} else {
			started := c
			started.State, started.Started = executor.Running, logTime
			state.Store(&started)
			happens("start", c.ID)
		}
		var stdout bytes.Buffer
		if _, err := stdcopy.StdCopy(&stdout, io.Discard, body); err != nil || stdout.String() != want {
			t.Errorf("%q %v", stdout.String(), err)
		}
		body.Close()
		<-looked // after the event
	}
}
