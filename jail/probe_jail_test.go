// SPDX-License-Identifier: BSD-2-Clause

//go:build freebsdhost || fakefreebsd

package jail

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// settled waits until the container has just its first process, and no zombie.
func (n *node) settled(id, after string) {
	n.t.Helper()
	var left []string
	var zombies int
	eventually(n.t, "the end of what was left by "+after, func() bool {
		left, zombies = n.processes(id)
		return len(left) == 1 && zombies == 0
	})
}

func TestJailProbeTimesOutAndIsKilled(t *testing.T) { // cases/probe.md, probe-1
	n := newNode(t)
	s := n.spec(noReaper)
	n.start(s)
	for _, argv := range [][]string{
		{"sleep", "3600"},
		{"sh", "-c", "trap '' TERM INT HUP; echo printed; while :; do sleep 1; done"},
	} {
		code, out, took, err := n.probe(s.ID, time.Second, argv...)
		if err != nil || code != 137 || took < time.Second {
			t.Errorf("%q: %d, %v after %v", argv, code, err, took)
		}
		// Its shell may see the end of its child before its own, and say so.
		if strings.Contains(argv[len(argv)-1], "printed") && strings.TrimSuffix(out, "Killed\n") != "printed\n" {
			t.Errorf("output before the kill: %q", out)
		}
		if left, zombies := n.processes(s.ID); len(left) != 1 || zombies > 0 {
			t.Errorf("%q left %v, %d zombies", argv, left, zombies)
		}
	}
}

func TestJailProbeLeavesNothing(t *testing.T) { // cases/probe.md, probe-2
	n := newNode(t)
	s := n.spec(noReaper)
	n.start(s)
	for script, want := range map[string]int{
		"sleep 600 & sleep 600": 137,
		"sleep 600 | cat":       137,
		"(trap '' TERM; sleep 600; sleep 600) & sleep 600":           137,
		"setsid sleep 600 & setsid sleep 601 & sleep 600":            137,
		"(setsid sh -c 'setsid sleep 601 & sleep 602' &); sleep 600": 137,
		"sleep 600 & exit 0":                       0,
		"(setsid sleep 603 &) ; sleep 0.2; exit 5": 5,
		"setsid sh -c 'while :; do sleep 600 & sleep 0.05; done' & sleep 0.3; exit 6": 6,
	} {
		code, _, _, err := n.probe(s.ID, time.Second+patience/20, "sh", "-c", script)
		if err != nil || code != want {
			t.Errorf("%q: %d, %v, want %d", script, code, err, want)
		}
		if left, zombies := n.processes(s.ID); len(left) != 1 || zombies > 0 {
			t.Errorf("%q left %v, %d zombies", script, left, zombies)
		}
	}
}

func TestJailProbeBackgroundChildDoesNotDelay(t *testing.T) {
	n := newNode(t)
	s := n.spec(noReaper)
	n.start(s)
	code, out, took, err := n.probe(s.ID, patience, "sh", "-c", "echo ok; sleep 600 & exit 4")
	if err != nil || code != 4 || out != "ok\n" || took > patience/2 {
		t.Fatalf("%d %q %v after %v", code, out, err, took)
	}
}

func TestJailProbeGiantOutput(t *testing.T) { // cases/probe.md, probe-4
	n := newNode(t)
	s := n.spec(noReaper)
	n.start(s)
	w := &counter{}
	code, err := n.RunProbe(context.Background(), s.ID, []string{"sh", "-c", "dd if=/dev/zero bs=1000000 count=20 2>/dev/null; exit 1"}, w, nil)
	if err != nil || code != 1 || w.n != 20_000_000 {
		t.Fatalf("%d, %v, %d bytes", code, err, w.n)
	}
}

func TestJailProbeIsTheTask(t *testing.T) { // cases/probe.md, probe-9: environment, directory, user
	n := newNode(t)
	s := n.spec(noReaper)
	s.Cwd, s.User, s.Groups = "/made/here", "1000:1000", []string{"extra"}
	s.Env = []string{"GREETING=hello world"}
	n.start(s)
	_, out, _, err := n.probe(s.ID, patience, "sh", "-c", "pwd; id -u; id; echo $GREETING; hostname; echo e >&2")
	if err != nil || !strings.HasPrefix(out, "/made/here\n1000\n") || !strings.Contains(out, "45(extra)") ||
		!strings.HasSuffix(out, "hello world\n"+s.Hostname+"\ne\n") {
		t.Errorf("%q %v", out, err)
	}
}

func TestJailProbeCannotRun(t *testing.T) { // cases/probe.md, probe-10
	n := newNode(t)
	s := n.spec("")
	os.Remove(filepath.Join(s.Rootfs, "bin/sh"))
	os.WriteFile(filepath.Join(s.Rootfs, "noexec"), []byte("x"), 0o644)
	os.WriteFile(filepath.Join(s.Rootfs, "garbage"), []byte("\x00\x01\x02"), 0o755)
	s.Args = []string{"sleep", "1000"}
	n.start(s)
	for _, c := range []struct {
		argv []string
		want string
	}{
		{[]string{"/bin/sh", "-c", "true"}, `/bin/sh: No such file or directory`},
		{[]string{"curl", "-f"}, `'curl' not found in $PATH: No such file or directory`},
		{[]string{"/noexec"}, `/noexec: Permission denied`},
		{[]string{"/bin"}, `/bin: Permission denied`},
		{[]string{"/garbage"}, `exec`}, // FreeBSD has the shell try it, which is not there
	} {
		began := false
		var out bytes.Buffer
		code, err := n.RunProbe(context.Background(), s.ID, c.argv, &out, func() { began = true })
		if code != -1 || err == nil || !strings.Contains(err.Error(), c.want) || began || out.Len() > 0 {
			t.Errorf("%q: %d, %v, want %s; began %v, output %q", c.argv, code, err, c.want, began, out.String())
		}
	}
	if code, _, _, err := n.probe(s.ID, patience, "true"); code != 0 || err != nil {
		t.Errorf("a direct command: %d, %v", code, err)
	}
	n.settled(s.ID, "commands that cannot be run")
	if left, _ := filepath.Glob(n.dir.Container(s.ID) + "/probe-*"); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestJailProbeInEndedContainer(t *testing.T) {
	n := newNode(t)
	s := n.spec("exit 0")
	n.create(s)
	if code, _, _, err := n.probe(s.ID, time.Second, "true"); code != -1 || err == nil {
		t.Errorf("created only: %d, %v", code, err)
	}
	n.Start(context.Background(), s.ID)
	n.wait(s.ID)
	if code, _, _, err := n.probe(s.ID, time.Second, "true"); code != -1 || err == nil || !strings.Contains(err.Error(), "is not running") {
		t.Errorf("ended: %d, %v", code, err)
	}
	if _, _, _, err := n.probe(newID(), time.Second, "true"); !isNotFound(err) {
		t.Errorf("unknown: %v", err)
	}
}

// The container is deleted under its probe: that ends first, and no other
// begins.
func TestJailProbeWhileContainerEnds(t *testing.T) {
	n := newNode(t)
	s := n.spec(noReaper)
	n.start(s)
	running := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		n.RunProbe(context.Background(), s.ID, []string{"sh", "-c", "setsid sleep 600 & sleep 601"}, &bytes.Buffer{}, func() { close(running) })
	}()
	<-running
	if err := n.Delete(context.Background(), s.ID); err != nil {
		t.Fatal(err)
	}
	select {
	case <-done:
	default:
		t.Error("the probe outlived the container")
		<-done
	}
	if _, err := n.RunProbe(context.Background(), s.ID, []string{"true"}, &bytes.Buffer{}, nil); err == nil {
		t.Error("a probe ran in a deleted container")
	}
}

// A probe that is killed before its command runs.
func TestJailProbeKilledAtOnce(t *testing.T) {
	n := newNode(t)
	s := n.spec(noReaper)
	n.start(s)
	for i := range 5 {
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(i)*10*time.Millisecond)
		began := false
		code, err := n.RunProbe(ctx, s.ID, []string{"sleep", "600"}, &bytes.Buffer{}, func() { began = true })
		cancel()
		if began != (err == nil) || err == nil && code != 137 || err != nil && code != -1 {
			t.Errorf("after %d ms: %d, %v, began %v", i*10, code, err, began)
		}
	}
	n.settled(s.ID, "killed probes")
}

func TestJailProbesInParallel(t *testing.T) {
	n := newNode(t)
	s := n.spec(noReaper)
	n.start(s)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			var b bytes.Buffer
			want := fmt.Sprintf("%d\n", i)
			code, err := n.RunProbe(context.Background(), s.ID, []string{"sh", "-c", fmt.Sprintf("echo %d; (setsid sleep 600 &); sleep 0.1; exit %d", i, i)}, &b, nil)
			if err != nil || code != i || b.String() != want {
				t.Errorf("probe %d: %d, %v, %q", i, code, err, b.String())
			}
		})
	}
	wg.Wait()
	n.settled(s.ID, "probes in parallel")
}
