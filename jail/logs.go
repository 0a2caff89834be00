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

// Logs: see Runtime. Lines come in the order of their arrival. A query that
// does not follow gives what was in the log when it began, however fast the
// container writes meanwhile, and of a line that was being written then, what
// there was of it. Tail counts from that moment as well.
func (m *Manager) Logs(ctx context.Context, id string, q LogQuery, each func(LogLine) error) error {
	if err := checkID(id); err != nil {
		return err
	}
	if err := m.exists(id); err != nil {
		return err
	}
	var nudges <-chan struct{}
	more := false
	// What had ended before the snapshot has its last line whole in there.
	_, live, err := m.live(id)
	ended := err == nil && !live
	if q.Follow {
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		defer cancel()
		if nudges, more, err = m.follow(ctx, id); err != nil {
			return fmt.Errorf("follow the log of container %s: %w", id, err)
		}
		ended = true // when the following ends
	}
	then, err := logfile.Snap(m.dir.Logs(id))
	if err != nil {
		return fmt.Errorf("read the log of container %s: %w", id, err)
	}
	defer then.Close()
	skip := 0
	if q.Tail > 0 {
		total, err := q.countLines(ctx, then, more)
		if err != nil {
			return fmt.Errorf("read the log of container %s: %w", id, err)
		}
		skip = max(0, total-q.Tail)
	}
	r := then.Reader()
	if q.Follow {
		r = then.Follower()
	}
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
	return logsEnd(lines.Flush(ended, take))
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
		if away, _ := m.shim.Away(); err != nil && away != nil {
			return nil, false, err
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

// drain reads to where the log, or the snapshot of it, ends.
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

// countLines counts the lines that q selects, but for Tail. A line that is
// unfinished and will be followed counts when it is finished, not now.
func (q LogQuery) countLines(ctx context.Context, then *logfile.Snapshot, followed bool) (n int, err error) {
	r := then.Reader()
	defer r.Close()
	var lines logfile.Lines
	count := q.filter(func(LogLine) error { n++; return nil })
	err = drain(ctx, r, func(p logfile.Piece) error { return lines.Add(p, count) })
	if err == nil && !followed {
		err = lines.Flush(false, count)
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
