// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"bytes"
	"context"
	"fmt"
	"io"
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

	"satld/jail"
)

// farLine is a line of a task of another node.
func farLine(service, task string, sec int64) api.LogMessage {
	return api.LogMessage{Context: api.LogContext{NodeID: "other", ServiceID: service, TaskID: task}, Stream: api.LogStreamStdout,
		Timestamp: &gogotypes.Timestamp{Seconds: sec}, Data: fmt.Appendf(nil, "%d\n", sec)}
}

// TestLogsOfMissingNodes: what is missing is told last, after all that there
// is, however long that takes.
func TestLogsOfMissingNodes(t *testing.T) {
	f, web, _ := logFixture(t)
	f.cluster.update(t, func(tx store.Tx) error {
		return store.CreateTask(tx, &api.Task{ID: "faraway", ServiceID: web, NodeID: "gone", Spec: store.GetService(tx, web).Spec.Task})
	})
	asked := make(chan struct{})
	f.cluster.subscribed = func(*api.SubscribeLogsRequest) ([]api.LogMessage, error) {
		close(asked)
		return nil, status.Error(codes.Unknown, "warning: incomplete log stream. some logs could not be retrieved for the following reasons: node gone is not available")
	}
	logs := f.containers.logs
	f.containers.logs = func(ctx context.Context, id string, q jail.LogQuery, each func(jail.LogLine) error) error {
		<-asked
		time.Sleep(100 * time.Millisecond) // for an answer that is told too early
		return logs(ctx, id, q, each)
	}
	_, _, body := f.do(t, "GET", "/services/web/logs?stdout=1&stderr=1", "")
	var out, errs bytes.Buffer
	_, err := stdcopy.StdCopy(&out, &errs, strings.NewReader(body))
	if got := sorted(strings.Fields(out.String() + errs.String())); got != "five four one three two" {
		t.Errorf("there was more than %q", got)
	}
	if err == nil || strings.Count(err.Error(), "incomplete log stream") != 1 || !strings.Contains(err.Error(), "node gone is not available") {
		t.Errorf("what is missing: %v", err)
	}
}

// TestFollowOverLeaderChange: logs of other nodes that are followed go on with
// the next leader, with no line lost and none twice.
func TestFollowOverLeaderChange(t *testing.T) {
	f, web, _ := logFixture(t)
	f.cluster.update(t, func(tx store.Tx) error {
		return store.CreateTask(tx, &api.Task{ID: "faraway", ServiceID: web, NodeID: "other", Spec: store.GetService(tx, web).Spec.Task})
	})
	var mu sync.Mutex
	var asked []api.LogSubscriptionOptions
	f.cluster.subscribed = func(in *api.SubscribeLogsRequest) ([]api.LogMessage, error) {
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, *in.Options)
		switch len(asked) {
		case 1:
			return []api.LogMessage{farLine(web, "faraway", 11), farLine(web, "faraway", 12)}, status.Error(codes.Canceled, "context canceled")
		case 2:
			return nil, status.Error(codes.Unavailable, "the cluster has no leader at the moment: try again")
		}
		return []api.LogMessage{farLine(web, "faraway", 12), farLine(web, "faraway", 13)}, io.EOF
	}
	pr := f.followed(t, "/tasks/faraway/logs?stdout=1&follow=1&tail=2")
	got := make([]byte, len("11\n12\n13\n"))
	if _, err := io.ReadFull(pr, got); err != nil || string(got) != "11\n12\n13\n" {
		t.Fatalf("%q, %v", got, err)
	}
	f.cluster.update(t, func(tx store.Tx) error {
		task := store.GetTask(tx, "faraway")
		task.Status.State = api.TaskStateCompleted
		return store.UpdateTask(tx, task)
	})
	if rest, err := io.ReadAll(pr); err != nil || len(rest) != 0 {
		t.Errorf("%q, %v", rest, err)
	}
	mu.Lock()
	defer mu.Unlock()
	if o := asked[0]; o.Tail != -3 || o.Since != nil || !o.Follow {
		t.Errorf("at first %+v", o)
	}
	for _, o := range asked[1:3] {
		if o.Tail != 0 || o.Since == nil || o.Since.Seconds != 12 || !o.Follow {
			t.Errorf("then %+v", o)
		}
	}
}

// TestRestOfRemoteLogs: what is asked for after a break has all that may be
// missing, and of tasks that are gone nothing more.
func TestRestOfRemoteLogs(t *testing.T) {
	at := func(sec int64) time.Time { return time.Unix(sec, 0) }
	none := time.Time{}
	for name, c := range map[string]struct {
		last        map[string]time.Time
		since       time.Time
		tail        int
		there       string
		wantSince   time.Time
		wantedLines int
	}{
		"nothing was read":            {nil, at(5), 7, "", at(5), 7},
		"nothing, of nothing so far":  {nil, none, 0, "", at(50), -1},
		"nothing so far, but later":   {nil, at(60), 0, "", at(60), -1},
		"as far as the slowest":       {map[string]time.Time{"a": at(70), "b": at(80)}, none, -1, "ab", at(70), -1},
		"but not one that is gone":    {map[string]time.Time{"a": at(70), "b": at(80)}, none, 7, "b", at(80), -1},
		"all are gone":                {map[string]time.Time{"a": at(70), "b": at(80)}, none, -1, "", at(80), -1},
		"and never before it was due": {map[string]time.Time{"a": at(70)}, at(60), 0, "a", at(70), -1},
	} {
		r := remoteLogs{begun: at(50), last: c.last}
		o := r.rest(logOptions{query: jail.LogQuery{Since: c.since, Tail: c.tail, Follow: true}}, func(id string) bool { return strings.Contains(c.there, id) })
		if !o.query.Since.Equal(c.wantSince) || o.query.Tail != c.wantedLines {
			t.Errorf("%s: since %v, tail %d", name, o.query.Since, o.query.Tail)
		}
	}
}
