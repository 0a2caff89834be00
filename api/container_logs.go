// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/docker/docker/pkg/jsonmessage"
	"github.com/docker/docker/pkg/stdcopy"

	"satld/executor"
	"satld/jail"
)

// logOptions is what a request for logs asks for.
type logOptions struct {
	query      jail.LogQuery
	timestamps bool
	details    bool
}

// readLogOptions reads the query of a request for logs.
func readLogOptions(r *http.Request, now time.Time) (logOptions, error) {
	o := logOptions{timestamps: queryBool(r, "timestamps"), details: queryBool(r, "details")}
	o.query = jail.LogQuery{Stdout: queryBool(r, "stdout"), Stderr: queryBool(r, "stderr"), Follow: queryBool(r, "follow"), Tail: -1}
	if !o.query.Stdout && !o.query.Stderr {
		return o, errInvalid("Bad parameters: you must choose at least one stream")
	}
	// Docker takes whatever is no number ("all", "") for everything.
	if n, err := strconv.Atoi(r.URL.Query().Get("tail")); err == nil && n >= 0 {
		o.query.Tail = n
	}
	var err error
	if o.query.Since, err = queryTime(r, "since", now); err != nil {
		return o, err
	}
	o.query.Until, err = queryTime(r, "until", now)
	return o, err
}

// containerLogs is GET /containers/{name}/logs. Following ends when the
// container has ended or the client is gone.
func (s *Server) containerLogs(w http.ResponseWriter, r *http.Request) error {
	o, err := readLogOptions(r, time.Now())
	if err != nil {
		return err
	}
	c, err := s.cfg.Containers.Get(pathVar(r, "name"))
	if err != nil {
		return err
	}
	switch {
	case c.State == executor.Removing || c.State == executor.Dead:
		return errConflict("can not get logs from container which is dead or marked for removal")
	case c.HostConfig != nil && c.HostConfig.LogConfig.Type == "none":
		return errNotSupported("configured logging driver does not support reading")
	}
	tty := c.Config != nil && c.Config.Tty
	w.Header().Set("Content-Type", streamType(r, tty))
	w.WriteHeader(http.StatusOK)
	out := newLogWriter(w, o, !tty)
	out.flush() // the client learns now that the logs are there
	if c.Started.IsZero() {
		if !o.query.Follow {
			return nil // it has said nothing yet, and has no log to read
		}
		if !s.awaitRun(r.Context(), c.ID) {
			return nil
		}
	}
	if err := out.copy(r.Context(), s.cfg.Containers, c.ID); err != nil && r.Context().Err() == nil {
		out.fail(err)
		s.log.Warn("logs broken off", "container", shortID(c.ID), "err", err)
	}
	return nil
}

// awaitRun waits until a container that was never started has been. false is
// that it never will be, or that nobody waits any more.
func (s *Server) awaitRun(ctx context.Context, id string) bool {
	for {
		// In this order: no event falls between the look and the wait.
		_, happened, cancel := s.cfg.Events.Subscribe(time.Time{})
		c, err := s.cfg.Containers.Get(id)
		if err != nil || !c.Started.IsZero() {
			cancel()
			return err == nil
		}
		for waiting := true; waiting; {
			select {
			case m, open := <-happened:
				waiting = open && m.Actor.ID != id
			case <-ctx.Done():
				cancel()
				return false
			}
		}
		cancel()
	}
}

// logWriter renders log lines into an answer, multiplexed unless they are a
// terminal's.
type logWriter struct {
	options                 logOptions
	stdout, stderr, control io.Writer
	flushNow                func()
	partial                 map[string]bool // by stream: the last line was not complete
	line                    bytes.Buffer
}

func newLogWriter(w http.ResponseWriter, o logOptions, multiplexed bool) *logWriter {
	l := &logWriter{options: o, stdout: w, stderr: w, control: w, partial: map[string]bool{}}
	l.flushNow = func() { _ = http.NewResponseController(w).Flush() }
	if multiplexed {
		l.stdout, l.stderr = stdcopy.NewStdWriter(w, stdcopy.Stdout), stdcopy.NewStdWriter(w, stdcopy.Stderr)
		l.control = stdcopy.NewStdWriter(w, stdcopy.Systemerr)
	}
	return l
}

func (l *logWriter) flush() { l.flushNow() }

// copy writes what is asked for until it ends or ctx does.
func (l *logWriter) copy(ctx context.Context, containers executor.Containers, id string) error {
	q := l.options.query
	if q.Tail == 0 {
		// Nothing of what was logged so far; a LogQuery has no word for it.
		if !q.Follow {
			return nil
		}
		if now := time.Now(); q.Since.Before(now) {
			q.Since = now
		}
		q.Tail = -1
	}
	return containers.Logs(ctx, id, q, func(line jail.LogLine) error {
		if err := l.write(line); err != nil {
			return err
		}
		if q.Follow {
			l.flush()
		}
		return ctx.Err()
	})
}

// write renders one line, time stamp first and once for a line in parts.
func (l *logWriter) write(line jail.LogLine) error {
	l.line.Reset()
	if !l.partial[line.Stream] {
		if l.options.timestamps {
			l.line.WriteString(line.Time.UTC().Format(jsonmessage.RFC3339NanoFixed))
			l.line.WriteByte(' ')
		}
		if l.options.details {
			l.line.WriteByte(' ') // no attributes are ever logged, and Docker's separator follows them
		}
	}
	l.partial[line.Stream] = line.Partial
	l.line.Write(line.Line)
	out := l.stdout
	if line.Stream == "stderr" {
		out = l.stderr
	}
	if _, err := out.Write(l.line.Bytes()); err != nil {
		return fmt.Errorf("write logs: %w", err)
	}
	return nil
}

// fail tells the client why its logs end here: the status was sent long ago.
func (l *logWriter) fail(err error) {
	fmt.Fprintf(l.control, "Error grabbing logs: %v\n", err)
	l.flush()
}
