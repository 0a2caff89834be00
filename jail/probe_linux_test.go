// SPDX-License-Identifier: BSD-2-Clause

//go:build !fakefreebsd

package jail

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"satld/internal/slowday"
)

// processes are the container's, by name and state, from the host's view.
func (n *node) processes(id string) (names []string, zombies int) {
	n.t.Helper()
	_, running, err := n.Running(context.Background(), id)
	if err != nil || !running {
		n.t.Fatalf("container %s: %v, %v", id, running, err)
	}
	pids, err := n.Pids(context.Background(), id)
	if err != nil {
		n.t.Fatal(err)
	}
	for _, pid := range pids {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue
		}
		f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
		if f[0] == "Z" {
			zombies++
		}
		cmd, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		names = append(names, fmt.Sprintf("%d %s %q", pid, f[0], cmd))
	}
	return names, zombies
}

func TestProbeTimesOutAndIsKilled(t *testing.T) { // cases/probe.md, probe-1
	n := newNode(t)
	s := n.spec(noReaper)
	n.start(s)
	before, _ := n.processes(s.ID)
	for _, argv := range [][]string{
		{"sleep", "3600"},
		{"sh", "-c", "trap '' TERM INT HUP; echo printed; while :; do sleep 1; done"},
	} {
		code, out, took, err := n.probe(s.ID, 300*time.Millisecond, argv...)
		if err != nil || code != 137 || took < 300*time.Millisecond || took > slowday.Of(1300*time.Millisecond) {
			t.Errorf("%q: %d, %v after %v", argv, code, err, took)
		}
		if strings.Contains(argv[len(argv)-1], "printed") && out != "printed\n" {
			t.Errorf("output before the kill: %q", out)
		}
		if after, zombies := n.processes(s.ID); len(after) != len(before) || zombies > 0 {
			t.Errorf("%q left %d processes, %d zombies: %v", argv, len(after)-len(before), zombies, after)
		}
	}
}

func TestProbeLeavesNothing(t *testing.T) { // cases/probe.md, probe-2
	for _, how := range []string{"hybrid", "v2", "v1"} {
		t.Run(how, func(t *testing.T) {
			n := newNode(t)
			p := n.probes.(*nsProber)
			p.noLeaf, p.noV1 = how == "v1", how == "v2"
			s := n.spec(noReaper)
			n.start(s)
			before, _ := n.processes(s.ID)
			for _, script := range []string{
				"sleep 600 & sleep 600",
				"sleep 600 | cat",
				"(trap '' TERM; sleep 600; sleep 600) & sleep 600",
				"setsid sleep 600 & setsid sh -c 'setsid sleep 601 & sleep 602' & sleep 0.1",
				"sleep 600 & exit 0",
				"setsid sh -c 'while :; do sleep 600 & sleep 0.01; done' & sleep 0.1; exit 5",
			} {
				code, _, took, err := n.probe(s.ID, 300*time.Millisecond, "sh", "-c", script)
				if err != nil || took > slowday.Of(2*time.Second) {
					t.Errorf("%q: %d, %v after %v", script, code, err, took)
				}
				if after, zombies := n.processes(s.ID); len(after) != len(before) || zombies > 0 {
					t.Errorf("%q left %d processes, %d zombies: %v", script, len(after)-len(before), zombies, after)
				}
			}
			if left, _ := filepath.Glob("/sys/fs/cgroup/unified/satl/" + s.ID + "/probe-*"); len(left) > 0 {
				t.Errorf("cgroups of probes are left: %v", left)
			}
		})
	}
}

func TestProbeBackgroundChildDoesNotDelay(t *testing.T) {
	n := newNode(t)
	s := n.spec(noReaper)
	n.start(s)
	code, out, took, err := n.probe(s.ID, 20*time.Second, "sh", "-c", "echo ok; sleep 600 & exit 4")
	if err != nil || code != 4 || out != "ok\n" || took > slowday.Of(time.Second) {
		t.Fatalf("%d %q %v after %v", code, out, err, took)
	}
}

func TestProbeHelperKilled(t *testing.T) { // cases/probe.md, probe-3
	n := newNode(t)
	s := n.spec(noReaper)
	n.start(s)
	before, _ := n.processes(s.ID)
	running := make(chan struct{})
	done := make(chan error, 1)
	go func() {
		_, err := n.RunProbe(context.Background(), s.ID, []string{"sh", "-c", "setsid sleep 611 & sleep 612"}, &bytes.Buffer{}, func() { close(running) })
		done <- err
	}()
	<-running
	syscall.Kill(childNamed(t, "satl-init"), syscall.SIGKILL)
	select {
	case err := <-done:
		if err == nil || !strings.Contains(err.Error(), "without a report") {
			t.Errorf("error %v", err)
		}
	case <-time.After(5 * time.Second):
		t.Fatal("RunProbe did not return")
	}
	for range 100 {
		if after, _ := n.processes(s.ID); !slices.ContainsFunc(after, func(p string) bool { return strings.Contains(p, "sleep\\x006") }) {
			// Dead and left to the first process, which here never reaps: that
			// is what the helper is for.
			_ = before
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	after, _ := n.processes(s.ID)
	t.Errorf("alive after the helper's death: %v", after)
}

// childNamed finds a child of this process by its name.
func childNamed(t *testing.T, name string) int {
	t.Helper()
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, p := range stats {
		b, err := os.ReadFile(p)
		if err != nil {
			continue
		}
		var pid, ppid int
		fmt.Sscan(string(b), &pid)
		fmt.Sscan(strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))[1], &ppid)
		if ppid == os.Getpid() && bytes.Contains(b, []byte("("+name+")")) {
			return pid
		}
	}
	t.Fatalf("no child named %s", name)
	return 0
}

func TestProbeGiantOutput(t *testing.T) { // cases/probe.md, probe-4
	n := newNode(t)
	s := n.spec(noReaper)
	n.start(s)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	w := &counter{}
	code, err := n.RunProbe(context.Background(), s.ID, []string{"sh", "-c", "dd if=/dev/zero bs=1000000 count=300 2>/dev/null; exit 1"}, w, nil)
	runtime.ReadMemStats(&after)
	if err != nil || code != 1 || w.n != 300_000_000 {
		t.Fatalf("%d, %v, %d bytes", code, err, w.n)
	}
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 4<<20 {
		t.Errorf("%d bytes were allocated for it", grown)
	}
}

func TestProbeIsTheTask(t *testing.T) { // cases/probe.md, probe-9, and the spec: environment, directory, user
	n := newNode(t)
	s := n.spec(noReaper)
	s.Cwd, s.User, s.Groups = "/tmp", "1000:1000", []string{"extra"}
	s.Env = []string{"GREETING=hello world"}
	s.Ulimits = []Ulimit{{Name: "nofile", Soft: 123, Hard: 456}, {Name: "core", Soft: 0, Hard: 0}}
	s.NoNewPrivileges = true
	s.CapDrop = []string{"CHOWN"}
	s.OOMScoreAdj = 100
	n.start(s)
	if _, out, _, err := n.probe(s.ID, 10*time.Second, "sh", "-c", "pwd; id -u"); err != nil || out != "/tmp\n1000\n" {
		t.Errorf("%q %v", out, err)
	}
	script := `pwd; id; env | grep -v -e PWD -e SHLVL -e _=; grep -e ^Cap -e NoNewPrivs -e ^Groups /proc/self/status; cat /proc/self/oom_score_adj; cat /proc/self/cgroup | grep -v ^0: ; umask; hostname; ls /proc/self/fd 2>/dev/null`
	_, got, _, err := n.probe(s.ID, 10*time.Second, "busybox", "sh", "-c", script)
	if err != nil {
		t.Fatal(err)
	}
	want, err := exec.Command("runc", "--root", n.driver.stateDir(), "exec", s.ID, "busybox", "sh", "-c", script).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, want)
	}
	if got != string(want) {
		t.Errorf("the probe sees\n%s\nrunc exec sees\n%s", got, want)
	}
	// runc 1.1 of Go 1.19 gives an exec its hard limit as the soft one; the task has what was asked for.
	limits := `cat /proc/$1/limits`
	if _, out, _, err := n.probe(s.ID, 10*time.Second, "sh", "-c", limits, "", "self"); err != nil {
		t.Error(err)
	} else if _, task, _, err := n.probe(s.ID, 10*time.Second, "sh", "-c", limits, "", "1"); err != nil || out != task {
		t.Errorf("the probe's limits\n%s\nthe task's\n%s %v", out, task, err)
	} else if !regexp.MustCompile(`Max open files +123 +456`).MatchString(out) {
		t.Errorf("limits\n%s", out)
	}
	// /dev/stdout can be opened, as nginx does.
	if code, out, _, err := n.probe(s.ID, 10*time.Second, "sh", "-c", "echo x >/proc/self/fd/1 && echo y >/dev/stderr"); err != nil || code != 0 || out != "x\ny\n" {
		t.Errorf("opening /dev/stdout: %d %q %v", code, out, err)
	}
}

func TestProbeOfRootIsRuncs(t *testing.T) {
	n := newNode(t)
	s := n.spec(noReaper)
	s.CapAdd = []string{"NET_ADMIN"}
	n.start(s)
	script := `id; grep -e ^Cap -e NoNewPrivs -e ^Groups -e Seccomp: /proc/self/status; ls /proc/self/fd 2>/dev/null; ls -l /proc/self/ns | grep -o '[a-z_]*:.*'; cat /proc/self/cgroup | grep -v ^0:`
	_, got, _, err := n.probe(s.ID, 10*time.Second, "busybox", "sh", "-c", script)
	if err != nil {
		t.Fatal(err)
	}
	want, err := exec.Command("runc", "--root", n.driver.stateDir(), "exec", s.ID, "busybox", "sh", "-c", script).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, want)
	}
	if got != string(want) {
		t.Errorf("the probe sees\n%s\nrunc exec sees\n%s", got, want)
	}
}

func TestProbeCannotRun(t *testing.T) { // cases/probe.md, probe-10
	n := newNode(t)
	s := n.spec("")
	os.Remove(filepath.Join(s.Rootfs, "bin/sh"))
	os.WriteFile(filepath.Join(s.Rootfs, "noexec"), []byte("x"), 0o644)
	os.WriteFile(filepath.Join(s.Rootfs, "garbage"), []byte("\x00\x01\x02"), 0o755)
	os.WriteFile(filepath.Join(s.Rootfs, "script"), []byte("#!/no/such/interpreter\n"), 0o755)
	s.Args = []string{"sleep", "1000"}
	n.start(s)
	for _, c := range []struct {
		argv []string
		want string
	}{
		{[]string{"/bin/sh", "-c", "true"}, `exec: "/bin/sh": stat /bin/sh: no such file or directory`},
		{[]string{"curl", "-f"}, `exec: "curl": executable file not found in $PATH`},
		{[]string{"/noexec"}, `exec: "/noexec": permission denied`},
		{[]string{"/bin"}, `exec: "/bin": is a directory`},
		{[]string{"/garbage"}, `exec: "/garbage": exec format error`},
		{[]string{"/script"}, `exec: "/script": no such file or directory`},
	} {
		code, _, _, err := n.probe(s.ID, time.Second, c.argv...)
		if code != -1 || err == nil || err.Error() != c.want {
			t.Errorf("%q: %d, %v, want %s", c.argv, code, err, c.want)
		}
	}
	if code, _, _, err := n.probe(s.ID, 5*time.Second, "true"); code != 0 || err != nil {
		t.Errorf("a direct command: %d, %v", code, err)
	}
}

func TestProbeInEndedContainer(t *testing.T) {
	n := newNode(t)
	s := n.spec("exit 0")
	n.create(s)
	if code, _, _, err := n.probe(s.ID, time.Second, "true"); code != -1 || err == nil {
		t.Errorf("created only: %d, %v", code, err)
	}
	n.Start(context.Background(), s.ID)
	n.wait(s.ID)
	for range 2 {
		if code, _, _, err := n.probe(s.ID, time.Second, "true"); code != -1 || err == nil || !strings.Contains(err.Error(), "is not running") {
			t.Errorf("ended: %d, %v", code, err)
		}
	}
	if _, _, _, err := n.probe(newID(), time.Second, "true"); !isNotFound(err) {
		t.Errorf("unknown: %v", err)
	}
}

// The container dies under its probe.
func TestProbeWhileContainerEnds(t *testing.T) {
	n := newNode(t)
	s := n.spec(noReaper)
	n.start(s)
	running := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		n.RunProbe(context.Background(), s.ID, []string{"sleep", "600"}, &bytes.Buffer{}, func() { close(running) })
	}()
	<-running
	if err := n.Delete(context.Background(), s.ID); err != nil {
		t.Fatal(err)
	}
	select {
	case <-done:
	case <-time.After(5 * time.Second):
		t.Fatal("RunProbe outlived the container")
	}
}

func TestProbesInParallel(t *testing.T) {
	n := newNode(t)
	s := n.spec(noReaper)
	n.start(s)
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			var b bytes.Buffer
			want := fmt.Sprintf("%d\n", i)
			code, err := n.RunProbe(context.Background(), s.ID, []string{"echo", fmt.Sprint(i)}, &b, nil)
			if err != nil || code != 0 || b.String() != want {
				t.Errorf("probe %d: %d, %v, %q", i, code, err, b.String())
			}
		})
	}
	wg.Wait()
	// This process itself stayed where it was.
	if link, err := os.Readlink("/proc/self/root"); err != nil || link != "/" {
		t.Errorf("root %q, %v", link, err)
	}
	if _, err := os.Stat("/proc/self/cgroup"); err != nil {
		t.Error(err)
	}
}

func TestPauseAbandonsProbes(t *testing.T) { // cases/probe.md, probe-12
	n := newNode(t)
	ctx := context.Background()
	s := n.spec(`i=0; while :; do i=$((i+1)); echo $i > /tmp/i; sleep 0.01; done`)
	n.start(s)
	running := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		n.RunProbe(ctx, s.ID, []string{"sleep", "600"}, &bytes.Buffer{}, func() { close(running) })
	}()
	<-running
	if err := n.Pause(ctx, s.ID); err != nil {
		t.Fatal(err)
	}
	select {
	case <-done:
	case <-time.After(5 * time.Second):
		t.Fatal("the probe survived the pause")
	}
	if _, _, _, err := n.probe(s.ID, time.Second, "true"); err == nil || !strings.Contains(err.Error(), "paused") {
		t.Errorf("probe while paused: %v", err)
	}
	count := func() string {
		b, _ := os.ReadFile(filepath.Join(s.Rootfs, "tmp/i"))
		return string(b)
	}
	frozen := count()
	time.Sleep(100 * time.Millisecond)
	if count() != frozen {
		t.Error("it runs while paused")
	}
	if err := n.Resume(ctx, s.ID); err != nil {
		t.Fatal(err)
	}
	if code, _, _, err := n.probe(s.ID, 5*time.Second, "true"); code != 0 || err != nil {
		t.Errorf("after the resume: %d, %v", code, err)
	}
	if err := n.Pause(ctx, s.ID); err != nil { // Delete of a paused one must work
		t.Fatal(err)
	}
}
