// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/docker/docker/pkg/stdcopy"
	gogotypes "github.com/gogo/protobuf/types"
	"github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/manager/state/store"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	satlevents "satld/events"
	"satld/executor"
	"satld/jail"
)

func sorted(words []string) string {
	slices.Sort(words)
	return strings.Join(words, " ")
}

func logLine(sec int64, stream, text string) jail.LogLine {
	return jail.LogLine{Time: time.Unix(sec, 5).UTC(), Stream: stream, Line: []byte(text)}
}

// logFixture is a service with two tasks and what they logged.
func logFixture(t *testing.T) (f *fixture, web string, queries *[]jail.LogQuery) {
	f = newFixture(t)
	web, _ = f.create(t, webSpec("1"))
	f.runTasks(t, web, 2)
	f.containers.list = func() []executor.Snapshot {
		return []executor.Snapshot{
			{ID: "c2", TaskID: web[:20] + "2", ServiceID: web, NodeID: fakeNodeID, Slot: 2, Created: time.Unix(2, 0)},
			{ID: "c1", TaskID: web[:20] + "1", ServiceID: web, NodeID: fakeNodeID, Slot: 1, Created: time.Unix(1, 0)},
			{ID: "other", TaskID: "x", ServiceID: "y", NodeID: fakeNodeID},
		}
	}
	lines := map[string][]jail.LogLine{
		"c1": {logLine(10, "stdout", "one\n"), logLine(30, "stderr", "three\n"), logLine(50, "stdout", "five\n")},
		"c2": {logLine(20, "stdout", "two\n"), logLine(40, "stdout", "four\n")},
	}
	queries = new([]jail.LogQuery)
	var mu sync.Mutex
	f.containers.logs = func(_ context.Context, id string, q jail.LogQuery, each func(jail.LogLine) error) error {
		mu.Lock()
		*queries = append(*queries, q)
		mu.Unlock()
		for _, l := range lines[id] {
			if err := each(l); err != nil {
				return err
			}
		}
		return nil
	}
	return f, web, queries
}

// followed is the standard output of logs that are followed, until they end.
func (f *fixture) followed(t *testing.T, path string) io.Reader {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "GET", f.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := f.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	pr, pw := io.Pipe()
	go func() {
		_, err := stdcopy.StdCopy(pw, io.Discard, resp.Body)
		_ = pw.CloseWithError(err)
	}()
	return pr
}

func demux(t *testing.T, body string) (stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	if _, e := stdcopy.StdCopy(&out, &err, strings.NewReader(body)); e != nil {
		t.Fatal(e)
	}
	return out.String(), err.String()
}

func TestServiceLogs(t *testing.T) {
	f, web, queries := logFixture(t)
	code, h, body := f.do(t, "GET", "/v1.51/services/web/logs?stdout=1&stderr=1", "")
	if code != 200 || h.Get("Content-Type") != "application/vnd.docker.multiplexed-stream" {
		t.Errorf("%d %v", code, h)
	}
	if out, err := demux(t, body); out != "one\ntwo\nfour\nfive\n" || err != "three\n" {
		t.Errorf("%q %q", out, err)
	}
	// As the CLI asks: time, then whose it is, then the line.
	_, _, body = f.do(t, "GET", "/services/web/logs?stdout=1&timestamps=1&details=1&since=5&tail=7", "")
	out, _ := demux(t, body)
	want := fmt.Sprintf("1970-01-01T00:00:10.000000005Z com.docker.swarm.node.id=%s,com.docker.swarm.service.id=%s,com.docker.swarm.task.id=%s one\n", fakeNodeID, web, web[:20]+"1")
	if !strings.HasPrefix(out, want) {
		t.Errorf("%q, want %q", out, want)
	}
	if q := (*queries)[len(*queries)-1]; q.Tail != 7 || q.Since.Unix() != 5 || !q.Stdout || q.Stderr || q.Follow {
		t.Errorf("%+v", q)
	}
	if _, _, body = f.do(t, "GET", "/services/web/logs?stdout=1&tail=0", ""); body != "" {
		t.Errorf("tail=0: %q", body)
	}
	_, _, body = f.do(t, "GET", "/tasks/"+web[:20]+"2/logs?stdout=1", "")
	if out, _ = demux(t, body); out != "two\nfour\n" {
		t.Errorf("task: %q", out)
	}
	f.refused(t, 400, "at least one stream", "GET", "/services/web/logs", "")
	f.refused(t, 400, "tail value", "GET", "/services/web/logs?stdout=1&tail=some", "")
	f.refused(t, 400, "tail value", "GET", "/services/web/logs?stdout=1&tail=-1", "")
	f.refused(t, 404, "not found", "GET", "/tasks/nope/logs?stdout=1", "")
	f.cluster.update(t, func(tx store.Tx) error {
		return store.CreateTask(tx, &api.Task{ID: "faraway", ServiceID: web, NodeID: "other", Spec: store.GetService(tx, web).Spec.Task})
	})
	// Tasks of other nodes, by way of the cluster.
	message := func(node string, sec int64, stream api.LogStream, text string) api.LogMessage {
		return api.LogMessage{Context: api.LogContext{NodeID: node, ServiceID: web, TaskID: "faraway"}, Stream: stream,
			Timestamp: &gogotypes.Timestamp{Seconds: sec}, Data: []byte(text)}
	}
	var asked []*api.SubscribeLogsRequest
	var trouble error
	f.cluster.subscribed = func(in *api.SubscribeLogsRequest) ([]api.LogMessage, error) {
		asked = append(asked, in)
		return []api.LogMessage{message("other", 11, api.LogStreamStdout, "far\n"), message(fakeNodeID, 12, api.LogStreamStdout, "twice\n"),
			message("other", 90, api.LogStreamStderr, "late\n")}, trouble
	}
	_, _, body = f.do(t, "GET", "/tasks/faraway/logs?stdout=1&stderr=1&details=1&tail=5&since=5", "")
	if out, err := demux(t, body); out != "com.docker.swarm.node.id=other,com.docker.swarm.service.id="+web+",com.docker.swarm.task.id=faraway far\n" || !strings.HasSuffix(err, " late\n") {
		t.Errorf("%q %q", out, err)
	}
	if o := asked[0].Options; len(asked) != 1 || asked[0].Selector.TaskIDs[0] != "faraway" || o.Tail != -6 || o.Since.Seconds != 5 || len(o.Streams) != 2 || o.Follow {
		t.Errorf("asked %+v", asked)
	}
	_, _, body = f.do(t, "GET", "/services/web/logs?stdout=1&stderr=1&until=60", "")
	if out, err := demux(t, body); sorted(strings.Fields(out)) != "far five four one two" || err != "three\n" {
		t.Errorf("%q %q", out, err)
	}
	trouble = status.Error(codes.Unknown, "node gone is not available")
	_, _, body = f.do(t, "GET", "/services/web/logs?stdout=1", "")
	if _, err := stdcopy.StdCopy(io.Discard, io.Discard, strings.NewReader(body)); err == nil || !strings.Contains(err.Error(), "node gone is not available") {
		t.Errorf("what is missing was not told: %v", err)
	}
	trouble = nil

	f.containers.logs = func(context.Context, string, jail.LogQuery, func(jail.LogLine) error) error {
		return io.ErrUnexpectedEOF
	}
	_, _, body = f.do(t, "GET", "/services/web/logs?stdout=1", "")
	if _, err := stdcopy.StdCopy(io.Discard, io.Discard, strings.NewReader(body)); err == nil || !strings.Contains(err.Error(), "Error grabbing logs") {
		t.Errorf("a failure was not told: %v", err)
	}
}

func TestServiceLogsTTY(t *testing.T) {
	f, web, _ := logFixture(t)
	f.cluster.update(t, func(tx store.Tx) error {
		svc := store.GetService(tx, web)
		svc.Spec.Task.GetContainer().TTY = true
		return store.UpdateService(tx, svc)
	})
	_, h, body := f.do(t, "GET", "/services/web/logs?stdout=1", "")
	if h.Get("Content-Type") != "application/vnd.docker.raw-stream" || !strings.HasPrefix(body, "one\ntwo\n") {
		t.Errorf("%v %q", h, body)
	}
}

// TestServiceLogsFollow: lines arrive as they are written, tasks that start
// later are followed too, and the stream ends with its service.
func TestServiceLogsFollow(t *testing.T) {
	f, web, _ := logFixture(t)
	var mu sync.Mutex
	running := []executor.Snapshot{{ID: "c1", TaskID: "t1", ServiceID: web, NodeID: fakeNodeID}}
	f.containers.list = func() []executor.Snapshot {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(running)
	}
	streams := map[string]chan string{"c1": make(chan string), "c2": make(chan string)}
	queries := make(chan jail.LogQuery, 2)
	f.containers.logs = func(ctx context.Context, id string, q jail.LogQuery, each func(jail.LogLine) error) error {
		queries <- q
		for {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case text, open := <-streams[id]:
				if !open {
					return nil
				}
				if err := each(logLine(1, "stdout", text)); err != nil {
					return err
				}
			}
		}
	}
	pr := f.followed(t, "/services/web/logs?stdout=1&follow=1&tail=3")
	expect := func(text string) {
		t.Helper()
		got := make([]byte, len(text))
		if _, err := io.ReadFull(pr, got); err != nil || string(got) != text {
			t.Fatalf("%q %v, want %q", got, err, text)
		}
	}
	streams["c1"] <- "first\n"
	expect("first\n")
	if q := <-queries; q.Tail != 3 || !q.Follow {
		t.Errorf("%+v", q)
	}
	mu.Lock()
	running = append(running, executor.Snapshot{ID: "c2", TaskID: "t2", ServiceID: web, NodeID: fakeNodeID})
	mu.Unlock()
	f.events.Publish(satlevents.Container("start", "c2", nil))
	streams["c2"] <- "second\n"
	expect("second\n")
	if q := <-queries; q.Tail != -1 { // from its first line
		t.Errorf("%+v", q)
	}
	streams["c1"] <- "third\n"
	expect("third\n")
	f.must(t, 200, "DELETE", "/services/web", "")
	close(streams["c1"])
	close(streams["c2"])
	if rest, err := io.ReadAll(pr); err != nil || len(rest) != 0 {
		t.Errorf("%q %v", rest, err)
	}
}
