// SPDX-License-Identifier: BSD-2-Clause

//go:build !fakefreebsd

package jail

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// cleanMain removes what was built.
func cleanMain() {
	if builtInit != "" {
		os.RemoveAll(filepath.Dir(builtInit))
	}
}

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
		StateDir: state, ShimArgs: []string{"test-shim"}, InitPath: builtInit,
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	}
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

// spec is a container of a busybox root that runs a shell script.
func (n *node) spec(script string) Spec {
	n.t.Helper()
	id, root := newID(), n.t.TempDir()
	n.ids = append(n.ids, id)
	fillBusybox(n.t, root)
	return Spec{ID: id, Rootfs: root, Args: []string{"/bin/sh", "-c", script}, Hostname: id[:12]}
}
