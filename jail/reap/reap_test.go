// SPDX-License-Identifier: BSD-2-Clause

package reap

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// The test binary is also what is to be ended: "tree N" starts N processes of
// its kind, each in a session of its own, says their pids and its own, and
// stays; "leave N" does the same and goes.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && (os.Args[1] == "tree" || os.Args[1] == "leave") {
		grow(os.Args[1], os.Args[2])
		return
	}
	os.Exit(m.Run())
}

func grow(how, depth string) {
	var n int
	fmt.Sscan(depth, &n)
	if n > 0 {
		self, err := os.Executable()
		if err != nil {
			panic(err)
		}
		_, err = os.StartProcess(self, []string{self, "tree", fmt.Sprint(n - 1)}, &os.ProcAttr{
			Files: []*os.File{nil, os.Stdout, os.Stderr}, Sys: &syscall.SysProcAttr{Setsid: true},
		})
		if err != nil {
			panic(err)
		}
	}
	fmt.Println(os.Getpid())
	if how == "tree" {
		time.Sleep(time.Hour)
	}
}

// grower is this program by another name: Linux tells ours from others by it.
func grower(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "grower")
	if err := os.WriteFile(path, program, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// plant starts a tree and returns the child and all its pids.
func plant(t *testing.T, program, how string, depth int) (child int, pids []int) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	child, err = Start([]string{program, how, fmt.Sprint(depth)}, &syscall.ProcAttr{
		Env: os.Environ(), Files: []uintptr{0, w.Fd(), 2}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(r)
	for range depth + 1 {
		if !lines.Scan() {
			t.Fatal("a process of the tree did not start")
		}
		var pid int
		fmt.Sscan(strings.TrimSpace(lines.Text()), &pid)
		pids = append(pids, pid)
	}
	return child, pids
}

func gone(t *testing.T, pids []int) {
	t.Helper()
	for _, pid := range pids {
		// Also a zombie would still be there.
		if err := syscall.Kill(pid, 0); err != syscall.ESRCH {
			t.Errorf("process %d is there: %v", pid, err)
		}
	}
}

func become(t *testing.T) context.Context {
	t.Helper()
	if err := Become(); err != nil {
		t.Fatal(err)
	}
	if err := Become(); err != nil {
		t.Fatalf("a second time: %v", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func TestEndOfOneThatRuns(t *testing.T) {
	ctx, program := become(t), grower(t)
	child, pids := plant(t, program, "tree", 3)
	KillTree(child)
	AwaitEnd(child)
	if left := End(ctx, child); left > 0 {
		t.Errorf("%d are left", left)
	}
	if ws := Wait(child); !ws.Signaled() || ws.Signal() != syscall.SIGKILL {
		t.Errorf("status %v", ws)
	}
	gone(t, pids)
}

// The child has ended long ago by itself, and what it left are orphans.
func TestEndOfOneThatLeft(t *testing.T) {
	ctx, program := become(t), grower(t)
	child, pids := plant(t, program, "leave", 2)
	AwaitEnd(child)
	if left := End(ctx, child); left > 0 {
		t.Errorf("%d are left", left)
	}
	if ws := Wait(child); !ws.Exited() || ws.ExitStatus() != 0 {
		t.Errorf("status %v", ws)
	}
	gone(t, pids)
}

// Each ends its own and no other's.
func TestEndsSideBySide(t *testing.T) {
	ctx, program := become(t), grower(t)
	kept, keptPids := plant(t, program, "tree", 1)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			child, pids := plant(t, program, "tree", 1)
			KillTree(child)
			AwaitEnd(child)
			if left := End(ctx, child); left > 0 {
				t.Errorf("%d are left", left)
			}
			if ws := Wait(child); !ws.Signaled() {
				t.Errorf("status %v", ws)
			}
			gone(t, pids)
		})
	}
	wg.Wait()
	for _, pid := range keptPids {
		if err := syscall.Kill(pid, 0); err != nil {
			t.Errorf("process %d of another was ended: %v", pid, err)
		}
	}
	KillTree(kept)
	AwaitEnd(kept)
	End(ctx, kept)
	Wait(kept)
	gone(t, keptPids)
}

// One that is waited for in vain is told of.
func TestEndIsBounded(t *testing.T) {
	become(t)
	program := grower(t)
	child, pids := plant(t, program, "leave", 1)
	AwaitEnd(child)
	over, cancel := context.WithCancel(context.Background())
	cancel()
	End(over, child) // it may do at the first try
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if left := End(ctx, child); left > 0 {
		t.Errorf("%d are left", left)
	}
	Wait(child)
	gone(t, pids)
}
