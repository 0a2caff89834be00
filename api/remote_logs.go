// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"context"
	"errors"
	"io"
	"strings"
	"time"

	gogotypes "github.com/gogo/protobuf/types"
	"github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/manager/state/store"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"satld/executor"
	"satld/jail"
)

// logRetry is the wait until what is followed is asked for again: a new leader
// is there in a second or two.
const logRetry = 500 * time.Millisecond

// elsewhere reads the output of tasks of other nodes, by way of the leader,
// until it ends or ctx does. Lines come as the nodes send them. What is followed
// goes on with the next leader, each line once.
func (l *taskLogWriter) elsewhere(ctx context.Context) {
	far := remoteLogs{begun: time.Now(), last: make(map[string]time.Time)}
	for again := false; ; again = true {
		err := l.subscribe(ctx, &far, again)
		if ctx.Err() != nil || !l.options.query.Follow && (err == nil || errors.Is(err, io.EOF)) {
			return
		}
		if lost := l.s.mustManage(); lost != nil {
			err = lost
		} else if l.options.query.Follow && status.Code(err) != codes.InvalidArgument {
			l.s.log.Debug("logs of other nodes are asked for again", "error", err)
			select {
			case <-ctx.Done():
				return
			case <-time.After(logRetry):
			}
			continue
		}
		said := status.Convert(err).Message()
		if status.Code(err) == codes.Canceled { // the leader ends
			said = "the leader of the cluster changed"
		}
		if !strings.Contains(said, "incomplete log stream") { // as SwarmKit says of nodes that are away
			said = "incomplete log stream of other nodes: " + said
		}
		l.s.log.Warn("logs of other nodes broken off", "error", err)
		l.broken(errors.New(said))
		return
	}
}

// remoteLogs is how far the output of tasks of other nodes was read.
type remoteLogs struct {
	begun time.Time
	last  map[string]time.Time // time of the last line by task; a task's lines have different ones
}

// rest are the options that ask for what was not read yet, and for some of the
// rest: the oldest line that may be missing is later than the last of some task
// that there still is.
func (r *remoteLogs) rest(o logOptions, there func(taskID string) bool) logOptions {
	if len(r.last) == 0 {
		if o.query.Tail == 0 {
			o.query.Since, o.query.Tail = laterOf(o.query.Since, r.begun), -1
		}
		return o
	}
	since := time.Time{}
	for _, at := range r.last {
		since = laterOf(since, at)
	}
	for id, at := range r.last {
		if at.Before(since) && there(id) {
			since = at
		}
	}
	o.query.Since, o.query.Tail = since, -1
	return o
}

// take tells whether a line is a new one.
func (r *remoteLogs) take(taskID string, at time.Time) bool {
	if last, seen := r.last[taskID]; seen && !at.After(last) {
		return false
	}
	r.last[taskID] = at
	return true
}

func (l *taskLogWriter) subscribe(ctx context.Context, far *remoteLogs, again bool) error {
	wanted := l.options
	if again {
		l.s.cfg.Cluster.Store().View(func(tx store.ReadTx) {
			wanted = far.rest(wanted, func(id string) bool { return store.GetTask(tx, id) != nil })
		})
	}
	options, err := wanted.subscription()
	if err != nil {
		return err
	}
	stream, err := l.s.cfg.Cluster.Logs().SubscribeLogs(ctx, &api.SubscribeLogsRequest{Selector: l.sel.selector, Options: options})
	if err != nil {
		return err
	}
	self, until := l.s.cfg.Cluster.NodeID(), l.options.query.Until
	for {
		page, err := stream.Recv()
		if err != nil {
			return err
		}
		for _, m := range page.Messages {
			if m.Context.NodeID == self {
				continue // read without this detour
			}
			line := taskLine{
				LogLine: jail.LogLine{Stream: "stdout", Line: m.Data},
				from:    executor.Snapshot{NodeID: m.Context.NodeID, ServiceID: m.Context.ServiceID, TaskID: m.Context.TaskID},
			}
			if m.Stream == api.LogStreamStderr {
				line.Stream = "stderr"
			}
			if line.Time, err = gogotypes.TimestampFromProto(m.Timestamp); err != nil {
				return err
			}
			if !far.take(m.Context.TaskID, line.Time) && again || !until.IsZero() && line.Time.After(until) {
				continue
			}
			if err := l.write(line, l.options.query.Follow); err != nil {
				return err
			}
		}
	}
}

// subscription is the query in SwarmKit's terms: its tail is negative, and one
// more than there are lines.
func (o logOptions) subscription() (*api.LogSubscriptionOptions, error) {
	out := &api.LogSubscriptionOptions{Follow: o.query.Follow}
	if o.query.Tail >= 0 {
		out.Tail = int64(-o.query.Tail - 1)
	}
	if o.query.Stdout {
		out.Streams = append(out.Streams, api.LogStreamStdout)
	}
	if o.query.Stderr {
		out.Streams = append(out.Streams, api.LogStreamStderr)
	}
	if o.query.Since.IsZero() {
		return out, nil
	}
	since, err := gogotypes.TimestampProto(o.query.Since)
	out.Since = since
	return out, err
}

// others tells whether a task that is selected is, or may come to be, on
// another node.
func (l *taskLogWriter) others() (found bool) {
	self := l.s.cfg.Cluster.NodeID()
	l.s.cfg.Cluster.Store().View(func(tx store.ReadTx) {
		if l.options.query.Follow && len(l.sel.selector.ServiceIDs) > 0 {
			nodes, err := store.FindNodes(tx, store.All)
			found = err == nil && len(nodes) > 1
			return
		}
		var tasks []*api.Task
		for _, id := range l.sel.selector.ServiceIDs {
			of, err := store.FindTasks(tx, store.ByServiceID(id))
			if err == nil {
				tasks = append(tasks, of...)
			}
		}
		for _, id := range l.sel.selector.TaskIDs {
			if t := store.GetTask(tx, id); t != nil {
				tasks = append(tasks, t)
			}
		}
		for _, t := range tasks {
			found = found || t.NodeID != "" && t.NodeID != self
		}
	})
	return found
}
