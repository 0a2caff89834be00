// SPDX-License-Identifier: BSD-2-Clause

package reap

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Become makes this process the parent of its descendants' orphans.
func Become() error { return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// process is what proc_pid_stat(5) says of one.
type process struct {
	pid, ppid, session int
	start              uint64
	name               string
	ended              bool
}

// processes are all of the machine.
func processes() map[int]process {
	all := make(map[int]process)
	paths, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is well-formed
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if err != nil {
			continue // it is gone
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		open, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
		f := strings.Fields(string(b[end+1:]))
		if open < 0 || end < open || len(f) < 20 {
			continue
		}
		p := process{pid: pid, name: string(b[open+1 : end]), ended: f[0] == "Z" || f[0] == "X"}
		p.ppid, _ = strconv.Atoi(f[1])
		p.session, _ = strconv.Atoi(f[3])
		p.start, _ = strconv.ParseUint(f[19], 10, 64)
		all[pid] = p
	}
	return all
}

// children are those that were started here and not waited for.
var children = struct {
	sync.Mutex
	pids map[int]bool
}{pids: make(map[int]bool)}

func starting() (done func()) {
	children.Lock()
	return children.Unlock
}

func started(pid int) { children.pids[pid] = true }

func waited(pid int) {
	children.Lock()
	defer children.Unlock()
	delete(children.pids, pid)
}

// tree is what descends from the child pid as far as can be told: by parents
// and by its session, and what was adopted since. The daemon's own children
// are known, or stay in its session, but for the shim, which has its name.
func tree(pid int) (in map[int]process) {
	children.Lock()
	defer children.Unlock()
	all := processes()
	self := all[os.Getpid()]
	in = make(map[int]process)
	for grown := true; grown; {
		grown = false
		for p, info := range all {
			if _, known := in[p]; known || p == self.pid {
				continue
			}
			_, child := in[info.ppid]
			adopted := info.ppid == self.pid && info.session != self.session && info.name != self.name && info.start >= all[pid].start && !children.pids[p]
			if p == pid || child || info.session == pid || adopted {
				in[p], grown = info, true
			}
		}
	}
	return in
}

// KillTree kills the child pid and every descendant of it once.
func KillTree(pid int) {
	for p, info := range tree(pid) {
		if !info.ended {
			syscall.Kill(p, syscall.SIGKILL) // ESRCH: it is gone
		}
	}
}

// collect waits for what descends from the child pid and became ours, and
// returns how many of its tree are there still, the child not counted.
func collect(pid int) (left int) {
	for p, info := range tree(pid) {
		if p == pid {
			continue
		}
		if got, _ := syscall.Wait4(p, nil, syscall.WNOHANG, nil); got != p && !info.ended {
			left++
		}
	}
	return left
}

// Orphans has nothing to do: see the package's comment.
func Orphans() {}

// AwaitEnd returns when the child has ended, without waiting for it in the
// sense of wait(2): its number stays taken.
func AwaitEnd(pid int) {
	for {
		if err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil); err != unix.EINTR {
			return
		}
	}
}
