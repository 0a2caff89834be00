// SPDX-License-Identifier: BSD-2-Clause

package e2e

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Metrics and the read-only page, where they are asked for.
func TestMetricsAndDashboard(t *testing.T) {
	t.Parallel()
	metrics, page := fmt.Sprintf("127.0.0.1:%d", 30000+base()*10), fmt.Sprintf("127.0.0.1:%d", 30001+base()*10)
	d := loaded(t, "--metrics-addr", metrics, "--dashboard-addr", page)
	d.docker("service", "create", "-q", "--name", "web", "--health-cmd", "test -e /tmp/ok", "--health-interval", "1s", "--health-retries", "100", "-d", "app:1")
	read := func(url string) string {
		resp, err := http.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		data, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s, %v", url, resp.Status, err)
		}
		return string(data)
	}
	eventually(t, 10*time.Second, "failures on the page", func() bool {
		text := read("http://" + page + "/")
		return strings.Contains(text, "<h2>web</h2>") && strings.Contains(text, "/100 probes failed)")
	})
	d.docker("exec", "web.1", "touch", "/tmp/ok")
	eventually(t, 10*time.Second, "a pass in the metrics", func() bool {
		return strings.Contains(read("http://"+metrics+"/metrics"), `satl_health_verdicts_total{verdict="healthy"} 1`)
	})
	resp, err := http.Post("http://"+page+"/", "text/plain", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST to the page: %s", resp.Status)
	}
}

// A start that cannot work leaves nothing behind, neither bridge nor state.
func TestFailedStartMakesNothing(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	state := filepath.Join(d.dir, "other")
	for want, args := range map[string][]string{
		"--socket":      {"--socket", d.sock, "--listen-addr", "127.0.0.1:0"},
		"--listen-addr": {"--socket", d.sock + "2", "--listen-addr", d.flags()[5]},
	} {
		args = append(args, "--state-dir", state, "--network-name", d.network+"y", "--network-pool", "10.128.0.0/17", "--overlay-pool", "10.128.128.0/17")
		out, err := exec.Command(filepath.Join(bin, "satld"), args...).CombinedOutput()
		if exit, ok := err.(*exec.ExitError); !ok || exit.ExitCode() != 1 || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v\n%s", want, err, out)
		}
	}
	if _, err := os.Stat(state); !os.IsNotExist(err) {
		t.Errorf("a state directory was made: %v", err)
	}
	if _, err := net.InterfaceByName(d.network + "y"); err == nil {
		t.Error("a bridge was made")
	}
}

// The command line and the file: what is wrong is said in one line, with the
// exit code of DESIGN.md section 8.
func TestCommandLine(t *testing.T) {
	t.Parallel()
	need(t)
	dir := t.TempDir()
	good, bad := filepath.Join(dir, "good.toml"), filepath.Join(dir, "bad.toml")
	for path, text := range map[string]string{good: "socket = \"/tmp/x.sock\"\nlog_level = \"warn\"\n", bad: "sokcet = 1\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--help"}, 0, "--network-pool"},
		{[]string{"version"}, 0, "satld version"},
		{[]string{"validate", "--config", good}, 0, "valid"},
		{[]string{"validate", "--config", bad}, 1, "sokcet"},
		{[]string{"--bogus"}, 2, "bogus"},
		{[]string{"--network-pool", "nonsense"}, 2, "--network-pool"},
		{[]string{"--state-dir", dir, "--socket", filepath.Join(dir, "s"), "--listen-addr", "127.0.0.1:0", "--network-name", "stcl0", "--network-pool", "10.128.0.0/17", "--overlay-pool", "10.128.128.0/17", "--runtime", "/nonexistent/runc"}, 1, "runc"},
	} {
		out, err := exec.Command(filepath.Join(bin, "satld"), tc.args...).CombinedOutput()
		code := 0
		if err != nil {
			exit, ok := err.(*exec.ExitError)
			if !ok {
				t.Fatal(err)
			}
			code = exit.ExitCode()
		}
		if code != tc.code || !strings.Contains(string(out), tc.want) {
			t.Errorf("satld %q: exit %d, want %d and %q in:\n%s", tc.args, code, tc.code, tc.want, out)
		}
	}
	out, err := exec.Command(filepath.Join(bin, "satld"), "cleanup", "--state-dir", dir, "--socket", filepath.Join(dir, "s"), "--network-name", "stcl0", "--network-pool", "10.128.0.0/17", "--overlay-pool", "10.128.128.0/17").CombinedOutput()
	if err != nil {
		t.Errorf("cleanup: %v\n%s", err, out)
	}
}
