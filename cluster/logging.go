// SPDX-License-Identifier: BSD-2-Clause

package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sort"
	"strings"
	"sync"

	"github.com/moby/swarmkit/v2/log"
	"github.com/sirupsen/logrus"
	bolt "go.etcd.io/bbolt"
)

// demoted are lines that SwarmKit logs as errors or warnings in the normal
// course of things: a session's end at a stop or a change of leader, a task
// that failed (its executor says so, with the reason), a batch that lost a race
// and is tried again, each attempt to connect to a node that is away.
var demoted = []string{
	"agent: session failed",
	"agent: closing session failed",
	"closing session after fatal error",
	"failed to remove node",
	"fatal task error",
	"heartbeat to manager",
	"status reporter failed to report status to agent",
	"dispatcher session dropped",
	"manager does not support log subscriptions",
	"worker initialization failed: context canceled",
	"error creating cluster object",
	"addrConn.createTransport failed",
}

// bridge is a logrus hook that hands SwarmKit's lines to slog. What SwarmKit
// calls information is our debugging.
type bridge struct {
	logger func() *slog.Logger
}

func (bridge) Levels() []logrus.Level { return logrus.AllLevels }

func (b bridge) Fire(e *logrus.Entry) error {
	ctx := context.Background()
	level := bridgeLevel(e.Level, e.Message)
	if err, ok := e.Data[logrus.ErrorKey].(error); ok && errors.Is(err, bolt.ErrDatabaseNotOpen) {
		// A task was under way when the agent stopped, and its record of tasks
		// is closed: the next daemon finds out how it is.
		level = slog.LevelDebug
	}
	l := b.logger()
	if !l.Enabled(ctx, level) {
		return nil
	}
	l.LogAttrs(ctx, level, e.Message, bridgeAttrs(e.Data)...)
	return nil
}

func bridgeLevel(l logrus.Level, msg string) slog.Level {
	switch {
	case l >= logrus.DebugLevel:
		return slog.LevelDebug - 4
	case l == logrus.InfoLevel:
		return slog.LevelDebug
	}
	for _, d := range demoted {
		if strings.Contains(msg, d) {
			return slog.LevelDebug
		}
	}
	if l == logrus.WarnLevel {
		return slog.LevelWarn
	}
	return slog.LevelError
}

// bridgeAttrs names SwarmKit's fields as ours: task.id is task_id.
func bridgeAttrs(fields logrus.Fields) []slog.Attr {
	keys := make([]string, 0, len(fields))
	for k := range fields {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	attrs := make([]slog.Attr, 0, len(keys))
	for _, k := range keys {
		v := fields[k]
		if err, ok := v.(error); ok {
			v = err.Error()
		}
		attrs = append(attrs, slog.Any(strings.ReplaceAll(k, ".", "_"), v))
	}
	return attrs
}

func newBridged(l func() *slog.Logger) *logrus.Logger {
	out := logrus.New()
	bridgeTo(out, l)
	return out
}

func bridgeTo(out *logrus.Logger, l func() *slog.Logger) {
	out.SetOutput(io.Discard)
	out.SetFormatter(discard{})
	out.SetLevel(logrus.WarnLevel)
	switch ctx := context.Background(); {
	case l().Enabled(ctx, slog.LevelDebug-4):
		out.SetLevel(logrus.DebugLevel)
	case l().Enabled(ctx, slog.LevelDebug):
		out.SetLevel(logrus.InfoLevel)
	}
	out.ReplaceHooks(logrus.LevelHooks{})
	out.AddHook(bridge{l})
}

// discard formats nothing: the hook has seen the entry.
type discard struct{}

func (discard) Format(*logrus.Entry) ([]byte, error) { return nil, nil }

var bridgeOnce sync.Once

// withLogger makes SwarmKit log to l for everything that is called with the
// context, and to slog's default logger for the rest (gRPC among it).
func withLogger(ctx context.Context, l *slog.Logger) context.Context {
	bridgeOnce.Do(func() { bridgeTo(logrus.StandardLogger(), slog.Default) })
	return log.WithLogger(ctx, logrus.NewEntry(newBridged(func() *slog.Logger { return l })))
}

// address errors: the flag an operator has to change is named.
func listenError(addr string, err error) error {
	return fmt.Errorf("listen on %s for the cluster: %w; choose another address with --listen-addr", addr, err)
}
