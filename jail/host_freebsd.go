// SPDX-License-Identifier: BSD-2-Clause

package jail

import "path/filepath"

// newDriver makes this platform's driver.
func newDriver(cfg Config) driver {
	return ocijail{path: cfg.RuntimePath, root: filepath.Join(cfg.StateDir, "runtime")}
}

// runtimeName and runtimeInstall say what to look for, and what to say when it
// is not there.
const (
	runtimeName    = "ocijail"
	runtimeInstall = "install it (pkg install ocijail) or give its path with --runtime"
)
