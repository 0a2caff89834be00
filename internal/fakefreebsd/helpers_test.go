// SPDX-License-Identifier: BSD-2-Clause

package fakefreebsd

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// result is how a tool ended.
type result struct {
	out, err string
	exit     int
}

// host is a fake with the means to call its tools.
type host struct {
	*Fake
	t *testing.T
}

func newHost(t *testing.T) *host { return &host{Install(t), t} }

// run calls a tool with something to read.
func (h *host) run(stdin, tool string, args ...string) result {
	h.t.Helper()
	// Files, not pipes: what a tool leaves running must not keep this waiting.
	var files [2]*os.File
	for i := range files {
		f, err := os.CreateTemp(h.t.TempDir(), "")
		if err != nil {
			h.t.Fatal(err)
		}
		defer f.Close()
		files[i] = f
	}
	cmd := exec.Command(filepath.Join(h.Bin, tool), args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.Env = strings.NewReader(stdin), files[0], files[1], h.Env()
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		h.t.Fatal(err)
	}
	var said [2][]byte
	for i, f := range files {
		if said[i], err = os.ReadFile(f.Name()); err != nil {
			h.t.Fatal(err)
		}
	}
	return result{string(said[0]), string(said[1]), cmd.ProcessState.ExitCode()}
}

// do is a line of words that must succeed.
func (h *host) do(line string) string {
	h.t.Helper()
	w := strings.Fields(line)
	r := h.run("", w[0], w[1:]...)
	if r.exit != 0 {
		h.t.Fatalf("%s: exit %d, %s", line, r.exit, r.err)
	}
	return r.out
}

// refused is a line that must exit 1 with a text on stderr.
func (h *host) refused(want, line string) {
	h.t.Helper()
	w := strings.Fields(line)
	if r := h.run("", w[0], w[1:]...); r.exit != 1 || !strings.Contains(r.err, want) {
		h.t.Errorf("%s: exit %d, %q, want 1 and %q", line, r.exit, r.err, want)
	}
}

// sample compares an output with a file of testdata/, where <...> stands for
// any word.
func sample(t *testing.T, name, got string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Split(string(data), "\n")
	have := strings.Split(got, "\n")
	same := len(want) == len(have)
	for i := 0; same && i < len(want); i++ {
		w, g := strings.Split(want[i], " "), strings.Split(have[i], " ")
		same = len(w) == len(g)
		for k := 0; same && k < len(w); k++ {
			same = w[k] == g[k] || w[k] == "<>"
		}
	}
	if !same {
		t.Errorf("not as in testdata/%s:\n%s\nwant:\n%s", name, got, data)
	}
}

// needRoot skips what only root can show.
func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: chroot and mount need root")
	}
	if _, err := exec.LookPath("busybox"); err != nil {
		t.Skip("SKIPPED: busybox is what runs in the jails here")
	}
}

// root makes a root file system with a shell in it.
func root(t *testing.T) string {
	t.Helper()
	needRoot(t)
	dir := t.TempDir()
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(busybox)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{"bin", "sbin", "tmp", "dev", "proc"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "bin/busybox"), data, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"sh", "sleep", "cat", "touch", "ls", "hostname", "ip"} {
		if err := os.Symlink("busybox", filepath.Join(dir, "bin", name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// bundle writes a config.json for a command and returns its directory.
func bundle(t *testing.T, root string, change func(config map[string]any), argv ...string) string {
	t.Helper()
	config := map[string]any{
		"ociVersion": "1.0.2",
		"process": map[string]any{
			"user": map[string]any{"uid": 0, "gid": 0}, "args": argv, "cwd": "/", "env": []string{"PATH=/bin"},
		},
		"root":     map[string]any{"path": root},
		"hostname": "inside",
		"mounts": []map[string]any{
			{"destination": "/dev", "type": "devfs", "source": "devfs", "options": []string{"ruleset=4"}},
			{"destination": "/dev/fd", "type": "fdescfs", "source": "fdescfs"},
		},
		"annotations": map[string]string{"org.freebsd.jail.vnet": "new"},
	}
	if change != nil {
		change(config)
	}
	dir := t.TempDir()
	write(t, filepath.Join(dir, "config.json"), config)
	return dir
}

func write(t *testing.T, file string, v any) {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// until waits for something that another process does.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within 20s: %s", what)
		}
	}
}
