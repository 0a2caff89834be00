// SPDX-License-Identifier: BSD-2-Clause

package healthcheck

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

var _ Probe = (*FileProbe)(nil)

// TestStatusFile: every rule of spec/application-health.txt about what the
// file holds.
func TestStatusFile(t *testing.T) {
	now := time.Unix(1771234567, 999)
	for _, c := range []struct{ name, text, word, problem string }{
		{"as the page has it", "healthy\n1771234567\n", "healthy", ""},
		{"no end of the last line", "healthy\n1771234567", "healthy", ""},
		{"any case", "HeAlThY\n1771234567\n", "healthy", ""},
		{"carriage returns", "healthy\r\n1771234567\r\n", "healthy", ""},
		{"60 s old", "healthy\n1771234507\n", "healthy", ""},
		{"61 s old", "healthy\n1771234506\n", "stale", "line 2 is older than 60 s"},
		{"5 s ahead", "healthy\n1771234572\n", "healthy", ""},
		{"6 s ahead", "healthy\n1771234573\n", "stale", "line 2 is more than 5 s in the future"},
		{"in milliseconds", "healthy\n1771234567000\n", "stale", "line 2 is more than 5 s in the future"},
		{"unhealthy", "UNHEALTHY\n1771234567\n", "unhealthy", "line 1 says unhealthy"},
		{"unhealthy and old", "unhealthy\n1\n", "unhealthy", "line 1 says unhealthy"},
		{"another word", "ok\n1771234567\n", "malformed", "line 1 is neither healthy nor unhealthy"},
		{"a prefix", "health\n1771234567\n", "malformed", "line 1 is neither healthy nor unhealthy"},
		{"a fraction", "healthy\n1771234567.5\n", "malformed", "line 2 is not a Unix time in seconds"},
		{"before 1970", "healthy\n-1\n", "malformed", "line 2 is not a Unix time in seconds"},
		{"a date", "healthy\n2026-02-16\n", "malformed", "line 2 is not a Unix time in seconds"},
		{"empty", "", "malformed", "it has not two lines"},
		{"one line", "healthy\n", "malformed", "it has not two lines"},
		{"three lines", "healthy\n1771234567\nx\n", "malformed", "it has not two lines"},
		{"a blank first", "\nhealthy\n1771234567\n", "malformed", "it has not two lines"},
		{"long", "healthy\n1771234567" + strings.Repeat(" ", 300), "malformed", "it is longer than 256 bytes"},
	} {
		if word, problem := parseStatus([]byte(c.text), now); word != c.word || problem != c.problem {
			t.Errorf("%s: %q, %q", c.name, word, problem)
		}
	}
}

// FuzzStatusFile: whatever the file holds is judged, and nothing of it quoted.
func FuzzStatusFile(f *testing.F) {
	for _, s := range []string{"healthy\n1771234567\n", "UNHEALTHY\r\n0", "", "\n\n", "healthy\n99999999999999999999", "\xff\xfe\n1", "healthy\n+1"} {
		f.Add([]byte(s))
	}
	now := time.Unix(1771234567, 0)
	known := make(map[string]bool)
	f.Fuzz(func(t *testing.T, data []byte) {
		word, problem := parseStatus(data, now)
		if (word == "healthy") != (problem == "") {
			t.Fatalf("%q: %q", word, problem)
		}
		if word == "healthy" {
			var state string
			var at int64
			if n, err := fmt.Sscanf(string(data), "%s\n%d", &state, &at); n != 2 || !strings.EqualFold(state, "healthy") || at < now.Unix()-60 || at > now.Unix()+5 {
				t.Fatalf("%q passes: %v", data, err)
			}
		}
		if known[problem] = true; len(known) > 9 {
			t.Fatalf("more problems than there are rules: %q", problem)
		}
	})
}

// status writes a status file of now.
func status(t *testing.T, path, word string) {
	t.Helper()
	if err := os.WriteFile(path, fmt.Appendf(nil, "%s\n%d\n", word, time.Now().Unix()), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestFileProbe: what may be at the path, and what may not.
func TestFileProbe(t *testing.T) {
	outside := t.TempDir()
	status(t, filepath.Join(outside, "health"), "healthy")
	for _, c := range []struct {
		name string
		make func(t *testing.T, root string)
		path string
		word string
	}{
		{"a file", func(t *testing.T, root string) { status(t, root+"/health", "healthy") }, "/health", "healthy"},
		{"a file below", func(t *testing.T, root string) { status(t, root+"/d/health", "Healthy") }, "/d/./x/../health", "healthy"},
		{"unhealthy", func(t *testing.T, root string) { status(t, root+"/health", "unhealthy") }, "/health", "unhealthy"},
		{"none", func(*testing.T, string) {}, "/health", "missing"},
		{"no directory", func(*testing.T, string) {}, "/no/health", "missing"},
		{"a directory", func(*testing.T, string) {}, "/d", "not_regular"},
		{"the root", func(*testing.T, string) {}, "/", "not_regular"},
		{"a FIFO that nobody writes", func(t *testing.T, root string) { must(t, syscall.Mkfifo(root+"/health", 0o644)) }, "/health", "not_regular"},
		{"a link to a FIFO", func(t *testing.T, root string) {
			must(t, syscall.Mkfifo(root+"/fifo", 0o644))
			must(t, os.Symlink("fifo", root+"/health"))
		}, "/health", "not_regular"},
		{"a socket", func(t *testing.T, root string) {
			fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
			must(t, err)
			t.Cleanup(func() { syscall.Close(fd) })
			must(t, syscall.Bind(fd, &syscall.SockaddrUnix{Name: root + "/s"}))
		}, "/s", "not_regular"},
		{"a link", func(t *testing.T, root string) {
			status(t, root+"/d/real", "healthy")
			must(t, os.Symlink("real", root+"/d/health"))
		}, "/d/health", "healthy"},
		{"an absolute link", func(t *testing.T, root string) {
			status(t, root+"/d/real", "healthy")
			must(t, os.Symlink("/d/real", root+"/d/health"))
		}, "/d/health", "healthy"},
		{"a linked parent", func(t *testing.T, root string) {
			status(t, root+"/d/health", "healthy")
			must(t, os.Symlink("../../d", root+"/run"))
		}, "/run/health", "healthy"},
		{"a link out of the root, from its own sight inside", func(t *testing.T, root string) {
			must(t, os.Symlink(outside+"/health", root+"/health"))
		}, "/health", "missing"},
		{"a climbing link", func(t *testing.T, root string) {
			must(t, os.Symlink(strings.Repeat("../", 40)+outside+"/health", root+"/health"))
		}, "/health", "missing"},
		{"a climbing path", func(*testing.T, string) {}, "/../../../../../../../.." + outside + "/health", "missing"},
		{"a loop", func(t *testing.T, root string) { must(t, os.Symlink("health", root+"/health")) }, "/health", "failed"},
		{"a file as a directory", func(t *testing.T, root string) { status(t, root+"/f", "healthy") }, "/f/health", "failed"},
		{"an endless file", func(t *testing.T, root string) {
			must(t, os.WriteFile(root+"/health", nil, 0o644))
			must(t, os.Truncate(root+"/health", 1<<40))
		}, "/health", "malformed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			must(t, os.Mkdir(root+"/d", 0o755))
			must(t, os.Mkdir(root+"/d/x", 0o755))
			c.make(t, root)
			s := Settings{Kind: File, Path: c.path}
			done := make(chan Result, 1)
			go func() { done <- NewProbe(s, Reach{Root: root}).Attempt(t.Context(), patience) }()
			select {
			case r := <-done:
				if r.Word != c.word || r.Passed() != (c.word == "healthy") || strings.Contains(r.Output, root) || strings.Contains(r.Output, outside) {
					t.Errorf("%+v, want %s", r, c.word)
				}
			case <-time.After(patience):
				t.Fatal("the attempt does not end")
			}
		})
	}
	if r := NewProbe(Settings{Kind: File, Path: "/health"}, Reach{Root: "/nonexistent"}).Attempt(t.Context(), patience); r.Passed() {
		t.Errorf("no root: %+v", r)
	}
}

// TestFileInTheRootOfAProcess: the root may be what /proc says of a process.
func TestFileInTheRootOfAProcess(t *testing.T) {
	const self = "/proc/self/root"
	if _, err := os.Stat(self); err != nil {
		t.Skip(err)
	}
	path := filepath.Join(t.TempDir(), "health")
	status(t, path, "healthy")
	if r := NewProbe(Settings{Kind: File, Path: path}, Reach{Root: self}).Attempt(t.Context(), patience); !r.Passed() {
		t.Errorf("%+v", r)
	}
}

// TestFileRenamed: a writer that renames never makes a pass fail.
func TestFileRenamed(t *testing.T) {
	root := t.TempDir()
	path := root + "/health"
	status(t, path, "healthy")
	stop, done := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			select {
			case <-stop:
				done <- nil
				return
			case <-time.After(time.Millisecond):
			}
			err := os.WriteFile(path+".new", fmt.Appendf(nil, "healthy\n%d\n", time.Now().Unix()), 0o644)
			if err == nil {
				err = os.Rename(path+".new", path)
			}
			if err != nil {
				done <- err
				return
			}
		}
	}()
	p := NewProbe(Settings{Kind: File, Path: "/health"}, Reach{Root: root})
	for range 1000 {
		if r := p.Attempt(t.Context(), patience); !r.Passed() {
			t.Fatalf("%+v", r)
		}
	}
	close(stop)
	must(t, <-done)
}

// TestFileInPlace: a file that is met while it is written in place is read again.
func TestFileInPlace(t *testing.T) {
	path := t.TempDir() + "/health"
	for _, begun := range []string{"", "hea", "healthy\n"} {
		synctest.Test(t, func(t *testing.T) {
			must(t, os.WriteFile(path, []byte(begun), 0o644))
			go func() {
				time.Sleep(statusReread * 3 / 2)
				status(t, path, "healthy")
			}()
			p := NewProbe(Settings{Kind: File, Path: "/health"}, Reach{Root: filepath.Dir(path)})
			if r := p.Attempt(t.Context(), sec); !r.Passed() || r.End.Sub(r.Start) != 3*statusReread {
				t.Errorf("%q: %+v", begun, r)
			}
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
