// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// shellScripts are what an operator's sh(1) runs.
var shellScripts = []string{"../../packaging/freebsd/satld.rc", "../../packaging/freebsd/guest-setup", "../freebsd-test"}

// TestShellSyntax: each parses, and says nothing outside ASCII. What shellcheck
// calls a warning is one, but for variables that rc.subr(8) reads.
func TestShellSyntax(t *testing.T) {
	for _, s := range shellScripts {
		if out, err := exec.Command("sh", "-n", s).CombinedOutput(); err != nil {
			t.Errorf("sh -n %s: %v: %s", s, err, out)
		}
		st, err := os.Stat(s)
		if err != nil || st.Mode().Perm()&0o111 == 0 {
			t.Errorf("%s cannot be run: %v", s, err)
		}
	}
	if _, err := exec.LookPath("shellcheck"); err != nil {
		t.Skip("SKIPPED: shellcheck is not installed")
	}
	args := append([]string{"-s", "sh", "-S", "warning", "-e", "SC2034,SC3043"}, shellScripts...)
	if out, err := exec.Command("shellcheck", args...).CombinedOutput(); err != nil {
		t.Errorf("shellcheck: %v\n%s", err, out)
	}
}

// TestVagrantfile parses it where there is a Ruby.
func TestVagrantfile(t *testing.T) {
	if _, err := exec.LookPath("ruby"); err != nil {
		t.Skip("SKIPPED: ruby is not installed")
	}
	if out, err := exec.Command("ruby", "-c", "../../Vagrantfile").CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// service is a host on which the rc.d script can be run: its paths are in a
// directory of the test's, and daemon(8), satld and rc.subr(8) are stand-ins.
type service struct {
	t   *testing.T
	dir string
}

func newService(t *testing.T) *service {
	t.Helper()
	s := &service{t: t, dir: t.TempDir()}
	script, err := os.ReadFile("../../packaging/freebsd/satld.rc")
	if err != nil {
		t.Fatal(err)
	}
	here, err := filepath.Abs("testdata")
	if err != nil {
		t.Fatal(err)
	}
	moved := strings.NewReplacer("/etc/rc.subr", here+"/rc.subr", "/usr/sbin/daemon", here+"/daemon", "/usr/local/sbin/satld", here+"/satld",
		"/var/run/", s.dir+"/", "/usr/local/etc/satl/", s.dir+"/").Replace(string(script))
	s.write("rc", moved)
	s.write("satld.toml", "")
	s.write("rc.conf", "")
	s.write("log", "")
	t.Cleanup(func() { s.run("stop") })
	return s
}

func (s *service) write(name, data string) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, name), []byte(data), 0o755); err != nil {
		s.t.Fatal(err)
	}
}

func (s *service) run(command string) (said string, code int) {
	cmd := exec.Command("sh", filepath.Join(s.dir, "rc"), command)
	cmd.Env = append(os.Environ(), "RC_CONF="+filepath.Join(s.dir, "rc.conf"), "LOG="+filepath.Join(s.dir, "log"))
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		return string(out), exit.ExitCode()
	}
	if err != nil {
		s.t.Error(err)
	}
	return string(out), 0
}

// does runs a command of the script and compares what it says and its status.
func (s *service) does(command string, code int, text string) {
	s.t.Helper()
	said, got := s.run(command)
	if got != code || !strings.Contains(said, text) {
		s.t.Errorf("%s: status %d, said %q; want %d and %q", command, got, said, code, text)
	}
}

func (s *service) log() string { return read(s.t, filepath.Join(s.dir, "log")) }

func (s *service) await(text string) {
	s.t.Helper()
	for deadline := time.Now().Add(time.Minute); !strings.Contains(s.log(), text); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.t.Fatalf("%q is not in the log:\n%s", text, s.log())
		}
	}
}

func TestRCScript(t *testing.T) {
	s := newService(t)
	s.write("rc.conf", `satld_flags="--log-level debug"`)
	s.does("stop", 1, "not running?")
	s.does("status", 1, "is not running")
	s.does("start", 0, "Starting satld.")
	config := filepath.Join(s.dir, "satld.toml")
	want := fmt.Sprintf("-f -t satld -S -T satld -l daemon -s err -R 5 -P %s/satld-supervisor.pid -p %s/satld.pid", s.dir, s.dir)
	if !strings.Contains(s.log(), want) || !strings.Contains(s.log(), "\nsatld --config "+config+" --log-level debug\n") {
		t.Errorf("log:\n%s\nwant %s", s.log(), want)
	}
	s.does("status", 0, "is running as pid")
	s.does("start", 1, "already running?")
	s.does("cleanup", 1, "stop it first")
	s.does("reload", 0, "")
	s.await("reloaded")
	s.write("satld.toml", "wrong = 1\n")
	s.does("configtest", 2, "unknown key wrong")
	s.does("reload", 1, "unknown key wrong")
	s.write("satld.toml", "")
	// Not before satld itself has ended, though its supervisor ends at once.
	s.does("stop", 0, "left running")
	if !strings.HasSuffix(s.log(), "ended\n") {
		t.Errorf("stop returned before the end:\n%s", s.log())
	}
	s.does("cleanup", 0, "")
	s.await("cleanup cleanup --config " + config + " --log-level debug\n")
}

// TestRCScriptRestarts: satld that ends by itself is started again, and can be
// stopped in between.
func TestRCScriptRestarts(t *testing.T) {
	s := newService(t)
	s.write("rc.conf", `satld_restart_delay="6"`)
	s.write("satld.toml", "# broken\n")
	s.does("start", 1, "ended at once; /var/log/messages says why")
	s.write("satld.toml", "")
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		if _, code := s.run("status"); code == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("not started again:\n%s", s.log())
		}
	}
	s.does("stop", 0, "left running")
	s.write("rc.conf", `satld_restart_delay="0"`)
	s.does("start", 0, "")
	if !strings.Contains(s.log(), "-s err -P ") {
		t.Errorf("started again for ever:\n%s", s.log())
	}
	s.does("restart", 0, "Starting satld.")
}

// TestRCScriptRefuses: nothing is started with a configuration that is wrong
// or missing.
func TestRCScriptRefuses(t *testing.T) {
	s := newService(t)
	s.write("satld.toml", "wrong = 1\n")
	s.does("start", 1, "unknown key wrong")
	s.write("rc.conf", `satld_config="/none/satld.toml"`)
	s.does("start", 1, "/none/satld.toml is not readable")
	if s.log() != "" {
		t.Errorf("log:\n%s", s.log())
	}
}

// TestFreeBSDTestReports: what the report says of a run with a pass, a failure
// and a skipped test.
func TestFreeBSDTestReports(t *testing.T) {
	bin, log := t.TempDir(), filepath.Join(t.TempDir(), "log")
	for name, script := range map[string]string{
		"uname":   `if [ "$1" = -s ]; then echo FreeBSD; else echo "FreeBSD 15.1 amd64"; fi`,
		"sysctl":  `case $2 in kern.racct.enable) echo 1 ;; *) exit 1 ;; esac`,
		"ocijail": `echo "ocijail version 0.6.0"`,
		"pfctl":   `echo "Status: Enabled"`,
		"go": `if [ "$1" = version ]; then echo "go version go1.26"; exit; fi
echo "args $*"
echo "=== RUN   TestA"; echo "--- PASS: TestA (0.00s)"; echo "    --- PASS: TestA/sub (0.00s)"
echo "    b_test.go:7: got 1, want 2"; echo "--- FAIL: TestB (0.00s)"
echo "    c_test.go:9: SKIPPED: no zpool(8)"; echo "--- SKIP: TestC (0.00s)"
echo "FAIL	satld/image	0.1s"; exit 1`,
	} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("sh", "../freebsd-test", "./image")
	cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "FREEBSD_TEST_LOG="+log)
	out, err := cmd.CombinedOutput()
	if exit := new(exec.ExitError); !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("ended with %v", err)
	}
	for _, want := range []string{"FreeBSD 15.1 amd64", "go version go1.26", "ocijail version 0.6.0", "Status: Enabled", "kern.racct.enable 1",
		"b_test.go:7: got 1, want 2\n--- FAIL: TestB", "c_test.go:9: SKIPPED: no zpool(8)\n--- SKIP: TestC", "2 passed, 1 failed, 1 skipped"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("%q is not reported", want)
		}
	}
	if !strings.Contains(read(t, log), "args test -tags freebsdhost -p 1 -count=1 -timeout 30m -v ./image") || t.Failed() {
		t.Errorf("report:\n%s\nlog:\n%s", out, read(t, log))
	}
	cmd = exec.Command("sh", "../freebsd-test")
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "not FreeBSD") {
		t.Errorf("on Linux: %v %s", err, out)
	}
}
