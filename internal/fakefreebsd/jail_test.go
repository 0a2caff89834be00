// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package fakefreebsd

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"satld/internal/fakefreebsd/world"
)

// runtime is a fake with an ocijail --root of its own.
type oci struct {
	*host
	dir string
}

func newRuntime(t *testing.T) *oci {
	needRoot(t)
	return &oci{newHost(t), t.TempDir()}
}

func (r *oci) call(args ...string) result {
	r.t.Helper()
	return r.run("", "ocijail", append([]string{"--root", r.dir, "--log-format", "json"}, args...)...)
}

func (r *oci) must(args ...string) string {
	r.t.Helper()
	got := r.call(args...)
	if got.exit != 0 {
		r.t.Fatalf("ocijail %v: %+v", args, got)
	}
	return got.out
}

// create starts a jail whose output goes to a file.
func (r *oci) create(id, bundle string) (output string, pid int) {
	r.t.Helper()
	output = filepath.Join(r.t.TempDir(), "out")
	f, err := os.Create(output)
	if err != nil {
		r.t.Fatal(err)
	}
	defer f.Close()
	pidFile := filepath.Join(bundle, "pid")
	cmd := exec.Command(filepath.Join(r.Bin, "ocijail"), "--root", r.dir, "create", "-b", bundle, "--pid-file", pidFile, id)
	cmd.Stdout, cmd.Stderr = f, f
	if err := cmd.Run(); err != nil {
		said, _ := os.ReadFile(output)
		r.t.Fatalf("create: %v, %s", err, said)
	}
	data, err := os.ReadFile(pidFile)
	if err != nil {
		r.t.Fatal(err)
	}
	if pid, err = strconv.Atoi(string(data)); err != nil {
		r.t.Fatal(err)
	}
	return output, pid
}

func (r *oci) status(id string) (s struct {
	Status      string
	PID         int
	Annotations map[string]string
}) {
	r.t.Helper()
	if err := json.Unmarshal([]byte(r.must("state", id)), &s); err != nil {
		r.t.Fatal(err)
	}
	return s
}

func reads(file, want string) func() bool {
	return func() bool { data, err := os.ReadFile(file); return err == nil && strings.Contains(string(data), want) }
}

func gone(pid int) func() bool {
	return func() bool { return syscall.Kill(pid, 0) == syscall.ESRCH }
}

func TestLifeOfAJail(t *testing.T) {
	r := newRuntime(t)
	rootfs := root(t)
	b := bundle(t, rootfs, nil, "sh", "-c", "umask; echo $HOME; hostname; echo >/dev/null; exec sleep 1000")
	out, pid := r.create("web", b)
	s := r.status("web")
	if s.Status != "created" || s.PID != pid || s.Annotations["org.freebsd.jail.jid"] != "1" || s.Annotations["org.freebsd.jail.vnet"] != "new" {
		t.Errorf("%+v", s)
	}
	if got := r.call("create", "-b", b, "web"); got.exit != 1 || !strings.Contains(got.err, "container web exists") {
		t.Errorf("%+v", got)
	}
	if got := r.do("ps -J web -o pid="); got != strconv.Itoa(pid)+"\n" {
		t.Errorf("%q, want %d", got, pid)
	}
	r.must("start", "web")
	until(t, "its output", reads(out, "0077\n/\ninside\n"))
	if s := r.status("web"); s.Status != "running" || s.PID != pid {
		t.Errorf("%+v: start changes no pid", s)
	}
	if got := r.call("start", "web"); got.exit != 1 || !strings.Contains(got.err, `container not in \"created\" state (currently \"running\")`) {
		t.Errorf("%+v", got)
	}
	if got := r.do("jls -d -h name dying"); got != "name dying\nweb false\n" {
		t.Errorf("%q", got)
	}
	mounted := r.do("mount -p")
	for _, want := range []string{"devfs\t\t\t" + rootfs + "/dev ", "fdescfs\t\t\t" + rootfs + "/dev/fd "} {
		if !strings.Contains(mounted, want) {
			t.Errorf("no %q in\n%s", want, mounted)
		}
	}
	if got := r.call("delete", "web"); got.exit != 1 {
		t.Errorf("%+v: a running one needs --force", got)
	}
	// A process that left the main one's session goes with the jail.
	process := filepath.Join(t.TempDir(), "process.json")
	write(t, process, map[string]any{"args": []string{"sleep", "1001"}, "cwd": "/", "env": []string{"PATH=/bin"}})
	pidFile := filepath.Join(t.TempDir(), "pid")
	r.must("exec", "web", "--process", process, "--pid-file", pidFile, "-d")
	data, err := os.ReadFile(pidFile)
	if err != nil {
		t.Fatal(err)
	}
	other, _ := strconv.Atoi(string(data))
	r.must("kill", "web", "9")
	until(t, "the end of the main process", func() bool { return r.status("web").Status == "stopped" })
	if syscall.Kill(other, 0) != nil {
		t.Error("the jail persists until delete, and so do its other processes")
	}
	if got := r.call("kill", "web", "9"); got.exit != 0 {
		t.Errorf("%+v: a stopped one is a silent success", got)
	}
	r.must("delete", "web")
	until(t, "the end of all processes", gone(other))
	if left := r.Leftovers(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	for _, verb := range [][]string{{"state", "web"}, {"start", "web"}, {"kill", "web", "9"}, {"exec", "web", "--process", process}} {
		if got := r.call(verb...); got.exit != 1 || !strings.Contains(got.err, `"msg":"opening state lock: No such file or directory"`) {
			t.Errorf("%v: %+v", verb, got)
		}
	}
	if got := r.call("delete", "web"); got.exit != 0 {
		t.Errorf("%+v: an unknown ID is no error", got)
	}
	if got := r.must("list", "-f", "json"); got != "null" {
		t.Errorf("%q", got)
	}
}

func TestExecIsTheProbe(t *testing.T) {
	r := newRuntime(t)
	r.create("web", bundle(t, root(t), nil, "sleep", "1000"))
	r.must("start", "web")
	process := filepath.Join(t.TempDir(), "process.json")
	probe := func(sys *syscall.SysProcAttr, argv ...string) (*exec.Cmd, *strings.Builder) {
		write(t, process, map[string]any{"args": argv, "cwd": "/", "env": []string{"PATH=/bin"}})
		cmd := exec.Command(filepath.Join(r.Bin, "ocijail"), "--root", r.dir, "exec", "web", "--process", process)
		said := new(strings.Builder)
		cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = said, said, sys
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd, said
	}
	cmd, said := probe(nil, "sh", "-c", "hostname; exit 7")
	if cmd.Wait(); cmd.ProcessState.ExitCode() != 7 || said.String() != "inside\n" {
		t.Errorf("exit %d, %q", cmd.ProcessState.ExitCode(), said)
	}
	cmd, said = probe(&syscall.SysProcAttr{Setpgid: true}, "sh")
	if cmd.Wait(); cmd.ProcessState.ExitCode() != 1 || !strings.Contains(said.String(), "error calling setsid: Operation not permitted") {
		t.Errorf("exit %d, %q", cmd.ProcessState.ExitCode(), said)
	}
	cmd, said = probe(nil, "no-such-thing")
	if cmd.Wait(); cmd.ProcessState.ExitCode() != 1 || !strings.Contains(said.String(), "'no-such-thing' not found in $PATH: No such file or directory") {
		t.Errorf("exit %d, %q", cmd.ProcessState.ExitCode(), said)
	}
	// The host's pid is the probe's, and after setsid(2) its group's.
	cmd, _ = probe(nil, "sh", "-c", "sleep 1002 & sleep 1003; true")
	until(t, "the probe's children", func() bool { return len(strings.Fields(r.do("ps -J web -o pid="))) == 4 })
	if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); err != nil {
		t.Error(err)
	}
	cmd.Wait()
	until(t, "the end of the group", func() bool { return len(strings.Fields(r.do("ps -J web -o pid="))) == 1 })
	// The jail outlives its main process, and a probe in it succeeds.
	r.must("kill", "web", "9")
	until(t, "the end of the main process", func() bool { return r.status("web").Status == "stopped" })
	if cmd, said = probe(nil, "sh", "-c", "exit 0"); cmd.Wait() != nil {
		t.Errorf("a probe in a jail without its main process fails: %s", said)
	}
	for _, exit := range []struct {
		want int
		args []string
	}{{106, []string{"exec", "web"}}, {105, []string{"exec", "web", "--process", "/nowhere"}}, {109, []string{"exec", "web", "--process", process, "--user", "0"}}} {
		if got := r.call(exit.args...); got.exit != exit.want {
			t.Errorf("%v: %+v", exit.args, got)
		}
	}
	r.must("delete", "web")
}

func TestCreateThatFailsLeavesNothing(t *testing.T) {
	r := newRuntime(t)
	b := bundle(t, root(t), nil, "no-such-thing")
	got := r.call("create", "-b", b, "web")
	if got.exit != 1 || got.err != "'no-such-thing' not found in $PATH: No such file or directory" {
		t.Errorf("%+v: the text is raw, on the container's stderr", got)
	}
	if left := r.Leftovers(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestCrashInCreateLeavesAJail(t *testing.T) {
	r := newRuntime(t)
	r.Add(Fault{Match: " create ", Times: 1, Crash: true})
	if got := r.call("create", "-b", bundle(t, root(t), nil, "sleep", "9"), "web"); got.exit != -1 {
		t.Errorf("%+v", got)
	}
	r.must("delete", "web")
	live, _ := r.Jails()
	if left := r.Leftovers(); len(live) != 1 || len(left) != 3 {
		t.Errorf("%v: a jail and its mounts, which delete does not see", left)
	}
	r.do("jail -r web")
	for _, m := range slices.Backward(r.World().Mounts) {
		if m.Real {
			r.do("umount " + m.On)
		}
	}
	if left := r.Leftovers(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestDyingJail(t *testing.T) {
	r := newRuntime(t)
	r.Dying(-1)
	b := bundle(t, root(t), nil, "sleep", "1000")
	_, pid := r.create("web", b)
	if got := r.do("ifconfig epair create"); got != "epair0a\n" {
		t.Fatal(got)
	}
	r.do("ifconfig epair0b vnet web")
	r.must("delete", "--force", "web")
	until(t, "the end of its process", gone(pid))
	if got := r.do("jls -d -h name dying"); got != "name dying\nweb true\n" {
		t.Errorf("%q", got)
	}
	if got := r.do("jls name"); got != "" {
		t.Errorf("%q: only -d shows it", got)
	}
	r.refused("ifconfig: interface epair0b does not exist", "ifconfig epair0b")
	if got := r.call("create", "-b", b, "web"); got.exit != 1 || !strings.Contains(got.err, "File exists") {
		t.Errorf("%+v: its name is taken", got)
	}
	r.Bury("web")
	if got := r.do("jls -d name"); got != "" {
		t.Errorf("%q", got)
	}
	r.do("ifconfig epair0b")
	// The name of a jail that is gone is free; what create left is in its way.
	r.Dying(0)
	r.Knobs(func(k *world.Knobs) { k.PidFileLate = 300 * time.Millisecond })
	if r.call("delete", "web").exit != 0 {
		t.Error("delete again")
	}
	if got := r.call("create", "-b", b, "--pid-file", b+"/late", "web"); got.exit != 0 {
		t.Fatalf("%+v", got)
	}
	if data, err := os.ReadFile(b + "/late"); err != nil || len(data) > 0 {
		t.Errorf("%q, %v: the pid comes later", data, err)
	}
	until(t, "the pid", func() bool { data, _ := os.ReadFile(b + "/late"); return len(data) > 0 })
	r.must("delete", "--force", "web")
}

func TestStateBelievesARecycledPid(t *testing.T) {
	r := newRuntime(t)
	r.create("web", bundle(t, root(t), nil, "sleep", "1000"))
	r.must("start", "web")
	r.must("kill", "web", "9")
	until(t, "the end", func() bool { return r.status("web").Status == "stopped" })
	innocent := exec.Command("/bin/sleep", "1000")
	if err := innocent.Start(); err != nil {
		t.Fatal(err)
	}
	defer innocent.Wait()
	defer innocent.Process.Kill()
	r.Recycle(r.dir, "web", innocent.Process.Pid)
	if s := r.status("web"); s.Status != "running" || s.PID != innocent.Process.Pid {
		t.Errorf("%+v", s)
	}
	if got := r.call("delete", "web"); got.exit != 1 {
		t.Errorf("%+v: it takes it for running", got)
	}
	r.must("delete", "--force", "web") // and kills whoever has the pid
	innocent.Wait()
	if !innocent.ProcessState.Sys().(syscall.WaitStatus).Signaled() {
		t.Error("the real one would have killed it")
	}
}

func TestBusyMountIsRefused(t *testing.T) {
	r := newRuntime(t)
	data, rootfs := t.TempDir(), root(t)
	if err := os.WriteFile(filepath.Join(data, "precious"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.create("web", bundle(t, rootfs, func(c map[string]any) {
		c["mounts"] = []map[string]any{{"destination": "/data", "type": "nullfs", "source": data}}
	}, "sleep", "1000"))
	f, err := os.Open(filepath.Join(rootfs, "data/precious"))
	if err != nil {
		t.Fatal(err)
	}
	got := r.call("delete", "--force", "web")
	if got.exit != 1 || !strings.Contains(got.err, "unmounting "+rootfs+"/data: Device busy") {
		t.Errorf("%+v", got)
	}
	f.Close()
	r.must("delete", "--force", "web")
	if _, err := os.Stat(filepath.Join(data, "precious")); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(rootfs, "data")); err == nil {
		t.Error("a mount point that create made goes with its mount")
	}
}

func TestJexecAndReadOnlyRoot(t *testing.T) {
	r := newRuntime(t)
	rootfs := root(t)
	r.create("web", bundle(t, rootfs, func(c map[string]any) { c["root"] = map[string]any{"path": rootfs, "readonly": true} }, "sleep", "1000"))
	if got := r.run("", "jexec", "web", "/bin/touch", "/tmp/x"); got.exit != 1 || !strings.Contains(got.err, "Read-only") {
		t.Errorf("%+v", got)
	}
	r.refused("jexec: execvp: /sbin/ifconfig: No such file or directory", "jexec web /sbin/ifconfig lo0 up")
	r.must("delete", "--force", "web")
	if err := os.WriteFile(filepath.Join(rootfs, "sbin/ifconfig"), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	r.create("web", bundle(t, rootfs, nil, "sleep", "1000"))
	r.do("jexec web /sbin/ifconfig lo0 up")
	if got := r.do("ifconfig -j web lo0"); !strings.Contains(got, "inet6 ::1 ") || strings.Contains(got, "127.0.0.1") {
		t.Errorf("%s", got)
	}
	r.must("delete", "--force", "web")
	if left := r.Leftovers(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}
