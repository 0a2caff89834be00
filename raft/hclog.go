// SPDX-License-Identifier: BSD-2-Clause

package raft

import (
	"context"
	"io"
	"log"
	"log/slog"
	"strings"

	"github.com/hashicorp/go-hclog"
)

// chatter are messages of hashicorp/raft that every healthy start of a cluster
// of one emits as a warning or as an error; they are for debugging.
var chatter = map[string]bool{
	"heartbeat timeout reached, starting election": true,
	"no known peers, aborting election":            true,
}

// slogger is hashicorp/raft's logger over slog. What raft calls information is
// our debugging: an operator reads of a change of leader from us.
type slogger struct {
	log  *slog.Logger
	name string
	args []any
}

var _ hclog.Logger = (*slogger)(nil)

func newLogger(l *slog.Logger) hclog.Logger {
	return &slogger{log: l.With("component", "raft")}
}

func slogLevel(l hclog.Level, msg string) slog.Level {
	switch {
	case chatter[msg]:
		return slog.LevelDebug
	case l >= hclog.Error:
		return slog.LevelError
	case l == hclog.Warn:
		return slog.LevelWarn
	case l == hclog.Info:
		return slog.LevelDebug
	default:
		return slog.LevelDebug - 4
	}
}

func (s *slogger) Log(level hclog.Level, msg string, args ...any) {
	ctx, at := context.Background(), slogLevel(level, msg)
	if !s.log.Enabled(ctx, at) {
		return
	}
	s.log.Log(ctx, at, msg, append(append([]any(nil), s.args...), args...)...)
}

func (s *slogger) Trace(msg string, args ...any) { s.Log(hclog.Trace, msg, args...) }
func (s *slogger) Debug(msg string, args ...any) { s.Log(hclog.Debug, msg, args...) }
func (s *slogger) Info(msg string, args ...any)  { s.Log(hclog.Info, msg, args...) }
func (s *slogger) Warn(msg string, args ...any)  { s.Log(hclog.Warn, msg, args...) }
func (s *slogger) Error(msg string, args ...any) { s.Log(hclog.Error, msg, args...) }

func (s *slogger) enabled(l hclog.Level) bool {
	return s.log.Enabled(context.Background(), slogLevel(l, ""))
}

func (s *slogger) IsTrace() bool { return s.enabled(hclog.Trace) }
func (s *slogger) IsDebug() bool { return s.enabled(hclog.Debug) }
func (s *slogger) IsInfo() bool  { return s.enabled(hclog.Info) }
func (s *slogger) IsWarn() bool  { return s.enabled(hclog.Warn) }
func (s *slogger) IsError() bool { return s.enabled(hclog.Error) }

func (s *slogger) ImpliedArgs() []any { return s.args }

func (s *slogger) With(args ...any) hclog.Logger {
	return &slogger{log: s.log, name: s.name, args: append(append([]any(nil), s.args...), args...)}
}

func (s *slogger) Name() string { return s.name }

func (s *slogger) Named(name string) hclog.Logger {
	if s.name != "" {
		name = s.name + "." + name
	}
	return s.ResetNamed(name)
}

func (s *slogger) ResetNamed(name string) hclog.Logger {
	return &slogger{log: s.log, name: name, args: s.args}
}

func (s *slogger) SetLevel(hclog.Level) {} // slog's handler decides

func (s *slogger) GetLevel() hclog.Level {
	for _, l := range []hclog.Level{hclog.Trace, hclog.Debug, hclog.Info, hclog.Warn} {
		if s.enabled(l) {
			return l
		}
	}
	return hclog.Error
}

func (s *slogger) StandardLogger(o *hclog.StandardLoggerOptions) *log.Logger {
	return log.New(s.StandardWriter(o), "", 0)
}

func (s *slogger) StandardWriter(*hclog.StandardLoggerOptions) io.Writer {
	return writerFunc(func(p []byte) (int, error) {
		s.Info(strings.TrimSpace(string(p)))
		return len(p), nil
	})
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
