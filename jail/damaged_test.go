// SPDX-License-Identifier: BSD-2-Clause

//go:build linux || freebsdhost

package jail

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"satld/jail/shim"
)

// What is written down of a container and makes no sense costs at most that
// container: the daemon starts, whoever waits is told, and nothing is left.
func TestDamagedRecordOfFirstProcess(t *testing.T) {
	n := newNode(t)
	ctx, cancel := context.WithTimeout(context.Background(), 3*patience)
	defer cancel()
	for _, c := range []struct {
		name, text string
		shimToo    bool // is killed
	}{{"empty", "", true}, {"zeros", "\x00\x00\x00\x00", false}, {"half", `{"Pid":1`, true}, {"of no process", "{}", false}} {
		s := n.spec("sleep 1000")
		n.start(s)
		init, _, err := n.dir.ReadInit(s.ID)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(n.file(s.ID, "init.json"), []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if c.shimToo {
			n.killShim()
		}
		n.restart()
		if _, _, err := n.Running(ctx, s.ID); !errors.Is(err, shim.ErrDamaged) {
			t.Errorf("%s: running: %v", c.name, err)
		}
		if _, err := n.Wait(ctx, s.ID); !errors.Is(err, shim.ErrDamaged) {
			t.Errorf("%s: wait: %v", c.name, err)
		}
		if err := n.Delete(ctx, s.ID); err != nil {
			t.Errorf("%s: delete: %v", c.name, err)
		}
		if ticks, err := shim.StartTicks(init.Pid); err == nil && ticks == init.Ticks {
			t.Errorf("%s: the first process %d lives", c.name, init.Pid)
		}
		if e := n.wait(s.ID); e.Code == 0 {
			t.Errorf("%s: exit after delete %+v", c.name, e)
		}
	}
}

// A container whose record is damaged while it runs can be stopped.
func TestDamagedRecordKill(t *testing.T) {
	n := newNode(t)
	s := n.spec(`trap 'exit 3' TERM; echo on; while :; do sleep 0.05; done`)
	n.start(s)
	n.says(s.ID, "on")
	if err := os.WriteFile(n.file(s.ID, "init.json"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := n.Kill(context.Background(), s.ID, int(syscall.SIGTERM)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the exit", func() bool {
		e, ok, _ := n.dir.ReadExit(s.ID)
		return ok && e.Code == 3
	})
}

// The time of the start is lost, and is that of the file.
func TestDamagedTimeOfStart(t *testing.T) {
	n := newNode(t)
	ctx := context.Background()
	s := n.spec("exec sleep 1000")
	at := n.start(s)
	path := n.file(s.ID, "started.json")
	if err := os.WriteFile(path, []byte("\x00\x00"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(path, at, at); err != nil {
		t.Fatal(err)
	}
	n.killShim()
	n.restart()
	if _, running, err := n.Running(ctx, s.ID); !running || err != nil {
		t.Errorf("running %t, %v", running, err)
	}
	if again, err := n.Start(ctx, s.ID); err != nil || again.Sub(at).Abs() > time.Second {
		t.Errorf("started at %v, want %v; %v", again, at, err)
	}
}

// How it ended is lost: it has ended, and can be deleted.
func TestDamagedExit(t *testing.T) {
	n := newNode(t)
	ctx := context.Background()
	s := n.spec("exit 3")
	n.start(s)
	n.wait(s.ID)
	if err := os.WriteFile(n.file(s.ID, "exit.json"), []byte("\x00\x00"), 0o600); err != nil {
		t.Fatal(err)
	}
	n.restart()
	if _, running, err := n.Running(ctx, s.ID); running || err != nil {
		t.Errorf("running %t, %v", running, err)
	}
	if _, err := n.Wait(ctx, s.ID); !errors.Is(err, shim.ErrDamaged) {
		t.Errorf("wait: %v", err)
	}
	if err := n.Delete(ctx, s.ID); err != nil {
		t.Fatal(err)
	}
	if e := n.wait(s.ID); e.Code != -1 {
		t.Errorf("exit after delete %+v", e)
	}
}

// The runtime's own record of a container is damaged.
func TestDamagedRuntimeState(t *testing.T) {
	n := newNode(t)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	s := n.spec("sleep 1000")
	n.start(s)
	for _, name := range []string{filepath.Join(n.driver.stateDir(), s.ID, "state.json"), n.file(s.ID, "init.json")} {
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	n.restart()
	if err := n.Delete(ctx, s.ID); err != nil {
		t.Error(err)
	}
}
