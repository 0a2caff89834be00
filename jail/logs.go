// SPDX-License-Identifier: BSD-2-Clause

package jail

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"satld/jail/logfile"
)

// LogLine is one line (or, when it was longer than 16 KiB, a part of one) of
// a container's output.
type LogLine struct {
	Time    time.Time
	Stream  string // "stdout" or "stderr"
	Line    []byte // with its newline, unless Partial
	Partial bool
}

// LogQuery selects log lines; zero fields select everything.
type LogQuery struct {
	Stdout, Stderr bool
	Since, Until   time.Time
	Tail           int  // last N lines; 0 and -1 are all
	Follow         bool // go on until the container has ended or ctx is done
}

// Logs: see Runtime. Lines come in the order of their arrival; of a line that
// is still being written, a query that does not follow gives what is there.
func (m *Manager) Logs(ctx context.Context, id string, q LogQuery, each func(LogLine) error) error {
	if err := checkID(id); err != nil {
		return err
	}
	if err := m.exists(id); err != nil {
		return err
	}
	var nudges <-chan struct{}
	more := false
	if q.Follow {
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		defer cancel()
		var err error
		if nudges, more, err = m.follow(ctx, id); err != nil {
			return fmt.Errorf("follow the log of container %s: %w", id, err)
		}
	}
	skip := 0
	if q.Tail > 0 {
		total, err := m.countLines(ctx, id, q)
		if err != nil {
			return fmt.Errorf("read the log of container %s: %w", id, err)
		}
		skip = max(0, total-q.Tail)
	}
	r := logfile.NewReader(m.dir.Logs(id))
	defer r.Close()
	var lines logfile.Lines
	take := q.filter(func(l LogLine) error {
		if skip > 0 {
			skip--
			return nil
		}
		return each(l)
	})
	if err := m.drainFollow(ctx, id, r, nudges, more, func(p logfile.Piece) error { return lines.Add(p, take) }); err != nil {
		return logsEnd(err)
	}
	_, live, err := m.live(id)
	return logsEnd(lines.Flush(err == nil && !live, take))
}

// drainFollow reads on while there may be more.
func (m *Manager) drainFollow(ctx context.Context, id string, r *logfile.Reader, nudges <-chan struct{}, more bool, each func(logfile.Piece) error) error {
	for {
		if err := drain(ctx, r, each); err != nil || !more {
			return err
		}
		select {
		case _, open := <-nudges:
			if open {
				continue
			}
			var err error
			if nudges, more, err = m.follow(ctx, id); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// follow asks the shim for nudges, and the next one if it was killed. more is
// false when the container has ended and all of its output is in the log.
func (m *Manager) follow(ctx context.Context, id string) (nudges <-chan struct{}, more bool, err error) {
	for ctx.Err() == nil {
		// In this order: what has ended here has nobody to be followed.
		_, live, err := m.live(id)
		if err != nil {
			return nil, false, err
		}
		nudges, held, err := m.shim.Follow(ctx, id)
		if err == nil && (held || !live) {
			return nudges, held, nil
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
		}
	}
	return nil, false, ctx.Err()
}

// errEnough ends a reading early without being an error.
var errEnough = errors.New("nothing later is wanted")

func logsEnd(err error) error {
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

// drain reads to where the log ends now.
func drain(ctx context.Context, r *logfile.Reader, each func(logfile.Piece) error) error {
	for ctx.Err() == nil {
		p, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := each(p); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// countLines counts the lines that q selects, but for Tail.
func (m *Manager) countLines(ctx context.Context, id string, q LogQuery) (n int, err error) {
	r := logfile.NewReader(m.dir.Logs(id))
	defer r.Close()
	var lines logfile.Lines
	count := q.filter(func(LogLine) error { n++; return nil })
	err = drain(ctx, r, func(p logfile.Piece) error { return lines.Add(p, count) })
	if _, live, lerr := m.live(id); err == nil && !(q.Follow && lerr == nil && live) {
		err = lines.Flush(false, count) // who follows a running one is not shown an unfinished line now
	}
	return n, logsEnd(err)
}

// filter passes on what q selects.
func (q LogQuery) filter(each func(LogLine) error) func(logfile.Line) error {
	both := !q.Stdout && !q.Stderr
	return func(l logfile.Line) error {
		if !q.Until.IsZero() && l.Time.After(q.Until) {
			return errEnough
		}
		wanted := both || q.Stdout && l.Stream == logfile.Stdout || q.Stderr && l.Stream == logfile.Stderr
		if !wanted || !q.Since.IsZero() && l.Time.Before(q.Since) {
			return nil
		}
		return each(LogLine{Time: l.Time, Stream: l.Stream.String(), Line: l.Data, Partial: l.Partial})
	}
}
