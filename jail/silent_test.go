// SPDX-License-Identifier: BSD-2-Clause

//go:build linux || freebsdhost

package jail

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"satld/jail/shim"
)

// impatient opens the node's Manager anew, with a shim that may not be silent for long.
func (n *node) impatient() {
	n.t.Helper()
	if n.Manager != nil {
		if err := n.Close(); err != nil {
			n.t.Fatal(err)
		}
	}
	cfg := testConfig(n.state)
	cfg.ShimPatience = time.Second
	m, err := Open(context.Background(), cfg)
	if err != nil {
		n.t.Fatalf("open: %v", err)
	}
	n.Manager = m
}

// stopShim stops the shim, which may answer until the signal has reached it.
func (n *node) stopShim() (pid int) {
	n.t.Helper()
	pid, _, err := n.shim.Hello(context.Background())
	if err != nil {
		n.t.Fatal(err)
	}
	syscall.Kill(pid, syscall.SIGSTOP)
	n.t.Cleanup(func() { syscall.Kill(pid, syscall.SIGCONT) })
	eventually(n.t, "silence", func() bool {
		_, _, err := n.shim.Hello(context.Background())
		return errors.Is(err, shim.ErrSilent)
	})
	return pid
}

// A shim that is stopped keeps no call waiting and no daemon from starting;
// when it goes on, all is as before, and nothing that was given up is done.
func TestShimStopped(t *testing.T) {
	needRuntime(t)
	n := &node{t: t, state: t.TempDir()}
	n.impatient()
	t.Cleanup(n.finish)
	ctx, cancel := context.WithTimeout(context.Background(), 3*patience)
	defer cancel()
	ends, stays := n.spec("exec sleep 1000"), n.spec(`trap 'exit 4' TERM; echo on; while :; do sleep 0.05; done`)
	n.start(ends)
	n.start(stays)
	n.says(stays.ID, "on")
	pid := n.stopShim()

	given := n.spec("exec sleep 1000")
	if _, err := n.Create(ctx, given); !errors.Is(err, shim.ErrSilent) {
		t.Fatalf("create: %v", err)
	}
	if err := n.Delete(ctx, ends.ID); !errors.Is(err, shim.ErrSilent) {
		t.Errorf("delete: %v", err)
	}
	if err := n.Logs(ctx, stays.ID, LogQuery{Follow: true}, func(LogLine) error { return nil }); !errors.Is(err, shim.ErrSilent) {
		t.Errorf("follow the log: %v", err)
	}
	n.impatient() // another daemon
	if why, _ := n.shim.Away(); !errors.Is(why, shim.ErrSilent) {
		t.Errorf("a daemon that starts does not see it: %v", why)
	}
	if _, running, err := n.Running(ctx, stays.ID); !running || err != nil {
		t.Errorf("running %t, %v", running, err)
	}
	// Whose end nobody writes down is not waited for for ever.
	init, _, err := n.dir.ReadInit(ends.ID)
	if err == nil {
		err = signalInit(init, 9)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.Wait(ctx, ends.ID); err == nil || !strings.Contains(err.Error(), "nobody saw how") {
		t.Errorf("wait for what has ended: %v", err)
	}

	syscall.Kill(pid, syscall.SIGCONT)
	eventually(t, "an answer", func() bool { why, _ := n.shim.Away(); return why == nil })
	if e := n.wait(ends.ID); e.Code != 137 {
		t.Errorf("exit %+v", e)
	}
	if err := n.Kill(ctx, stays.ID, int(syscall.SIGTERM)); err != nil {
		t.Error(err)
	}
	if e := n.wait(stays.ID); e.Code != 4 {
		t.Errorf("exit %+v", e)
	}
	if _, held, err := n.shim.Hello(ctx); err != nil || held != 2 {
		t.Errorf("the shim holds %d containers, want two, and not the one that was given up; %v", held, err)
	}
	n.start(given)
	if now, _, err := n.shim.Hello(ctx); err != nil || now != pid {
		t.Errorf("shim %d, want the same %d; %v", now, pid, err)
	}
}

// A shim that dies while it is stopped is replaced like any other.
func TestStoppedShimKilled(t *testing.T) {
	needRuntime(t)
	n := &node{t: t, state: t.TempDir()}
	n.impatient()
	t.Cleanup(n.finish)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	pid := n.stopShim()
	s := n.spec("exec sleep 1000")
	if _, err := n.Create(ctx, s); !errors.Is(err, shim.ErrSilent) {
		t.Errorf("create: %v", err)
	}
	syscall.Kill(pid, syscall.SIGKILL)
	eventually(t, "another shim", func() bool { now, _, err := n.shim.Hello(ctx); return err == nil && now != pid })
	eventually(t, "a create", func() bool { _, err := n.Create(ctx, s); return err == nil })
}
