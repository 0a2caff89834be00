// SPDX-License-Identifier: BSD-2-Clause

//go:build freebsdhost || fakefreebsd

package jail

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/containerd/errdefs"

	"satld/jail/shim"
)

// tool runs one of the host's commands as the Manager does.
func (n *node) tool(argv ...string) string {
	n.t.Helper()
	out, err := n.jails().tool(context.Background(), argv...)
	if err != nil {
		n.t.Fatal(err)
	}
	return string(out)
}

// mounted lists what is mounted below a container's root.
func (n *node) mounted(s Spec) []string {
	n.t.Helper()
	return pointsBelow(parseMounts([]byte(n.tool("mount", "-p"))), s.Rootfs)
}

// jailed tells whether there is a jail of that name, alive or dying.
func (n *node) jailed(name string) (there, dying bool) {
	n.t.Helper()
	all, err := n.jails().tool.prisons(context.Background())
	if err != nil {
		n.t.Fatal(err)
	}
	p, ok := find(all, name)
	return ok, p.dying
}

func (n *node) remove(id string) {
	n.t.Helper()
	if err := n.Delete(context.Background(), id); err != nil {
		n.t.Fatalf("delete %s: %v", id, err)
	}
}

func TestJailIsAsAsked(t *testing.T) {
	n := newNode(t)
	src := t.TempDir()
	os.WriteFile(filepath.Join(src, "inside"), nil, 0o644)
	os.WriteFile(filepath.Join(src, "hosts"), []byte("10.0.0.1 web\n"), 0o644)
	s := n.spec("cat /etc/hosts; ls /bound /made; touch /bound/new 2>/dev/null || echo kept; touch /made/new && ls /made; hostname; pwd")
	s.Cwd = "/a/b"
	s.Mounts = []Mount{
		{Type: "bind", Source: filepath.Join(src, "hosts"), Target: "/etc/hosts"},
		{Type: "bind", Source: src, Target: "/bound", ReadOnly: true},
		{Type: "tmpfs", Target: "/made", Options: []string{"size=1m"}},
	}
	n.start(s)
	n.wait(s.ID)
	out, errs := n.output(s.ID)
	if want := "10.0.0.1 web\n/bound:\nhosts\ninside\n\n/made:\nkept\nnew\n" + s.Hostname + "\n/a/b\n"; out != want {
		t.Errorf("got\n%s%s\nwant\n%s", out, errs, want)
	}
	n.remove(s.ID)
	n.gone(s.ID)
	if left := n.mounted(s); len(left) > 0 {
		t.Errorf("mounted after its end: %v", left)
	}
	if _, err := os.Stat(filepath.Join(src, "new")); err == nil {
		t.Error("a read-only mount was written to")
	}
}

func TestJailReadOnlyRoot(t *testing.T) {
	n := newNode(t)
	s := n.spec("touch /x 2>/dev/null || echo kept; touch /tmp/x && echo made; exec sleep 1000")
	s.ReadOnly = true
	s.Mounts = []Mount{{Type: "tmpfs", Target: "/tmp"}}
	n.start(s)
	n.says(s.ID, "made")
	if out, _ := n.lines2(s.ID); out != "kept\nmade\n" {
		t.Errorf("%q", out)
	}
	if code, _, _, err := n.probe(s.ID, patience, "true"); code != 0 || err != nil {
		t.Errorf("probe: %d, %v", code, err)
	}
	n.remove(s.ID)
	n.gone(s.ID)
}

// lines2 is the log of a container that runs, as text of each stream.
func (n *node) lines2(id string) (stdout, stderr string) {
	n.t.Helper()
	var out [2]strings.Builder
	err := n.Logs(context.Background(), id, LogQuery{}, func(l LogLine) error {
		out[map[string]int{"stdout": 0, "stderr": 1}[l.Stream]].Write(l.Line)
		return nil
	})
	if err != nil {
		n.t.Fatal(err)
	}
	return out[0].String(), out[1].String()
}

func TestJailCreateRefuses(t *testing.T) {
	n := newNode(t)
	ctx := context.Background()
	for _, c := range []struct {
		change func(*Spec)
		want   string
		is     func(error) bool
	}{
		{func(s *Spec) { s.Args = []string{"/no/such"} }, `/no/such: No such file or directory`, startFailed(127)},
		{func(s *Spec) { s.Args = []string{"nosuch"} }, `'nosuch' not found in $PATH: No such file or directory`, startFailed(127)},
		{func(s *Spec) { s.Args = []string{"/etc/passwd"} }, `/etc/passwd: Permission denied`, startFailed(126)},
		{func(s *Spec) { s.Args, s.TTY = []string{"nosuch"}, true }, `'nosuch' not found`, startFailed(127)},
		{func(s *Spec) { s.Mounts = []Mount{{Type: "bind", Source: "/nowhere/at/all", Target: "/x"}} }, "mounting ", startFailed(128)},
		{func(s *Spec) { s.OS = "linux" }, "Linuxulator is not loaded", errdefs.IsNotImplemented},
		{func(s *Spec) { s.JailParams = map[string]string{"vnet": "new"} }, "satl.jail.vnet", errdefs.IsInvalidArgument},
	} {
		s := n.spec("true")
		c.change(&s)
		if s.OS == "linux" && n.jails().tool.runsLinux(ctx) == nil {
			continue // it would be run
		}
		_, err := n.Create(ctx, s)
		if err == nil || !strings.Contains(err.Error(), c.want) || !c.is(err) {
			t.Errorf("want %q, got %v", c.want, err)
		} else if strings.Contains(err.Error(), "level") || strings.Contains(err.Error(), "Error:") {
			t.Errorf("noise: %v", err)
		}
		n.gone(s.ID)
		if left := n.mounted(s); len(left) > 0 {
			t.Errorf("after %q are mounted: %v", c.want, left)
		}
	}
	if ids, err := n.List(ctx); err != nil || len(ids) > 0 {
		t.Errorf("left after refusals: %v, %v", ids, err)
	}
}

func TestJailDeleteKillsAll(t *testing.T) { // cases/jail.md, jail-4
	n := newNode(t)
	ctx := context.Background()
	s := n.spec(`trap '' TERM; (setsid sleep 1000 &); echo deaf; while :; do sleep 1; done`)
	n.start(s)
	n.says(s.ID, "deaf")
	if err := n.Kill(ctx, s.ID, 15); err != nil {
		t.Fatal(err)
	}
	pids, err := n.Pids(ctx, s.ID)
	if err != nil || len(pids) < 2 {
		t.Fatalf("%v, %v", pids, err)
	}
	n.remove(s.ID)
	for _, pid := range pids {
		if _, err := shim.StartTicks(pid); err == nil {
			t.Errorf("process %d lives", pid)
		}
	}
	if there, dying := n.jailed(s.ID); there && !dying {
		t.Error("the jail lives")
	}
	if left := n.mounted(s); len(left) > 0 {
		t.Errorf("mounted: %v", left)
	}
	if e := n.wait(s.ID); e.Code != 137 {
		t.Errorf("%+v", e)
	}
	if err := n.Kill(ctx, s.ID, 9); err != nil {
		t.Errorf("kill after the end: %v", err)
	}
	n.remove(s.ID) // and again
}

// A process that outlives the first one holds the output and the jail: it is
// ended at once, as it would be in a PID namespace, and not when somebody
// deletes the container.
func TestJailEndsWithItsFirstProcess(t *testing.T) { // cases/jail.md, jail-4
	n := newNode(t)
	s := n.spec(`(setsid sh -c 'trap "" TERM HUP; while :; do sleep 1; done' &); echo gone; exit 3`)
	n.start(s)
	if e := n.wait(s.ID); e.Code != 3 {
		t.Errorf("%+v", e)
	}
	if left, _ := n.processes(s.ID); len(left) > 0 {
		t.Errorf("alive after the first process: %v", left)
	}
	if out, _ := n.output(s.ID); out != "gone\n" {
		t.Errorf("output %q", out)
	}
	if log, _ := os.ReadFile(n.dir.ShimLog()); strings.Contains(string(log), "held open") {
		t.Errorf("the output was held open:\n%s", log)
	}
}

// A name that a jail has is not used, whoever's it is, and a jail that is not
// ours stays.
func TestJailNameIsTaken(t *testing.T) {
	n := newNode(t)
	s := n.spec("sleep 1000")
	n.foreignJail(s.ID)
	if _, err := n.Create(context.Background(), s); !errdefs.IsConflict(err) || !strings.Contains(err.Error(), "still there, alive") {
		t.Errorf("%v", err)
	}
	if there, dying := n.jailed(s.ID); !there || dying {
		t.Error("the other one's jail is gone")
	}
	n.removeForeign(s.ID)
}

// What a crash leaves between jail_set and the writing of ocijail's state, and
// mounts of a container that nobody knows: gone after the next start. What
// belongs to others is not.
func TestJailStraysAreRemoved(t *testing.T) {
	n := newNode(t)
	s := n.spec("sleep 1000") // never created: its root is only a place for things
	stray, foreign := newID(), "satltest"+newID()[:8]
	n.strayJail(stray, s.Rootfs)
	n.foreignJail(foreign)
	dev := filepath.Join(s.Rootfs, "dev")
	n.tool("mount", "-t", "tmpfs", "tmpfs", dev)
	os.Mkdir(filepath.Join(dev, "fd"), 0o755)
	n.tool("mount", "-t", "tmpfs", "tmpfs", filepath.Join(dev, "fd"))
	other := filepath.Join(n.state, "containers", s.ID, "cache") // not in a root
	os.Mkdir(other, 0o755)
	n.tool("mount", "-t", "tmpfs", "tmpfs", other)
	n.restart()
	eventually(t, "the end of the stray", func() bool { there, _ := n.jailed(stray); return !there })
	if left := n.mounted(s); len(left) > 0 {
		t.Errorf("still mounted: %v", left)
	}
	if there, dying := n.jailed(foreign); !there || dying {
		t.Error("a jail of somebody else was removed")
	}
	if !strings.Contains(n.tool("mount", "-p"), other) {
		t.Error("a mount outside a root was undone")
	}
	n.tool("umount", other)
	n.removeForeign(foreign)
}

// A bundle without ocijail's state: the jail goes, and the mounts too.
func TestJailWithoutState(t *testing.T) {
	n := newNode(t)
	s := n.spec("sleep 1000")
	n.start(s)
	if err := os.RemoveAll(filepath.Join(n.driver.stateDir(), s.ID)); err != nil {
		t.Fatal(err)
	}
	n.remove(s.ID)
	if there, dying := n.jailed(s.ID); there && !dying {
		t.Error("the jail lives")
	}
	n.gone(s.ID)
	if left := n.mounted(s); len(left) > 0 {
		t.Errorf("still mounted: %v", left)
	}
}

// Somebody on the host is in a mount of a task: what is busy stays, with what
// it shows, is tried again, and goes when he does (cases/jail.md, jail-3).
func TestJailBusyMount(t *testing.T) {
	n := newNode(t)
	data := t.TempDir()
	if err := os.WriteFile(filepath.Join(data, "precious"), []byte("kept"), 0o644); err != nil {
		t.Fatal(err)
	}
	s := n.spec("sleep 1000")
	n.start(s)
	extra := filepath.Join(s.Rootfs, "extra")
	os.Mkdir(extra, 0o755)
	n.tool("mount", "-t", "nullfs", data, extra)
	holder, err := os.Open(filepath.Join(extra, "precious"))
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Close()
	n.remove(s.ID) // no process is left, so that it returns
	if err := n.Forget(context.Background(), s.ID); err != nil {
		t.Fatal(err)
	}
	if left, err := n.Lingers(context.Background(), s.ID); !left || err != nil {
		t.Errorf("lingers %v, %v", left, err)
	}
	if got := n.mounted(s); !slices.Equal(got, []string{extra}) {
		t.Errorf("mounted: %v", got)
	}
	if _, err := n.jails().sweepOne(context.Background(), s.ID); err == nil || !strings.Contains(err.Error(), "still mounted: "+extra) {
		t.Errorf("the error does not name the mount: %v", err)
	}
	holder.Close()
	n.gone(s.ID)
	if got := n.mounted(s); len(got) > 0 {
		t.Errorf("mounted: %v", got)
	}
	if b, err := os.ReadFile(filepath.Join(data, "precious")); string(b) != "kept" {
		t.Errorf("data was lost: %q, %v", b, err)
	}
}

// A run that follows another with the same root: taking the first away leaves
// the second alone.
func TestJailNextRunKeepsItsMounts(t *testing.T) {
	n := newNode(t)
	s := n.spec("exit 0")
	n.start(s)
	n.wait(s.ID)
	next := s
	next.ID, next.Args = s.ID+"-2", []string{"/bin/sh", "-c", "sleep 1000"}
	n.ids = append(n.ids, next.ID)
	n.remove(s.ID)
	n.start(next)
	before := n.mounted(next)
	if len(before) < 2 {
		t.Fatalf("mounted: %v", before)
	}
	n.remove(s.ID)
	n.gone(s.ID)
	if got := n.mounted(next); !slices.Equal(got, before) {
		t.Errorf("mounted %v, before %v", got, before)
	}
	if code, _, _, err := n.probe(next.ID, patience, "true"); code != 0 || err != nil {
		t.Errorf("probe: %d, %v", code, err)
	}
}

// The jail is removed with its bundle forgotten, by a daemon that starts.
func TestJailRecordWithoutContainer(t *testing.T) {
	n := newNode(t)
	s := n.spec("sleep 1000")
	n.start(s)
	init, _, err := n.dir.ReadInit(s.ID)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(n.dir.Container(s.ID)); err != nil {
		t.Fatal(err)
	}
	n.restart()
	n.gone(s.ID)
	if _, err := shim.StartTicks(init.Pid); err == nil {
		t.Error("its process lives")
	}
}

// A pid that is another process's by now is not taken for the task: it neither
// makes it run, nor is it killed.
func TestJailRecycledPid(t *testing.T) {
	n := newNode(t)
	ctx := context.Background()
	s := n.spec("sleep 1000")
	n.start(s)
	stranger := exec.Command("sleep", "1000")
	if err := stranger.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		stranger.Process.Kill()
		stranger.Wait()
	}()
	init, _, err := n.dir.ReadInit(s.ID)
	if err != nil {
		t.Fatal(err)
	}
	init.Pid = stranger.Process.Pid
	b, err := json.Marshal(init)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(n.file(s.ID, "init.json"), b, 0o600); err != nil {
		t.Fatal(err)
	}
	// ocijail believes it too, and its delete would kill.
	path := filepath.Join(n.driver.stateDir(), s.ID, "state.json")
	var state map[string]any
	if b, err = os.ReadFile(path); err == nil {
		err = json.Unmarshal(b, &state)
	}
	if err != nil {
		t.Fatal(err)
	}
	state["pid"] = init.Pid
	if b, err = json.Marshal(state); err == nil {
		err = os.WriteFile(path, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if pid, running, err := n.Running(ctx, s.ID); running || err != nil {
		t.Errorf("pid %d, running %v, %v", pid, running, err)
	}
	if err := n.Kill(ctx, s.ID, 9); err != nil {
		t.Error(err)
	}
	n.remove(s.ID)
	n.gone(s.ID)
	if left := n.mounted(s); len(left) > 0 {
		t.Errorf("mounted: %v", left)
	}
	if _, err := shim.StartTicks(stranger.Process.Pid); err != nil {
		t.Errorf("the stranger was killed: %v", err)
	}
}

// A create that was killed itself leaves a process outside of the jail, which
// waits for it. It is found by its pid file, its name and its age, and nobody
// else is taken for it.
func TestJailUnheldProcess(t *testing.T) {
	n := newNode(t)
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(sleep)
	if err != nil {
		t.Fatal(err)
	}
	for name, killed := range map[string]bool{filepath.Base(n.cfg.RuntimePath): true, "ocijailer": false} {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, program, 0o755); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(path, "1000")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		eventually(t, "its name", func() bool { return shim.Comm(cmd.Process.Pid) == name })
		id := newID()
		if err := os.Mkdir(n.dir.Container(id), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(n.file(id, pidFile), []byte(strconv.Itoa(cmd.Process.Pid)), 0o600); err != nil {
			t.Fatal(err)
		}
		n.ids = append(n.ids, id)
		n.remove(id)
		if killed {
			<-ended
			continue
		}
		if _, err := shim.StartTicks(cmd.Process.Pid); err != nil {
			t.Errorf("%s was killed: %v", name, err)
		}
		cmd.Process.Kill()
		<-ended
	}
}

// A record that is damaged, as by a power cut, costs no jail: those that run go
// on, and each can be taken away.
func TestDamagedJailRecord(t *testing.T) {
	n := newNode(t)
	damaged, whole := n.spec("exec sleep 1000"), n.spec("exec sleep 1000")
	n.start(damaged)
	n.start(whole)
	if err := os.WriteFile(n.jails().records.file(damaged.ID), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	// Of a jail that its machine took along before ocijail knew of it.
	if err := os.WriteFile(n.jails().records.file("lost"), []byte(`{"Root`), 0o600); err != nil {
		t.Fatal(err)
	}
	n.restart()
	for _, s := range []Spec{damaged, whole} {
		if _, running, err := n.Running(context.Background(), s.ID); !running || err != nil {
			t.Errorf("running %t, %v", running, err)
		}
	}
	if rec, ok, err := n.jails().records.read(damaged.ID); !ok || err != nil || rec.Rootfs == "" || !rec.Deleted.IsZero() {
		t.Errorf("made again: %+v, %t, %v", rec, ok, err)
	}
	for _, s := range []Spec{whole, damaged} {
		n.remove(s.ID)
		n.gone(s.ID)
	}
	if left, err := n.jails().records.all(); err != nil || len(left) > 0 {
		t.Errorf("records left: %v, %v", left, err)
	}
}
