// SPDX-License-Identifier: BSD-2-Clause

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const composeFile = `
services:
  web:
    image: app:1
    command: ["/app"]
    networks: [back]
    secrets:
      - password
      - {source: password, target: /etc/key, uid: "7", gid: "8", mode: 0400}
    configs:
      - {source: page, target: /etc/page}
    healthcheck:
      test: ["CMD", "/app", "-probe", "http://127.0.0.1/health"]
      interval: 500ms
    deploy:
      replicas: 2
      update_config: {monitor: 100ms}
  client:
    image: app:1
    command: ["/app"]
    networks: [back]
    configs: [page]
    healthcheck:
      test: ["CMD-SHELL", "/app -probe http://web/ && grep -q hello /page"]
      interval: 500ms
      timeout: 2s
      retries: 20
    deploy:
      update_config: {monitor: 100ms}
networks:
  back: {}
secrets:
  password: {file: ./password}
configs:
  page: {file: ./page}
`

// A stack with a network, a secret and a config of its own converges, stays as
// it is when it is deployed again, and leaves nothing.
func TestStack(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1)
	d := s.nodes[0]
	links := func() string {
		out, err := exec.Command("ip", "-n", s.host(0), "-o", "link").Output()
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for line := range strings.Lines(string(out)) {
			names = append(names, strings.Fields(line)[1])
		}
		return strings.Join(names, " ")
	}
	mounts := func() (under []string) {
		data, err := os.ReadFile("/proc/self/mountinfo")
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(data)) {
			if strings.Contains(line, d.dir) {
				under = append(under, line)
			}
		}
		return under
	}
	before, mountsBefore := links(), mounts()
	for name, text := range map[string]string{"compose.yml": composeFile, "password": "c0ffee-password", "page": "hello\n"} {
		if err := os.WriteFile(filepath.Join(d.dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	deploy := func() {
		t.Helper()
		d.docker("stack", "deploy", "-q", "--detach=false", "--resolve-image", "never", "-c", filepath.Join(d.dir, "compose.yml"), "shop")
	}
	deploy()
	if got := d.docker("stack", "ls", "--format", "{{.Name}} {{.Services}}"); got != "shop 2" {
		t.Errorf("stack ls: %s", got)
	}
	services := d.docker("stack", "services", "--format", "{{.Name}} {{.Mode}} {{.Replicas}}", "shop")
	if !strings.Contains(services, "shop_web replicated 2/2") || !strings.Contains(services, "shop_client replicated 1/1") {
		t.Errorf("stack services:\n%s", services)
	}
	ps := d.docker("stack", "ps", "--format", "{{.Name}} {{.DesiredState}} {{.CurrentState}} {{.Error}}", "shop")
	if strings.Count(ps, "Running Running") != 3 || !strings.Contains(ps, "shop_web.2") || !strings.Contains(ps, "shop_client.1") {
		t.Errorf("stack ps:\n%s", ps)
	}
	if network := d.docker("network", "inspect", "--format", "{{.Driver}} {{.Scope}}", "shop_back"); network != "overlay swarm" {
		t.Errorf("its network: %s", network)
	}
	web := d.docker("ps", "-q", "--filter", "name=shop_web.1")
	for script, want := range map[string]string{
		"cat /run/secrets/password /etc/key": "c0ffee-passwordc0ffee-password", "cat /etc/page": "hello", "stat -c '%a %u %g' /etc/key": "400 7 8",
	} {
		if got := d.docker("exec", web, "sh", "-c", script); got != want {
			t.Errorf("%s: %q, want %q", script, got, want)
		}
	}

	// Again: nothing is replaced.
	tasks := d.docker("stack", "ps", "-q", "shop")
	deploy()
	if now := d.docker("stack", "ps", "-q", "shop"); now != tasks {
		t.Errorf("deployed again, tasks\n%s\nbefore\n%s", now, tasks)
	}

	d.docker("stack", "rm", "--detach=false", "shop")
	for _, kind := range []string{"service", "secret", "config"} {
		if left := d.docker(kind, "ls", "-q"); left != "" {
			t.Errorf("%s left: %s", kind, left)
		}
	}
	if left := d.docker("network", "ls", "--filter", "type=custom", "-q"); left != "" {
		t.Errorf("networks left: %s", left)
	}
	if left := d.docker("stack", "ls"); strings.Contains(left, "shop") {
		t.Errorf("the stack is left: %s", left)
	}
	eventually(t, 30*time.Second, "no container", func() bool { return d.docker("ps", "-aq") == "" })
	eventually(t, 30*time.Second, "no mount", func() bool { return len(mounts()) == len(mountsBefore) })
	eventually(t, 30*time.Second, "no link", func() bool { return links() == before })
}
