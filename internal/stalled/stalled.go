// SPDX-License-Identifier: BSD-2-Clause

// Package stalled is for tests of what goes on while a disk stands still: the
// writes of a test's own disk wait at a Gate, or one file that package
// atomicfile writes does.
package stalled

import (
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"satld/platform/atomicfile"
)

// Gate is passed by writes, and holds them up while it is closed.
type Gate struct{ closed atomic.Pointer[chan struct{}] }

// Pass returns when the gate is open.
func (g *Gate) Pass() {
	if ch := g.closed.Load(); ch != nil {
		<-*ch
	}
}

// Close has whoever passes wait until goOn is called.
func (g *Gate) Close() (goOn func()) {
	ch := make(chan struct{})
	g.closed.Store(&ch)
	return func() {
		g.closed.Store(nil)
		close(ch)
	}
}

// File makes the next write of a file wait, in whatever process, until goOn is
// called, which the end of the test does. What is unfinished is a pipe until
// then, and who opens one to write waits for a reader.
func File(t testing.TB, path string) (goOn func()) {
	t.Helper()
	pipe, aside := atomicfile.Unfinished(path), filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	stalled := true
	goOn = func() {
		t.Helper()
		if !stalled {
			return
		}
		stalled = false
		// The writer that wakes finds that its file has gone, and makes another.
		if err := os.Rename(pipe, aside); err != nil {
			t.Error(err)
		}
		f, err := os.OpenFile(aside, os.O_RDONLY|unix.O_NONBLOCK, 0)
		if err != nil {
			t.Error(err)
			return
		}
		f.Close()
	}
	t.Cleanup(goOn)
	return goOn
}
