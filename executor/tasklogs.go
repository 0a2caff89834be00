// SPDX-License-Identifier: BSD-2-Clause

package executor

import (
	"context"
	"fmt"
	"time"

	gogotypes "github.com/gogo/protobuf/types"
	"github.com/moby/swarmkit/v2/agent/exec"
	"github.com/moby/swarmkit/v2/api"

	"satld/jail"
)

var _ exec.ControllerLogs = (*controller)(nil)

// logWait is how often a task whose container is not made yet is looked at by
// whoever follows its output.
const logWait = 200 * time.Millisecond

// Logs gives the task's output to who subscribed to it on a manager. Following
// ends with the task.
func (c *controller) Logs(ctx context.Context, publisher exec.LogPublisher, options api.LogSubscriptionOptions) error {
	q, err := logQuery(options, time.Now())
	if err != nil {
		return fmt.Errorf("options of a subscription to the output of task %s: %w", c.task.ID, err)
	}
	if q.Tail == 0 {
		return nil
	}
	for {
		if _, ok := c.node.byID(c.id); ok {
			break
		}
		if !q.Follow || c.stopped.Load() {
			return nil // it has no output
		}
		select {
		case <-time.After(logWait):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	from := api.LogContext{NodeID: c.task.NodeID, ServiceID: c.task.ServiceID, TaskID: c.task.ID}
	return c.node.Logs(ctx, c.id, q, func(line jail.LogLine) error {
		at, err := gogotypes.TimestampProto(line.Time)
		if err != nil {
			return err
		}
		m := api.LogMessage{Context: from, Timestamp: at, Stream: api.LogStreamStdout, Data: line.Line}
		if line.Stream == "stderr" {
			m.Stream = api.LogStreamStderr
		}
		return publisher.Publish(ctx, m)
	})
}

// logQuery is a subscription's options in our terms. SwarmKit's tail counts from
// the end if it is negative, one more than there are lines; 0 is all.
func logQuery(o api.LogSubscriptionOptions, now time.Time) (q jail.LogQuery, err error) {
	q = jail.LogQuery{Follow: o.Follow, Tail: -1, Stdout: len(o.Streams) == 0, Stderr: len(o.Streams) == 0}
	for _, s := range o.Streams {
		q.Stdout = q.Stdout || s == api.LogStreamStdout
		q.Stderr = q.Stderr || s == api.LogStreamStderr
	}
	if o.Since != nil {
		if q.Since, err = gogotypes.TimestampFromProto(o.Since); err != nil {
			return q, err
		}
	}
	switch {
	case o.Tail > 0:
		return q, fmt.Errorf("skipping the first %d lines is not supported", o.Tail)
	case o.Tail < 0:
		q.Tail = int(-o.Tail - 1)
	}
	if q.Tail == 0 && q.Follow { // nothing of what was written so far
		q.Tail = -1
		if q.Since.Before(now) {
			q.Since = now
		}
	}
	return q, nil
}
