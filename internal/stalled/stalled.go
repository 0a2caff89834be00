// SPDX-License-Identifier: BSD-2-Clause

// Package stalled is for tests of what goes on while a disk stands still: one
// file is written by package atomicfile, and the write waits.
package stalled

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"satld/platform/atomicfile"
)

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
