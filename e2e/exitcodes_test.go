// SPDX-License-Identifier: BSD-2-Clause

package e2e

import (
	"strings"
	"testing"
)

// TestUpdateExitCodes: docker's own client, which takes a rollback for a
// success, exits with 1 where nobody asked for it and with 0 where somebody did.
func TestUpdateExitCodes(t *testing.T) {
	t.Parallel()
	d := loaded(t)
	d.docker("service", "create", "-q", "--no-resolve-image", "--name", "web", "--health-cmd", "test $V != 2", "--health-interval", "1s", "--health-retries", "1",
		"--env", "V=1", "--update-failure-action", "rollback", "--update-monitor", "1s", "--rollback-monitor", "1s", "--update-order", "start-first",
		"--restart-delay", "0s", "app:1")
	d.docker("service", "update", "-q", "--no-resolve-image", "--env-add", "V=3", "web")
	if out, stderr, err := d.try("service", "update", "-q", "--no-resolve-image", "--env-add", "V=2", "web"); err == nil || !strings.Contains(stderr, "update rolled back") {
		t.Errorf("an update that is rolled back: %v\n%s%s", err, out, stderr)
	}
	if u := d.service("web").UpdateStatus; u == nil || u.State != "rollback_completed" || !strings.HasPrefix(u.Message, "update rolled back") {
		t.Errorf("%+v", u)
	}
	// What comes after is another story.
	d.docker("service", "scale", "web=2")
	d.docker("service", "update", "-q", "--no-resolve-image", "--env-add", "V=4", "web")
	d.docker("service", "rollback", "-q", "web")
	d.docker("service", "update", "-q", "--no-resolve-image", "--env-add", "V=5", "web")
	d.docker("service", "update", "-q", "--rollback", "web")
}
