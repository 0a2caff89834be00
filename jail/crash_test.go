// SPDX-License-Identifier: BSD-2-Clause

//go:build linux || freebsdhost

package jail

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"satld/jail/shim"
)

// daemonOrder is what testDaemon does before it stands still.
type daemonOrder struct {
	State, Init string
	Spec        Spec
	Start       bool
	Probe       []string // run this and say "ready" when it runs
}

// testDaemon is a daemon to be killed: it says "ready" and waits for that.
func testDaemon(args []string) {
	var o daemonOrder
	if err := json.Unmarshal([]byte(args[0]), &o); err != nil {
		panic(err)
	}
	builtInit = o.Init
	ctx := context.Background()
	m, err := Open(ctx, testConfig(o.State))
	if err != nil {
		panic(err)
	}
	if o.Spec.ID != "" {
		if _, err := m.Create(ctx, o.Spec); err != nil {
			panic(err)
		}
	}
	if o.Start {
		if _, err := m.Start(ctx, o.Spec.ID); err != nil {
			panic(err)
		}
	}
	if len(o.Probe) > 0 {
		go m.RunProbe(ctx, o.Spec.ID, o.Probe, &bytes.Buffer{}, func() { fmt.Println("ready") })
	} else {
		fmt.Println("ready")
	}
	select {}
}

// daemon runs testDaemon until it is ready.
func daemon(t *testing.T, o daemonOrder) *exec.Cmd {
	t.Helper()
	o.Init = builtInit
	b, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "test-daemon", string(b))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "ready\n" {
		cmd.Process.Kill()
		cmd.Wait()
		t.Fatalf("the daemon said %q, %v", line, err)
	}
	return cmd
}

func kill9(cmd *exec.Cmd) {
	cmd.Process.Kill()
	cmd.Wait()
}

// counting prints 1 to n as fast as it can, on both streams by turns.
func counting(n int) string {
	return fmt.Sprintf(`i=0; while [ $i -lt %d ]; do i=$((i+1)); echo $i; i=$((i+1)); echo $i >&2; done; exit 42`, n)
}

// checkCount checks that 1 to n came, each once, odd ones on stdout, in order.
func checkCount(t *testing.T, n int, stdout, stderr string) {
	t.Helper()
	for first, text := range []string{stdout, stderr} {
		want := first + 1
		for line := range strings.Lines(text) {
			if line != fmt.Sprintf("%d\n", want) {
				t.Fatalf("stream %d: got %q, want %d", first+1, line, want)
			}
			want += 2
		}
		if want < n {
			t.Fatalf("stream %d ends before %d", first+1, want)
		}
	}
}

// checkRising checks that no line came twice, or before an earlier one.
func checkRising(t *testing.T, text string) {
	t.Helper()
	last := 0
	for line := range strings.Lines(text) {
		var now int
		if _, err := fmt.Sscanf(line, "%d\n", &now); err != nil || now <= last {
			t.Fatalf("%q after %d", line, last)
		}
		last = now
	}
}

// many is enough lines to be killed in between.
var many = map[bool]int{false: 20000, true: 300}[runtime.GOOS == "freebsd"]

// A daemon killed while a container prints, and again after it has ended.
func TestDaemonKilled(t *testing.T) {
	needRuntime(t)
	n := &node{t: t, state: t.TempDir()}
	s := n.spec(counting(many))
	d := daemon(t, daemonOrder{State: n.state, Spec: s, Start: true})
	kill9(d)
	n.open()
	t.Cleanup(n.finish)
	pid, running, err := n.Running(context.Background(), s.ID)
	if err != nil {
		t.Fatal(err)
	}
	if !running {
		t.Log("it ended before it was looked at: slow machine")
	} else if init, _, _ := n.dir.ReadInit(s.ID); init.Pid != pid {
		t.Errorf("pid %d, was %d", pid, init.Pid)
	}
	if e := n.wait(s.ID); e.Code != 42 {
		t.Errorf("exit %+v, want 42", e)
	}
	out, errs := n.output(s.ID)
	checkCount(t, many, out, errs)
}

func TestExitWhileNoDaemon(t *testing.T) {
	needRuntime(t)
	n := &node{t: t, state: t.TempDir()}
	s := n.spec(`read x; echo last words; exit 9`)
	s.OpenStdin, s.StdinOnce = true, true
	d := daemon(t, daemonOrder{State: n.state, Spec: s, Start: true})
	kill9(d)
	// Let it end while nobody but the shim is there.
	f, err := os.OpenFile(filepath.Join(n.state, "jail", "containers", s.ID, "stdin"), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	f.WriteString("go\n")
	f.Close()
	for range 5000 {
		if _, err := os.Stat(filepath.Join(n.state, "jail", "containers", s.ID, "exit.json")); err == nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	n.open()
	t.Cleanup(n.finish)
	if e := n.wait(s.ID); e.Code != 9 {
		t.Errorf("exit %+v, want 9", e)
	}
	if out, _ := n.output(s.ID); out != "last words\n" {
		t.Errorf("output %q", out)
	}
}

// killShim kills the node's shim and waits for the next one.
func (n *node) killShim() {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	pid, _, err := n.shim.Hello(ctx)
	if err != nil {
		n.t.Fatal(err)
	}
	syscall.Kill(pid, syscall.SIGKILL)
	for ctx.Err() == nil {
		if now, _, err := n.shim.Hello(ctx); err == nil && now != pid {
			return
		}
		time.Sleep(2 * time.Millisecond)
	}
	n.t.Fatal("no new shim came")
}

// The shim killed again and again while a container prints: every line comes
// once, and the exit status is kept where the kernel tells it. FreeBSD has
// nothing that moves bytes from a pipe to a file in one step, so that what a
// killed shim had read and not written is lost there.
func TestShimKilled(t *testing.T) {
	n := newNode(t)
	s := n.spec(`i=0; until [ -e /tmp/stop ]; do i=$((i+1)); echo $i; i=$((i+1)); echo $i >&2; done; exit 42`)
	n.start(s)
	follow := make(chan int, 1)
	go func() {
		lines := 0
		n.Logs(context.Background(), s.ID, LogQuery{Tail: -1, Follow: true}, func(LogLine) error { lines++; return nil })
		follow <- lines
	}()
	const kills = 5
	for range kills {
		n.killShim()
		time.Sleep(20 * time.Millisecond)
	}
	if err := os.WriteFile(filepath.Join(s.Rootfs, "tmp/stop"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	e := n.wait(s.ID)
	t.Logf("%d shims killed, exit %+v", kills, e)
	if e.Code != 42 && (e.Code != -1 || runtime.GOOS == "freebsd") {
		t.Errorf("exit %+v, want 42, or -1 on an older Linux", e)
	}
	out, errs := n.output(s.ID)
	printed := strings.Count(out+errs, "\n")
	if printed == 0 {
		t.Error("no output at all")
	}
	if runtime.GOOS == "freebsd" {
		checkRising(t, out)
		checkRising(t, errs)
	} else {
		checkCount(t, printed, out, errs)
	}
	select {
	case lines := <-follow:
		if lines != printed {
			t.Errorf("a follower across the kills saw %d lines of %d", lines, printed)
		}
	case <-time.After(patience):
		t.Error("a follower across the kills does not end")
	}
}

// Both dead: the container lives on and is found again.
func TestBothKilled(t *testing.T) {
	needRuntime(t)
	n := &node{t: t, state: t.TempDir()}
	s := n.spec(`trap 'echo bye; exit 3' TERM; echo hi; while :; do sleep 0.05; done`)
	d := daemon(t, daemonOrder{State: n.state, Spec: s, Start: true})
	pid, _, err := shim.NewClient(shim.Dir(n.state+"/jail"), 0).Hello(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	kill9(d)
	syscall.Kill(pid, syscall.SIGKILL)
	n.open()
	t.Cleanup(n.finish)
	if err := n.Kill(context.Background(), s.ID, 15); err != nil {
		t.Fatal(err)
	}
	if e := n.wait(s.ID); e.Code != 3 && (e.Code != -1 || runtime.GOOS == "freebsd") {
		t.Errorf("exit %+v", e)
	}
	if out, _ := n.output(s.ID); out != "hi\nbye\n" {
		t.Errorf("output %q", out)
	}
}

// A daemon that dies takes its probes with it.
func TestDaemonKilledDuringProbe(t *testing.T) {
	needRuntime(t)
	n := &node{t: t, state: t.TempDir()}
	s := n.spec(noReaper)
	probe := []string{"sh", "-c", "setsid sleep 600 & sleep 600"}
	if onJails { // the command itself dies; what it started is the jail's until that goes
		probe = []string{"sleep", "600"}
	}
	d := daemon(t, daemonOrder{State: n.state, Spec: s, Start: true, Probe: probe})
	kill9(d)
	n.open()
	t.Cleanup(n.finish)
	var left []string
	for range 200 {
		var zombies int
		if left, zombies = n.processes(s.ID); len(left) == 1 && zombies == 0 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("processes of the probe are left: %v", left)
}

// What a crash between any two steps leaves is removed by the next create.
func TestLeftoverOfSameID(t *testing.T) {
	needRuntime(t)
	n := &node{t: t, state: t.TempDir()}
	s := n.spec(`sleep 1000`)
	d := daemon(t, daemonOrder{State: n.state, Spec: s}) // created only
	kill9(d)
	n.open()
	t.Cleanup(n.finish)
	ctx := context.Background()
	if ids, err := n.List(ctx); err != nil || !slices.Contains(ids, s.ID) {
		t.Fatalf("list %v, %v", ids, err)
	}
	old, _, _ := n.dir.ReadInit(s.ID)
	s.Args = []string{"sh", "-c", "echo second"}
	n.start(s)
	if now, _, _ := n.dir.ReadInit(s.ID); now.Pid == old.Pid {
		t.Error("still the same process")
	}
	n.wait(s.ID)
	if out, _ := n.output(s.ID); out != "second\n" {
		t.Errorf("output %q", out)
	}
	if ticks, err := shim.StartTicks(old.Pid); err == nil && ticks == old.Ticks {
		t.Errorf("process %d of the leftover lives", old.Pid)
	}
	// The runtime's state without a bundle, and a bundle without state.
	if err := os.RemoveAll(n.dir.Container(s.ID)); err != nil {
		t.Fatal(err)
	}
	n.shim.Forget(ctx, s.ID)
	n.start(s)
	n.wait(s.ID)
	os.RemoveAll(filepath.Join(n.driver.stateDir(), s.ID))
	if err := n.Delete(ctx, s.ID); err != nil {
		t.Error(err)
	}
	if err := n.Delete(ctx, s.ID); err != nil {
		t.Errorf("second delete: %v", err)
	}
	if e := n.wait(s.ID); e.Code != 0 {
		t.Errorf("exit after delete %+v", e)
	}
	if ids, _ := n.List(ctx); len(ids) > 0 {
		t.Errorf("listed after delete: %v", ids)
	}
}

// The shim killed in the middle of a create: the create fails or does not, and
// nothing of it is left either way.
func TestShimKilledDuringCreate(t *testing.T) {
	n := newNode(t)
	ctx, cancel := context.WithTimeout(context.Background(), 3*patience)
	defer cancel()
	failed, tries := 0, map[bool]int{false: 8, true: 3}[runtime.GOOS == "freebsd"]
	for i := range tries {
		s := n.spec("sleep 1000")
		pid, _, err := n.shim.Hello(ctx)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() {
			_, err := n.Create(ctx, s)
			done <- err
		}()
		time.Sleep(time.Duration(i) * 6 * time.Millisecond)
		syscall.Kill(pid, syscall.SIGKILL)
		if err := <-done; err != nil {
			failed++
			if !errors.Is(err, ErrUnmade) {
				t.Errorf("create: %v, which does not say that it can be tried again", err)
			}
		}
		if err := n.Delete(ctx, s.ID); err != nil {
			t.Errorf("delete: %v", err)
		}
		for n.ensureShim(ctx) != nil && ctx.Err() == nil {
		}
	}
	t.Logf("%d of %d creates failed", failed, tries)
	if onJails {
		for _, id := range n.ids {
			if left, _ := n.processes(id); len(left) > 0 {
				t.Errorf("%v are left in jail %s", left, id)
			}
		}
		return
	}
	// What runc makes waits as "runc init"; its command line has our state directory nowhere.
	procs, _ := filepath.Glob("/proc/[0-9]*/cgroup")
	for _, p := range procs {
		b, _ := os.ReadFile(p)
		for _, id := range n.ids {
			if st, _ := os.ReadFile(filepath.Dir(p) + "/stat"); strings.Contains(string(b), id) && !strings.Contains(string(st), ") Z ") {
				t.Errorf("%s is left in the cgroup of %s: %s", p, id, st)
			}
		}
	}
}
