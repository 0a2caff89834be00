// SPDX-License-Identifier: BSD-2-Clause

package logfile

import (
	"bytes"
	"time"
)

// MaxLine is the longest line that is handed out whole, in bytes with its
// newline; Docker's limit is the same.
const MaxLine = 16 << 10

// Line is one line of output, or a part of one.
type Line struct {
	Time    time.Time
	Stream  Stream
	Data    []byte // with its newline unless Partial; the caller may keep it
	Partial bool
}

// Lines makes lines of pieces.
type Lines struct {
	pending [3][]byte
	since   [3]time.Time
	last    time.Time
}

// Add takes a piece and calls each for every line it completes. Lines of one
// piece get times one nanosecond apart, so that their order can be read off.
func (l *Lines) Add(p Piece, each func(Line) error) error {
	data, s := p.Data, p.Stream
	for len(data) > 0 {
		if len(l.pending[s]) == 0 {
			l.since[s] = p.Time
		}
		room := MaxLine - len(l.pending[s])
		part, partial := data, true
		if i := bytes.IndexByte(data[:min(len(data), room)], '\n'); i >= 0 {
			part, partial = data[:i+1], false
		} else if len(data) >= room {
			part = data[:room]
		} else {
			l.pending[s] = append(l.pending[s], data...)
			return nil
		}
		line := Line{Time: l.stamp(l.since[s]), Stream: s, Partial: partial}
		line.Data = append(append(make([]byte, 0, len(l.pending[s])+len(part)), l.pending[s]...), part...)
		l.pending[s] = nil
		data = data[len(part):]
		if err := each(line); err != nil {
			return err
		}
	}
	return nil
}

// Flush hands out what has no newline yet: as the last line, with a newline
// added as Docker does, when the stream has ended, and as a part otherwise.
func (l *Lines) Flush(ended bool, each func(Line) error) error {
	for _, s := range []Stream{Stdout, Stderr} {
		data := l.pending[s]
		if len(data) == 0 {
			continue
		}
		l.pending[s] = nil
		if ended {
			data = append(data, '\n')
		}
		if err := each(Line{Time: l.stamp(l.since[s]), Stream: s, Data: data, Partial: !ended}); err != nil {
			return err
		}
	}
	return nil
}

func (l *Lines) stamp(t time.Time) time.Time {
	if !t.After(l.last) {
		t = l.last.Add(1)
	}
	l.last = t
	return t
}
