// SPDX-License-Identifier: BSD-2-Clause

package logfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// Snapshot is what is in a log at one moment. It holds the files open, so that
// a writer that goes on, and its rotation, change nothing about it: two
// readings of it find the same. A log has at most three files a segment.
type Snapshot struct {
	dir  string
	segs []segment // oldest first
	end  int64     // of the index of the last segment, in bytes
}

// segment is the open files of one; raw is nil where nothing was written.
type segment struct {
	n   int
	idx *os.File
	raw [3]*os.File // by Stream
}

// Snap takes a snapshot of the log in dir. One that is not there is empty.
func Snap(dir string) (*Snapshot, error) {
	s := &Snapshot{dir: dir}
	nums, err := segments(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list log segments: %w", err)
	}
	for _, n := range nums {
		if err := s.add(n); err != nil {
			s.Close()
			return nil, err
		}
	}
	return s, nil
}

// add opens a segment unless it was rotated away. The end is read before the
// streams are opened: what the index tells up to there is in them.
func (s *Snapshot) add(n int) error {
	idx, err := os.Open(indexPath(s.dir, n))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open log index: %w", err)
	}
	s.segs = append(s.segs, segment{n: n, idx: idx})
	st, err := idx.Stat()
	if err != nil {
		return fmt.Errorf("read log index: %w", err)
	}
	s.end = st.Size()
	for _, stream := range []Stream{Stdout, Stderr} {
		f, err := os.Open(streamPath(s.dir, n, stream))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("open log: %w", err)
		}
		if err == nil {
			s.segs[len(s.segs)-1].raw[stream] = f
		}
	}
	return nil
}

// Reader reads the snapshot from its beginning and gives io.EOF at its end. It
// is to be closed before the snapshot.
func (s *Snapshot) Reader() *Reader { return &Reader{dir: s.dir, snap: s, bounded: true} }

// Follower reads the snapshot and then what was appended since.
func (s *Snapshot) Follower() *Reader { return &Reader{dir: s.dir, snap: s} }

// after is the first segment of the snapshot after n.
func (s *Snapshot) after(n int) (segment, bool) {
	if s != nil {
		for _, seg := range s.segs {
			if seg.n > n {
				return seg, true
			}
		}
	}
	return segment{}, false
}

// last tells whether n is the last segment, or after it.
func (s *Snapshot) last(n int) bool {
	_, more := s.after(n)
	return !more
}

// holds tells whether the snapshot is what closes f.
func (s *Snapshot) holds(f *os.File) bool {
	if s != nil {
		for _, seg := range s.segs {
			if f == seg.idx || f == seg.raw[Stdout] || f == seg.raw[Stderr] {
				return true
			}
		}
	}
	return false
}

// Close lets go of the files.
func (s *Snapshot) Close() {
	for _, seg := range s.segs {
		for _, f := range []*os.File{seg.idx, seg.raw[Stdout], seg.raw[Stderr]} {
			if f != nil {
				f.Close()
			}
		}
	}
	s.segs = nil
}
