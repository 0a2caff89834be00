// SPDX-License-Identifier: BSD-2-Clause

//go:build freebsdhost

package jail

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"satld/jail/shim"
)

// inside runs a command in a container and returns what it printed.
func (n *node) inside(id string, argv ...string) string {
	n.t.Helper()
	var out bytes.Buffer
	p, err := n.Exec(context.Background(), id, ExecSpec{Args: argv, Stdout: &out, Stderr: &out})
	if err != nil {
		n.t.Fatalf("%q: %v", argv, err)
	}
	if code, err := p.Wait(); code != 0 || err != nil {
		n.t.Fatalf("%q: %d, %v: %s", argv, code, err, out.String())
	}
	return out.String()
}

// A jail has a network of its own, with nothing but lo0 in it, and lets go of
// its connections soon: the host's setting is another one's.
func TestHostJailNetwork(t *testing.T) {
	n := newNode(t)
	s := n.spec(noReaper)
	s.JailParams = map[string]string{"allow.mlock": "true", "sysvshm": "new"}
	n.start(s)
	if got := strings.TrimSpace(n.inside(s.ID, "ifconfig", "-l")); got != "lo0" {
		t.Errorf("interfaces %q", got)
	}
	if got := strings.TrimSpace(n.inside(s.ID, "sysctl", "-n", "net.inet.tcp.msl")); got != "2000" {
		t.Errorf("net.inet.tcp.msl in the jail is %s", got)
	}
	if got := strings.TrimSpace(n.tool("sysctl", "-n", "net.inet.tcp.msl")); got == "2000" {
		t.Errorf("net.inet.tcp.msl of the host is %s", got)
	}
	for param, want := range map[string]string{"allow.mlock": "true", "sysvshm": "new", "sysvmsg": "disable", "allow.sysvipc": "false", "vnet": "new"} {
		if got := strings.TrimSpace(n.tool("jls", "-j", s.ID, param)); got != want {
			t.Errorf("%s is %s, want %s", param, got, want)
		}
	}
}

// Connections keep a jail dying: for twice the time above, and nobody waits.
func TestHostJailDies(t *testing.T) { // cases/jail.md, jail-1
	n := newNode(t)
	s := n.spec(`ifconfig lo0 inet 127.0.0.1/8 up; nc -l 127.0.0.1 99 >/dev/null & sleep 1; (sleep 1000 | nc 127.0.0.1 99) & sleep 2; echo connected; wait`)
	n.start(s)
	n.says(s.ID, "connected")
	began := time.Now()
	n.remove(s.ID)
	deleted := time.Since(began)
	there, dying := n.jailed(s.ID)
	if there && !dying {
		t.Error("the jail lives")
	}
	again := s
	again.ID, again.Args = s.ID+"-2", []string{"/bin/sh", "-c", noReaper}
	n.ids = append(n.ids, again.ID)
	n.start(again) // while the first one dies
	n.gone(s.ID)
	t.Logf("deleted in %v; dying afterwards: %v; gone after %v", deleted, there, time.Since(began))
}

// rctl(8) kills what uses more memory, and refuses more processes.
func TestHostJailLimits(t *testing.T) {
	n := newNode(t)
	if len(n.Warnings()) > 0 {
		t.Skipf("SKIPPED: %s", n.Warnings()[0])
	}
	s := n.spec("")
	s.Args = []string{"dd", "if=/dev/zero", "of=/dev/null", "bs=200000000", "count=100"}
	s.MemoryBytes = 32 << 20
	n.start(s)
	if e := n.wait(s.ID); e.Code != 137 {
		t.Errorf("with too much memory: %+v", e)
	}
	s = n.spec(`sleep 1000 & sleep 1000 & sleep 1000 & sleep 1000 & echo all; wait`)
	s.Pids = 3
	n.start(s)
	eventually(t, "the refusal of a process", func() bool {
		out, errs := n.lines2(s.ID)
		if strings.Contains(out, "all") {
			t.Fatal("five processes of three")
		}
		return strings.Contains(errs, "annot fork")
	})
	n.remove(s.ID)
	n.gone(s.ID)
	if out := n.tool("rctl"); strings.Contains(out, s.ID) {
		t.Errorf("rules are left: %s", out)
	}
}

// What the kernel tells of processes is where it is looked for.
func TestHostProcesses(t *testing.T) {
	pid := os.Getpid()
	at, err := shim.StartTime(pid)
	if err != nil || time.Since(at) > time.Hour || time.Since(at) < 0 {
		t.Errorf("this process began at %v, %v", at, err)
	}
	if got := shim.Comm(pid); got == "" || !strings.HasPrefix(commOf(os.Args[0]), got) {
		t.Errorf("its name is %q, not %q", got, commOf(os.Args[0]))
	}
	dead, err := os.StartProcess("/usr/bin/true", []string{"true"}, &os.ProcAttr{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the end of a child that was not waited for", func() bool {
		_, err := shim.StartTicks(dead.Pid)
		return err != nil
	})
	if got := shim.Comm(dead.Pid); got != "true" {
		t.Errorf("the name of a dead child is %q", got)
	}
	dead.Wait()
	if got := shim.Comm(dead.Pid); got != "" {
		t.Errorf("the name of a child that was waited for is %q", got)
	}
}

// An image for Linux runs under the Linuxulator, where that is loaded.
func TestHostLinuxImage(t *testing.T) {
	n := newNode(t)
	if err := n.jails().tool.runsLinux(context.Background()); err != nil {
		t.Skipf("SKIPPED: %v", err)
	}
	busybox := os.Getenv("SATL_LINUX_BUSYBOX")
	if busybox == "" {
		t.Skip("SKIPPED: SATL_LINUX_BUSYBOX does not name a static busybox for Linux")
	}
	s := n.spec("")
	for _, read := range []bool{false, true} {
		s := s
		s.ReadOnly = read
		if read {
			s.ID += "-2"
			n.ids = append(n.ids, s.ID)
		}
		copyProgram(t, busybox, filepath.Join(s.Rootfs, "bin/busybox"))
		s.OS = "linux"
		s.Args = []string{"/bin/busybox", "sh", "-c", `busybox uname -s; busybox grep -c '^cpu' /proc/stat >/dev/null && echo proc;
			echo x >/dev/shm/x && echo shm; busybox ls -d /sys/class; busybox readlink /proc/self/exe; echo up >/dev/stderr; exec busybox sleep 1000`}
		n.start(s)
		eventually(t, "its output", func() bool { _, errs := n.lines2(s.ID); return strings.Contains(errs, "up") })
		if out, errs := n.lines2(s.ID); out != "Linux\nproc\nshm\n/sys/class\n/bin/busybox\n" {
			t.Errorf("%q %q", out, errs)
		}
		if code, out, _, err := n.probe(s.ID, patience, "/bin/busybox", "sh", "-c", "busybox uname -s; exit 3"); code != 3 || out != "Linux\n" || err != nil {
			t.Errorf("probe: %d %q %v", code, out, err)
		}
		n.remove(s.ID)
		n.gone(s.ID)
		if left := n.mounted(s); len(left) > 0 {
			t.Errorf("mounted: %v", left)
		}
	}
}
