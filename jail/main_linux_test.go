// SPDX-License-Identifier: BSD-2-Clause

package jail

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"satld/jail/shim"
)

// The test binary is the shim as well, and a daemon that can be killed.
func TestMain(m *testing.M) {
	switch {
	case len(os.Args) > 1 && os.Args[1] == "test-shim":
		if err := ShimMain(context.Background(), os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	case len(os.Args) > 1 && os.Args[1] == "test-daemon":
		testDaemon(os.Args[2:])
		os.Exit(0)
	}
	code := m.Run()
	if builtInit != "" {
		os.RemoveAll(filepath.Dir(builtInit))
	}
	os.Exit(code)
}

var builtInit string // satl-init, built once

func needRuntime(t testing.TB) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("SKIPPED: real containers need root")
	}
	if _, err := exec.LookPath("runc"); err != nil {
		t.Skip("SKIPPED: runc is not installed")
	}
	if _, err := os.Stat("/bin/busybox"); err != nil {
		t.Skip("SKIPPED: /bin/busybox (Debian's busybox-static) is not installed")
	}
	if builtInit == "" {
		dir, err := os.MkdirTemp("", "satl-init-")
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, "satl-init")
		cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-w", "-o", path, "satld/cmd/satl-init")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("build satl-init: %v\n%s", err, out)
		}
		builtInit = path
	}
}

func testConfig(state string) Config {
	return Config{
		StateDir: state, Self: "/proc/self/exe", ShimArgs: []string{"test-shim"}, InitPath: builtInit,
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	}
}

// node is a Manager in a state directory of its own, checked for leftovers.
type node struct {
	*Manager
	t     testing.TB
	state string
	ids   []string
}

func newNode(t testing.TB) *node {
	t.Helper()
	needRuntime(t)
	n := &node{t: t, state: t.TempDir()}
	n.open()
	t.Cleanup(n.finish)
	return n
}

func (n *node) open() {
	n.t.Helper()
	m, err := Open(context.Background(), testConfig(n.state))
	if err != nil {
		n.t.Fatal(err)
	}
	n.Manager = m
}

// finish deletes everything and looks for what should be gone.
func (n *node) finish() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for _, id := range n.ids {
		if err := n.Delete(ctx, id); err != nil {
			n.t.Errorf("delete %s: %v", id, err)
		}
		if err := n.Forget(ctx, id); err != nil {
			n.t.Errorf("forget %s: %v", id, err)
		}
	}
	if ids, err := n.List(ctx); err != nil || len(ids) > 0 {
		n.t.Errorf("containers left: %v, %v", ids, err)
	}
	n.close(ctx)
	if b, _ := os.ReadFile(n.dir.ShimLog()); len(b) > 0 {
		n.t.Logf("shim log:\n%s", b)
	}
	n.checkLeftovers()
}

// close closes the Manager and waits for the end of its shim, which must come.
func (n *node) close(ctx context.Context) {
	n.t.Helper()
	pid, _, err := n.shim.Hello(ctx)
	if err != nil {
		n.t.Errorf("the shim does not answer at the end: %v", err)
	}
	if err := n.Close(); err != nil {
		n.t.Errorf("close: %v", err)
	}
	for ctx.Err() == nil { // its socket goes a moment before it
		if _, err := shim.StartTicks(pid); err != nil {
			return
		}
		time.Sleep(2 * time.Millisecond)
	}
	n.t.Error("the shim still runs")
}

// checkLeftovers fails on a process, mount or cgroup of this node's.
func (n *node) checkLeftovers() {
	mounts, _ := os.ReadFile("/proc/self/mounts")
	if strings.Contains(string(mounts), n.state) {
		n.t.Errorf("a mount is left under %s", n.state)
	}
	for _, id := range n.ids {
		dirs, _ := filepath.Glob("/sys/fs/cgroup/*/satl/" + id)
		more, _ := filepath.Glob("/sys/fs/cgroup/satl/" + id)
		if len(dirs)+len(more) > 0 {
			n.t.Errorf("cgroups are left: %v %v", dirs, more)
		}
	}
	procs, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, p := range procs {
		b, err := os.ReadFile(p)
		if err == nil && strings.Contains(string(b), n.state) && !strings.Contains(p, fmt.Sprintf("/%d/", os.Getpid())) {
			n.t.Errorf("a process is left: %s %q", p, b)
		}
	}
}

func newID() string {
	b := make([]byte, 32)
	rand.Read(b)
	return hex.EncodeToString(b)
}

// busyboxRoot makes a root with busybox and the usual names of it.
func busyboxRoot(t testing.TB) string {
	t.Helper()
	root := t.TempDir()
	for _, d := range []string{"bin", "etc", "tmp", "proc", "sys", "dev"} {
		if err := os.Mkdir(filepath.Join(root, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	os.Chmod(filepath.Join(root, "tmp"), 0o1777)
	os.Chmod(root, 0o755)
	b, err := os.ReadFile("/bin/busybox")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "bin/busybox"), b, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range strings.Fields("sh sleep cat echo true false ls id pwd ps head yes seq touch kill env dd wc setsid mkdir tty stty mount nproc ulimit date test grep") {
		if err := os.Symlink("busybox", filepath.Join(root, "bin", name)); err != nil {
			t.Fatal(err)
		}
	}
	os.WriteFile(filepath.Join(root, "etc/passwd"), []byte("root:x:0:0:root:/root:/bin/sh\nweb:x:1000:1000::/home/web:/bin/sh\n"), 0o644)
	os.WriteFile(filepath.Join(root, "etc/group"), []byte("root:x:0:\nweb:x:1000:\nlogs:x:44:web\nextra:x:45:\n"), 0o644)
	return root
}

// spec is a container of a busybox root that runs a shell script.
func (n *node) spec(script string) Spec {
	n.t.Helper()
	id := newID()
	n.ids = append(n.ids, id)
	return Spec{ID: id, Rootfs: busyboxRoot(n.t), Args: []string{"/bin/sh", "-c", script}, Hostname: id[:12]}
}

func (n *node) create(s Spec) int {
	n.t.Helper()
	pid, err := n.Create(context.Background(), s)
	if err != nil {
		n.t.Fatalf("create: %v", err)
	}
	return pid
}

func (n *node) start(s Spec) time.Time {
	n.t.Helper()
	n.create(s)
	at, err := n.Start(context.Background(), s.ID)
	if err != nil {
		n.t.Fatalf("start: %v", err)
	}
	return at
}

func (n *node) wait(id string) Exit {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	e, err := n.Wait(ctx, id)
	if err != nil {
		n.t.Fatalf("wait: %v", err)
	}
	return e
}

// says waits until the container has printed line.
func (n *node) says(id, line string) {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	found := errors.New("found")
	err := n.Logs(ctx, id, LogQuery{Tail: -1, Follow: true}, func(l LogLine) error {
		if strings.TrimSpace(string(l.Line)) == line {
			return found
		}
		return nil
	})
	if !errors.Is(err, found) {
		n.t.Fatalf("no line %q: %v", line, err)
	}
}

// output is the log as text, each stream apart, after the container's end.
func (n *node) output(id string) (stdout, stderr string) {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	var out, errs strings.Builder
	err := n.Logs(ctx, id, LogQuery{Tail: -1, Follow: true}, func(l LogLine) error {
		if l.Stream == "stderr" {
			errs.Write(l.Line)
		} else {
			out.Write(l.Line)
		}
		return nil
	})
	if err != nil {
		n.t.Fatalf("logs: %v", err)
	}
	return out.String(), errs.String()
}
