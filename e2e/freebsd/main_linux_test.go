// SPDX-License-Identifier: BSD-2-Clause

package freebsd

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"satld/network/nettest"
)

func TestMain(m *testing.M) { nettest.Main(m) }

// need skips the test where the ring cannot run, and says why.
func need(t *testing.T) {
	t.Helper()
	nettest.Require(t)
	var lack []string
	for _, tool := range []string{"docker", "busybox", "go"} {
		if _, err := exec.LookPath(tool); err != nil {
			lack = append(lack, tool)
		}
	}
	if len(lack) > 0 {
		t.Skip("SKIPPED: not installed: " + strings.Join(lack, ", "))
	}
}

// programs are satld, satl and the app that runs in jails, built once.
var programs = sync.OnceValues(func() (string, error) {
	// `go test` removes the directory its test binary lies in.
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(filepath.Dir(self), fmt.Sprintf("satl-freebsd-%d", os.Getpid()))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	for name, args := range map[string][]string{
		"satld": {"-tags", "fakefreebsd", "satld/cmd/satld"},
		"app":   {"satld/e2e/testapp"},
	} {
		cmd := exec.Command("go", append([]string{"build", "-o", filepath.Join(dir, name)}, args...)...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("build %s: %w\n%s", name, err, out)
		}
	}
	return dir, nil
})
