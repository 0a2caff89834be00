// SPDX-License-Identifier: BSD-2-Clause

package jail

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"satld/platform"
)

// jailSystem is FreeBSD, and what plays it.
func jailSystem(ctx context.Context, m *Manager, daemonDir string) (driver, host, prober, error) {
	d := ocijail{path: m.cfg.RuntimePath, root: filepath.Join(m.cfg.StateDir, "runtime")}
	h, err := newJails(ctx, m.cfg, m.dir, d, daemonDir, m.memories)
	if err != nil {
		return nil, nil, nil, err
	}
	p, err := newOcijailProber(m, d)
	if err != nil {
		return nil, nil, nil, err
	}
	return d, h, p, nil
}

// runtimeName and runtimeInstall say what to look for, and what to say when it
// is not there.
func runtimeName() string {
	if platform.OS == "freebsd" {
		return "ocijail"
	}
	return "runc"
}

func runtimeInstall() string {
	if platform.OS == "freebsd" {
		return "install it (pkg install ocijail) or give its path with --runtime"
	}
	return "install it (on Debian: apt-get install runc) or give its path with --runtime"
}

// CheckRuntime tells whether there is a runtime, before anything is made for it.
func CheckRuntime(path string) error {
	_, err := findRuntime(path)
	return err
}

// findRuntime resolves the path of the runtime's program.
func findRuntime(path string) (string, error) {
	if path == "" {
		path = runtimeName()
	}
	found, err := exec.LookPath(path)
	if err != nil && path == runtimeName() {
		// rc(8) starts daemons without the directories of packages in PATH.
		if local := filepath.Join("/usr/local/bin", path); isProgram(local) {
			found, err = local, nil
		}
	}
	if err != nil {
		return "", fmt.Errorf("container runtime %s: %w; %s", runtimeName(), err, runtimeInstall())
	}
	if found, err = filepath.Abs(found); err != nil {
		return "", fmt.Errorf("container runtime: %w", err)
	}
	return found, nil
}

func isProgram(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0
}
