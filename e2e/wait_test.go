// SPDX-License-Identifier: BSD-2-Clause

package e2e

import (
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// api-4 with satl, whose waiting can be bounded and whose exit codes tell the
// truth where docker's do not.
func TestSatlWaits(t *testing.T) {
	t.Parallel()
	d := loaded(t)
	satl := func(args ...string) (string, int) {
		t.Helper()
		out, stderr, err := d.client(filepath.Join(bin, "satl"), nil, args...)
		if err == nil {
			return out + stderr, 0
		}
		exit := new(exec.ExitError)
		if !errors.As(err, &exit) {
			t.Fatalf("satl %s: %v", strings.Join(args, " "), err)
		}
		return out + stderr, exit.ExitCode()
	}
	out, code := satl("service", "create", "-q", "--no-resolve-image", "--name", "nowhere", "--constraint", "node.labels.is==none", "--wait-timeout", "2s", "app:1")
	if code != 1 || !strings.Contains(out, "continues in background") {
		t.Errorf("a service that cannot be placed: exit %d, %s", code, out)
	}
	out, code = satl("service", "create", "-q", "--no-resolve-image", "--name", "once", "--restart-condition", "on-failure", "--wait-timeout", "30s", "app:1", "true")
	if code != 0 || !strings.Contains(out, "completed") {
		t.Errorf("a service whose task ended well: exit %d, %s", code, out)
	}
	out, code = satl("service", "create", "-q", "--no-resolve-image", "--name", "web", "--health-cmd", "test $V = 1", "--health-interval", "1s", "--health-retries", "1", "--env", "V=1",
		"--update-failure-action", "rollback", "--update-monitor", "1s", "--rollback-monitor", "1s", "--update-order", "start-first", "--restart-max-attempts", "1", "--restart-delay", "0s", "--wait-timeout", "30s", "app:1")
	if code != 0 {
		t.Fatalf("a service that converges: exit %d, %s", code, out)
	}
	out, code = satl("service", "update", "-q", "--env-add", "V=2", "--wait-timeout", "60s", "web")
	if code != 1 || !strings.Contains(out, "rolled back") {
		t.Errorf("an update that is rolled back: exit %d, %s", code, out)
	}
}
