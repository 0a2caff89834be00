// SPDX-License-Identifier: BSD-2-Clause

package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// holding names the files of a daemon's state directory that have text in
// them, what is mounted there included.
func (d *daemon) holding(text string) (found []string) {
	d.t.Helper()
	err := filepath.WalkDir(d.state, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			if errors.Is(err, fs.ErrNotExist) {
				err = nil // it went meanwhile
			}
			return err
		}
		b, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if bytes.Contains(b, []byte(text)) {
			found = append(found, path)
		}
		return err
	})
	if err != nil {
		d.t.Fatal(err)
	}
	return found
}

// put makes a secret or config of a text.
func (d *daemon) put(kind, name, text string) {
	d.t.Helper()
	if out, stderr, err := d.client("docker", []byte(text), kind, "create", name, "-"); err != nil {
		d.t.Fatalf("%s create: %v: %s%s", kind, err, out, stderr)
	}
}

// A task on a worker gets its secrets and configs, in memory alone; they stay
// over the daemon's death and are changed by an update.
func TestSecrets(t *testing.T) {
	t.Parallel()
	s := newSite(t, 3)
	a, b, c := s.nodes[0], s.nodes[1], s.nodes[2]
	s.join(1, "manager")
	s.join(2, "worker")
	const largest = 1000<<10 - 1
	const first, second, settings = "b1f5c0-the-first-password", "9a77de-the-second-password", "41c2aa-debug=true"
	b.put("secret", "password", first) // a manager that does not lead hands it on
	b.put("config", "settings", settings)
	b.put("config", "script", "#!/bin/sh\necho it runs\n")
	args := []string{"service", "create", "-q", "--no-resolve-image", "--name", "web", "--constraint", "node.role==worker", "--stop-grace-period", "1s", "--update-monitor", "200ms"}
	for i := range 6 { // together they are more than gRPC takes by default
		name := fmt.Sprintf("large%d", i)
		b.put("config", name, strings.Repeat("x", largest))
		args = append(args, "--config", name)
	}
	b.docker(append(args,
		"--secret", "source=password,target=db,uid=7,gid=8,mode=0440", "--secret", "source=password,target=/etc/keys/db",
		"--config", "settings", "--config", "source=script,target=/bin/script,mode=0555", "app:1", "/app")...)
	container := c.docker("ps", "-q")
	inside := func(script string) string {
		t.Helper()
		return c.docker("exec", container, "sh", "-c", script)
	}
	for script, want := range map[string]string{
		"cat /run/secrets/db": first, "cat /etc/keys/db": first, "cat /settings": settings, "/bin/script": "it runs",
		"cat /large* | wc -c":                     fmt.Sprint(6 * largest),
		"stat -c '%a %u %g' /run/secrets/db":      "440 7 8",
		"stat -c '%a %u %g' /etc/keys/db":         "444 0 0",
		"stat -c '%a %u %g' /settings":            "444 0 0",
		"echo x 2>/dev/null > /settings; echo $?": "1",
	} {
		if got := inside(script); got != want {
			t.Errorf("%s: %q, want %q", script, got, want)
		}
	}
	mounts := inside("cat /proc/mounts")
	for _, path := range []string{"/run/secrets/db", "/etc/keys/db", "/settings", "/bin/script"} {
		if !strings.Contains(mounts, "tmpfs "+path+" tmpfs ro,") {
			t.Errorf("%s is not mounted from memory, read-only:\n%s", path, mounts)
		}
	}

	// The managers have it in their store, the node that runs the task nowhere.
	if len(a.holding(first)) == 0 || len(b.holding(first)) == 0 {
		t.Error("the search finds nothing on the managers either")
	}
	for _, text := range []string{first, settings} {
		if found := c.holding(text); len(found) > 0 {
			t.Errorf("on the worker's disk: %v", found)
		}
	}
	if spec := b.docker("service", "inspect", "web"); !strings.Contains(spec, `"SecretName": "password"`) || !strings.Contains(spec, `"Name": "/etc/keys/db"`) || !strings.Contains(spec, `"ConfigName": "settings"`) {
		t.Errorf("the service shows:\n%s", spec)
	}
	for _, out := range []string{b.docker("secret", "inspect", "password"), b.docker("secret", "inspect", "--pretty", "password"), b.docker("secret", "ls")} {
		if !strings.Contains(out, "password") || strings.Contains(out, "b1f5c0") || strings.Contains(out, "YjFmNWMw") {
			t.Errorf("shown:\n%s", out)
		}
	}
	c.refused("This node is not a swarm manager", "secret", "ls")
	a.refused("secret 'password' is in use by the following service: web", "secret", "rm", "password")
	a.refused("config 'settings' is in use by the following service: web", "config", "rm", "settings")
	a.refused("secret not found: nobody", "service", "create", "--name", "x", "--secret", "nobody", "app:1")

	// The next daemon leaves the task's files alone.
	c.kill()
	c.start()
	if got := inside("cat /run/secrets/db /settings"); got != first+settings {
		t.Errorf("after the daemon's death: %q", got)
	}

	// Rotated: the same file, with another secret in it.
	a.put("secret", "password2", second)
	a.docker("service", "update", "-q", "--no-resolve-image", "--secret-rm", "password", "--secret-add", "source=password2,target=db", "web")
	eventually(t, 20*time.Second, "one container", func() bool {
		now := strings.Fields(c.docker("ps", "-q"))
		if len(now) != 1 || now[0] == container {
			return false
		}
		container = now[0]
		return true
	})
	if got := inside("cat /run/secrets/db; test ! -e /etc/keys"); got != second {
		t.Errorf("after the update: %q", got)
	}
	a.docker("secret", "rm", "password")
	a.docker("service", "rm", "web")
	a.docker("secret", "rm", "password2")
	a.docker("config", "rm", "settings", "script")
	eventually(t, 20*time.Second, "gone", func() bool { return c.docker("ps", "-aq") == "" })
	for _, text := range []string{first, second, settings} {
		if found := c.holding(text); len(found) > 0 {
			t.Errorf("on the worker's disk: %v", found)
		}
	}
}
