// SPDX-License-Identifier: BSD-2-Clause

package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// proc is a process as its /proc shows it.
type proc struct {
	pid, ppid int
	comm      string
	state     string // one letter of ps(1)
	args      string
}

func (p proc) String() string { return fmt.Sprintf("%d(%s %s %q)", p.pid, p.comm, p.state, p.args) }

func (p proc) zombie() bool { return p.state == "Z" }

// procs reads a mounted procfs.
func procs(dir string) (list []proc) {
	stats, _ := filepath.Glob(filepath.Join(dir, "[0-9]*", "stat"))
	for _, path := range stats {
		data, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		pid, rest, ok := strings.Cut(string(data), " (")
		end := strings.LastIndex(rest, ") ")
		if !ok || end < 0 {
			continue
		}
		fields := strings.Fields(rest[end+2:])
		p := proc{comm: rest[:end], state: fields[0]}
		p.pid, _ = strconv.Atoi(pid)
		p.ppid, _ = strconv.Atoi(fields[1])
		args, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "cmdline"))
		p.args = strings.TrimSpace(string(bytes.ReplaceAll(args, []byte{0}, []byte{' '})))
		list = append(list, p)
	}
	return list
}

// inside are the processes of a container besides its main one, read from the
// procfs that is mounted in it, so zombies as well. The daemon's helper, which
// runs the probe's command, is left out.
func inside(mainPid int) []proc {
	return slices.DeleteFunc(procs(fmt.Sprintf("/proc/%d/root/proc", mainPid)), func(p proc) bool {
		return p.pid == 1 || p.comm == "satl-init" || p.comm == "satld" // the latter before its exec
	})
}

// helpers are the processes that run probes for a daemon.
func helpers(daemonPid int) []proc {
	return slices.DeleteFunc(procs("/proc"), func(p proc) bool { return p.ppid != daemonPid || p.comm != "satl-init" })
}

// lives tells whether a process exists and is no zombie.
func lives(pid int) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !bytes.Contains(data, []byte(") Z "))
}

// hostPid is the pid on the host of a container's process.
func hostPid(t *testing.T, mainPid int, want func(proc) bool) int {
	t.Helper()
	ns, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", mainPid))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range procs("/proc") {
		if got, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", p.pid)); err == nil && got == ns && want(p) {
			return p.pid
		}
	}
	return 0
}

// memory is a figure of a process's status in bytes: VmRSS, VmHWM.
func memory(t *testing.T, pid int, figure string) int {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, figure+":"); ok {
			kb, err := strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")))
			if err != nil {
				t.Fatal(err)
			}
			return kb << 10
		}
	}
	t.Fatalf("no %s in the status of %d", figure, pid)
	return 0
}

// forgetPeak makes VmHWM start from the present VmRSS.
func forgetPeak(t *testing.T, pid int) {
	t.Helper()
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0); err != nil {
		t.Fatal(err)
	}
}

// cpu is the time a process itself has used.
func cpu(t *testing.T, pid int) time.Duration {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+2:]))
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond
}

// touch and untouch make and remove a file of a control directory.
func touch(t *testing.T, dir, name string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
		t.Fatal(err)
	}
}

func untouch(t *testing.T, dir, name string) {
	t.Helper()
	if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
}

// controls makes a control directory that containers can read.
func controls(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	return dir
}

// signal sends a signal to a process that must be there.
func signal(t *testing.T, pid int, sig syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(pid, sig); err != nil {
		t.Fatalf("signal %d to %d: %v", sig, pid, err)
	}
}
