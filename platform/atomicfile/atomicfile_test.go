// SPDX-License-Identifier: BSD-2-Clause

package atomicfile

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// ways are the two calls; but for a power cut they do the same.
var ways = map[string]func(path string, data []byte, mode fs.FileMode) error{"write": Write, "write durably": WriteDurably}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func put(t *testing.T, path, data string, mode fs.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, []byte(data), mode); err != nil {
		t.Fatal(err)
	}
}

// holds fails the test unless dir has exactly these entries, in order.
func holds(t *testing.T, dir string, names ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if len(got) != len(names) {
		t.Fatalf("%s holds %q, not %q", dir, got, names)
	}
	for i := range got {
		if got[i] != names[i] {
			t.Fatalf("%s holds %q, not %q", dir, got, names)
		}
	}
}

func TestReplace(t *testing.T) {
	for name, write := range ways {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path, kept := filepath.Join(dir, "f"), filepath.Join(dir, "kept")
			if err := write(path, []byte("the first content"), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Link(path, kept); err != nil {
				t.Fatal(err)
			}
			reader, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer reader.Close()
			if err := write(path, []byte("next"), 0o600); err != nil {
				t.Fatal(err)
			}
			if got := read(t, path); got != "next" {
				t.Errorf("it holds %q", got)
			}
			var old bytes.Buffer
			if _, err := old.ReadFrom(reader); err != nil || old.String() != "the first content" {
				t.Errorf("who had it open reads %q, %v", old.String(), err)
			}
			if got := read(t, kept); got != "the first content" {
				t.Errorf("its other name shows %q", got)
			}
			if err := write(path, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if got := read(t, path); got != "" {
				t.Errorf("emptied, it holds %q", got)
			}
			holds(t, dir, "f", "kept")
		})
	}
}

// The mode is the one asked for, whatever the umask and the file before had.
func TestMode(t *testing.T) {
	defer unix.Umask(unix.Umask(0o077))
	path := filepath.Join(t.TempDir(), "f")
	for _, mode := range []fs.FileMode{0o644, 0o600, 0o640, 0o755, 0o400, 0o600} {
		if err := Write(path, []byte("x"), mode); err != nil {
			t.Fatal(err)
		}
		st, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if st.Mode() != mode {
			t.Errorf("mode %v, not %v", st.Mode(), mode)
		}
	}
}

// A link is replaced, and what it points to stays.
func TestReplacesALink(t *testing.T) {
	dir := t.TempDir()
	path, target := filepath.Join(dir, "f"), filepath.Join(dir, "target")
	put(t, target, "kept", 0o600)
	if err := os.Symlink(target, path); err != nil {
		t.Fatal(err)
	}
	if err := Write(path, []byte("own"), 0o600); err != nil {
		t.Fatal(err)
	}
	if st, err := os.Lstat(path); err != nil || !st.Mode().IsRegular() || read(t, path) != "own" || read(t, target) != "kept" {
		t.Errorf("%v, %v, %q, %q", st, err, read(t, path), read(t, target))
	}
}

// What a writer that was killed left is taken over, and nothing of it shows.
func TestTakesOverTheUnfinished(t *testing.T) {
	for name, write := range ways {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "f")
			put(t, Unfinished(path), "half of something that was long", 0o666)
			if err := write(path, []byte("whole"), 0o600); err != nil {
				t.Fatal(err)
			}
			if st, err := os.Stat(path); err != nil || st.Mode() != 0o600 || read(t, path) != "whole" {
				t.Errorf("%v, %v, %q", st, err, read(t, path))
			}
			holds(t, dir, "f")
		})
	}
}

// An error says which file it is about, and leaves it as it was with nothing
// beside it.
func TestErrorsLeaveNothing(t *testing.T) {
	for name, write := range ways {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			t.Run("no directory", func(t *testing.T) {
				err := write(filepath.Join(dir, "none", "f"), []byte("x"), 0o600)
				if !errors.Is(err, fs.ErrNotExist) || !bytes.Contains([]byte(err.Error()), []byte(filepath.Join("none", "f"))) {
					t.Errorf("error %v", err)
				}
				holds(t, dir)
			})
			t.Run("a directory at the path", func(t *testing.T) {
				path := filepath.Join(dir, "d")
				if err := os.Mkdir(path, 0o700); err != nil {
					t.Fatal(err)
				}
				if err := write(path, []byte("x"), 0o600); !errors.Is(err, unix.EEXIST) && !errors.Is(err, unix.EISDIR) {
					t.Errorf("error %v", err)
				}
				holds(t, dir, "d")
			})
			t.Run("a link beside the path", func(t *testing.T) {
				path, target := filepath.Join(dir, "f"), filepath.Join(dir, "target")
				put(t, target, "kept", 0o600)
				if err := os.Symlink(target, Unfinished(path)); err != nil {
					t.Fatal(err)
				}
				// FreeBSD says EMLINK of a link where none is followed (open(2)).
				if err := write(path, []byte("x"), 0o600); !errors.Is(err, unix.ELOOP) && !errors.Is(err, unix.EMLINK) {
					t.Errorf("error %v", err)
				}
				if got := read(t, target); got != "kept" {
					t.Errorf("what the link points to is %q", got)
				}
				holds(t, dir, "d", "f.new", "target")
			})
		})
	}
}
