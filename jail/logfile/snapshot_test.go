// SPDX-License-Identifier: BSD-2-Clause

package logfile

import (
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"testing"
)

// drained is all that r has; it fails the test when that is more than limit
// bytes, which is how a reader that chases its writer shows.
func drained(t *testing.T, r *Reader, limit int) string {
	t.Helper()
	defer r.Close()
	var b strings.Builder
	for b.Len() <= limit {
		p, err := r.Next()
		if errors.Is(err, io.EOF) {
			return b.String()
		}
		if err != nil {
			t.Fatal(err)
		}
		b.Write(p.Data)
	}
	t.Fatalf("more than %d bytes: it goes on after the end", limit)
	return ""
}

// A writer that never stops, rotating all the while: a snapshot of its log
// ends, and is the same each time it is read.
func TestSnapshotEnds(t *testing.T) {
	dir := t.TempDir()
	const size, files = 64 << 10, 3
	w, err := NewWriter(dir, size, files)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	text := []byte(strings.Repeat("y\n", 2048))
	var stop, failed atomic.Bool
	var segs atomic.Int64
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; !stop.Load(); i++ {
			if w.Write(Stream(1+i%2), text) != nil {
				failed.Store(true)
				return
			}
			segs.Store(int64(i / (size / len(text))))
		}
	}()
	defer func() { stop.Store(true); <-done }()
	for range 20 {
		s, err := Snap(dir)
		if err != nil {
			t.Fatal(err)
		}
		const limit = files*size + size + 4096
		// Everything that the snapshot has is rotated away before it is read.
		for at := segs.Load(); segs.Load() < at+2*files && !failed.Load(); {
		}
		first := drained(t, s.Reader(), limit)
		if again := drained(t, s.Reader(), limit); again != first {
			t.Errorf("read twice: %d and %d bytes", len(first), len(again))
		}
		s.Close()
	}
	if failed.Load() {
		t.Error("the writer failed")
	}
}

func TestSnapshotAndAfter(t *testing.T) {
	dir := t.TempDir()
	empty, err := Snap(dir + "/none")
	if err != nil || drained(t, empty.Reader(), 0) != "" {
		t.Error("no log is an empty one", err)
	}
	w, err := NewWriter(dir, 4, 2)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for _, text := range []string{"one ", "two ", "3 "} {
		write(t, w, Stdout, text)
	}
	s, err := Snap(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	f := s.Follower()
	write(t, w, Stdout, "4 ") // in the snapshot's last segment
	write(t, w, Stderr, "five ")
	if got := drained(t, s.Reader(), 100); got != "two 3 " {
		t.Errorf("the snapshot: %q", got)
	}
	if got := drained(t, f, 100); got != "two 3 4 five " {
		t.Errorf("followed: %q", got)
	}
}
