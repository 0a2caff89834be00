// SPDX-License-Identifier: BSD-2-Clause

package logfile

import (
	"fmt"
	"os"
	"sync"
	"time"
)

// Writer appends to the log in one directory. There is at most one at a time.
type Writer struct {
	mu       sync.Mutex
	dir      string
	maxSize  int64
	maxFiles int

	n    int // current segment
	idx  *os.File
	raw  [3]*os.File // by Stream; opened at the first byte
	size [3]int64    // by Stream
}

// NewWriter opens the log in dir for appending, making it if it is not there
// and mending what a writer that was killed left behind. Limits of 0 are the
// defaults.
func NewWriter(dir string, maxSize int64, maxFiles int) (*Writer, error) {
	if maxSize <= 0 {
		maxSize = DefaultMaxSize
	}
	if maxFiles <= 0 {
		maxFiles = DefaultMaxFiles
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make log directory: %w", err)
	}
	nums, err := segments(dir)
	if err != nil {
		return nil, fmt.Errorf("list log segments: %w", err)
	}
	w := &Writer{dir: dir, maxSize: maxSize, maxFiles: maxFiles, n: 1}
	if len(nums) > 0 {
		w.n = nums[len(nums)-1]
	}
	if err := w.open(); err != nil {
		return nil, err
	}
	if err := w.mend(time.Now()); err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

func (w *Writer) open() error {
	f, err := os.OpenFile(indexPath(w.dir, w.n), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("open log index: %w", err)
	}
	w.idx = f
	return nil
}

// mend makes the index of the current segment agree with its streams: a torn
// record goes, and bytes without a record get one.
func (w *Writer) mend(now time.Time) error {
	b, err := os.ReadFile(w.idx.Name())
	if err != nil {
		return fmt.Errorf("read log index: %w", err)
	}
	var have [3]int64
	for _, s := range []Stream{Stdout, Stderr} {
		if st, err := os.Stat(streamPath(w.dir, w.n, s)); err == nil {
			have[s] = st.Size()
		}
	}
	good := 0
	for ; good+recordSize <= len(b); good += recordSize {
		r := decodeRecord(b[good:])
		if !r.valid() || w.size[r.stream]+int64(r.length) > have[r.stream] {
			break // only after a power cut: the index reached the disk and the stream did not
		}
		w.size[r.stream] += int64(r.length)
	}
	if good < len(b) {
		if err := w.idx.Truncate(int64(good)); err != nil {
			return fmt.Errorf("mend log index: %w", err)
		}
	}
	for _, s := range []Stream{Stdout, Stderr} {
		if lost := have[s] - w.size[s]; lost > 0 {
			if err := w.note(s, lost, now); err != nil {
				return err
			}
		}
	}
	return nil
}

// note indexes n bytes that were appended to s.
func (w *Writer) note(s Stream, n int64, now time.Time) error {
	w.size[s] += n
	for n > 0 {
		part := min(n, 1<<30)
		if _, err := w.idx.Write(record{at: now, length: uint32(part), stream: s}.encode()); err != nil {
			return fmt.Errorf("append to log index: %w", err)
		}
		n -= part
	}
	return nil
}

// room returns the file of s, after beginning the next segment if this one is
// full and there is something to write.
func (w *Writer) room(s Stream, some bool) (*os.File, error) {
	if some && w.size[Stdout]+w.size[Stderr] >= w.maxSize {
		if err := w.rotate(); err != nil {
			return nil, err
		}
	}
	if w.raw[s] == nil {
		f, err := os.OpenFile(streamPath(w.dir, w.n, s), os.O_WRONLY|os.O_CREATE, 0o600)
		if err != nil {
			return nil, fmt.Errorf("open log: %w", err)
		}
		w.raw[s] = f
	}
	return w.raw[s], nil
}

// rotate begins the next segment and drops the oldest.
func (w *Writer) rotate() error {
	nums, err := segments(w.dir)
	if err != nil {
		return fmt.Errorf("list log segments: %w", err)
	}
	full := w.idx
	w.n++
	if err := w.open(); err != nil {
		w.n--
		return err
	}
	full.Close()
	for _, s := range []Stream{Stdout, Stderr} {
		if w.raw[s] != nil {
			w.raw[s].Close()
			w.raw[s] = nil
		}
		w.size[s] = 0
	}
	for _, old := range nums {
		if old <= w.n-w.maxFiles {
			// The index last: it is what the next pass finds the segment by.
			os.Remove(streamPath(w.dir, old, Stdout))
			os.Remove(streamPath(w.dir, old, Stderr))
			os.Remove(indexPath(w.dir, old))
		}
	}
	return nil
}

// Write appends p to s.
func (w *Writer) Write(s Stream, p []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	f, err := w.room(s, true)
	if err != nil {
		return err
	}
	n, err := f.WriteAt(p, w.size[s])
	if n > 0 {
		if err := w.note(s, int64(n), time.Now()); err != nil {
			return err
		}
	}
	if err != nil {
		return fmt.Errorf("append to log: %w", err)
	}
	return nil
}

// Close closes the files.
func (w *Writer) Close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range []*os.File{w.idx, w.raw[Stdout], w.raw[Stderr]} {
		if f != nil {
			f.Close()
		}
	}
}
