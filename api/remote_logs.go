// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"context"
	"errors"
	"io"

	gogotypes "github.com/gogo/protobuf/types"
	"github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/manager/state/store"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"satld/executor"
	"satld/jail"
)

// elsewhere reads the output of tasks of other nodes, by way of the leader,
// until it ends or ctx does. Lines come as the nodes send them.
func (l *taskLogWriter) elsewhere(ctx context.Context) {
	err := l.subscribe(ctx)
	switch {
	case err == nil, errors.Is(err, io.EOF), ctx.Err() != nil:
		return
	case status.Code(err) == codes.Canceled: // the leader ends
		err = errors.New("the leader of the cluster changed")
	}
	l.s.log.Warn("logs of other nodes broken off", "error", err)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.out.fail(errors.New("incomplete log stream of other nodes: " + status.Convert(err).Message()))
	l.out.flush()
}

func (l *taskLogWriter) subscribe(ctx context.Context) error {
	options, err := l.options.subscription()
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
			if !until.IsZero() && line.Time.After(until) {
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
