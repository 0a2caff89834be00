// SPDX-License-Identifier: BSD-2-Clause

//go:build !fakefreebsd

package jail

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"satld/internal/slowday"
)

// run runs a script to its end and returns what it printed.
func (n *node) run(s Spec) string {
	n.t.Helper()
	n.start(s)
	n.wait(s.ID)
	out, errs := n.output(s.ID)
	return out + errs
}

func TestContainerLooksAsDocker(t *testing.T) {
	n := newNode(t)
	s := n.spec(`id -u; pwd; hostname; cat /proc/sys/kernel/domainname; echo $HOME $PATH; cat /proc/1/limits | grep files;
		grep -e CapEff -e NoNewPrivs -e Seccomp: /proc/self/status; ls /proc/self/fd; test -w /proc/sys/kernel/hostname || echo ro;
		echo x > /proc/self/fd/1; mount | grep -c ' on /dev/shm '; touch /x 2>&1; cat /sys/fs/cgroup/unified/cgroup.procs >/dev/null 2>&1; ls /bound; cat /tm/x`)
	s.Cwd, s.ReadOnly, s.NoNewPrivileges, s.Domainname = "/made/here", true, true, "example.org"
	src := t.TempDir()
	os.WriteFile(filepath.Join(src, "inside"), nil, 0o644)
	s.Mounts = []Mount{{Type: "bind", Source: src, Target: "/bound", ReadOnly: true}, {Type: "tmpfs", Target: "/tm", Options: []string{"size=1m"}}}
	s.Ulimits = []Ulimit{{Name: "nofile", Soft: 100, Hard: 200}}
	s.User = "web"
	os.Mkdir(filepath.Join(s.Rootfs, "bound"), 0o755)
	os.Mkdir(filepath.Join(s.Rootfs, "tm"), 0o755)
	want := fmt.Sprintf("1000\n/made/here\n%s\nexample.org\n/home/web /usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\nMax open files            100                  200                  files     \n"+
		"CapEff:\t0000000000000000\nNoNewPrivs:\t1\nSeccomp:\t0\n0\n1\n2\n3\nro\nx\n1\ntouch: /x: Read-only file system\ninside\ncat: can't open '/tm/x': No such file or directory\n", s.Hostname)
	if got := n.run(s); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestPrivileged(t *testing.T) {
	n := newNode(t)
	s := n.spec(`grep CapEff /proc/self/status; test -w /proc/sys/kernel/domainname && echo rw; ls /dev/kmsg`)
	s.Privileged = true
	got := n.run(s)
	if !strings.Contains(got, "CapEff:\t000001ff") || !strings.Contains(got, "rw\n/dev/kmsg\n") {
		t.Errorf("%q", got)
	}
}

func TestInit(t *testing.T) {
	n := newNode(t)
	s := n.spec(`(sleep 0.01 &); trap 'exit 9' TERM; echo up; while :; do sleep 0.05; done`)
	s.Init = true
	n.start(s)
	for range 500 {
		if got := n.lines(s.ID, LogQuery{}); len(got) > 0 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	n.Kill(context.Background(), s.ID, 15)
	if e := n.wait(s.ID); e.Code != 9 {
		t.Errorf("%+v", e)
	}
}

func TestCreateRefuses(t *testing.T) {
	n := newNode(t)
	ctx := context.Background()
	for _, c := range []struct {
		change func(*Spec)
		want   string
		is     func(error) bool
	}{
		{func(s *Spec) { s.Args = []string{"/no/such"} }, `exec: "/no/such": stat /no/such: no such file or directory`, startFailed(127)},
		{func(s *Spec) { s.Args = []string{"nosuch"} }, `exec: "nosuch": executable file not found in $PATH`, startFailed(127)},
		{func(s *Spec) { s.Args = []string{"/etc/passwd"} }, `exec: "/etc/passwd": permission denied`, startFailed(126)},
		{func(s *Spec) { s.Args = nil }, "no command specified", errdefs.IsInvalidArgument},
		{func(s *Spec) { s.ID = "../../etc" }, "container ID", errdefs.IsInvalidArgument},
		{func(s *Spec) { s.User = "whoever" }, "whoever", errdefs.IsInvalidArgument},
		{func(s *Spec) { s.Rootfs = "/nowhere" }, "not a directory", errdefs.IsInvalidArgument},
		{func(s *Spec) { s.CapAdd = []string{"FLY"} }, `unknown capability: "FLY"`, errdefs.IsInvalidArgument},
		{func(s *Spec) { s.Ulimits = []Ulimit{{Name: "x"}} }, `unknown ulimit: "x"`, errdefs.IsInvalidArgument},
		{func(s *Spec) { s.Mounts = []Mount{{Type: "nfs", Target: "/x"}} }, `mount type unknown: "nfs"`, errdefs.IsInvalidArgument},
		{func(s *Spec) { s.Mounts = []Mount{{Type: "bind", Source: "/nowhere", Target: "/x"}} }, "/nowhere", func(error) bool { return true }},
		{func(s *Spec) { s.NetNS = "/nowhere/ns" }, "/nowhere/ns", func(error) bool { return true }},
	} {
		s := n.spec("true")
		c.change(&s)
		_, err := n.Create(ctx, s)
		if err == nil || !strings.Contains(err.Error(), c.want) || !c.is(err) {
			t.Errorf("want %q, got %v", c.want, err)
		}
		if strings.Contains(fmt.Sprint(err), "level=") || strings.Contains(fmt.Sprint(err), "runc create failed") {
			t.Errorf("noise: %v", err)
		}
	}
	if ids, err := n.List(ctx); err != nil || len(ids) > 0 {
		t.Errorf("left after refusals: %v, %v", ids, err)
	}
	if dirs, _ := os.ReadDir(n.dir.Containers()); len(dirs) > 0 {
		t.Errorf("bundles left: %v", dirs)
	}
}

// A user file of the image that points out of it is read inside the image.
func TestUserFilesStayInside(t *testing.T) {
	n := newNode(t)
	for name, target := range map[string]string{"absolute": "/etc/shadow-of-root", "climbing": "../../../../../../etc/passwd", "magic": "/proc/self/root/etc/passwd"} {
		s := n.spec("id -u")
		os.Remove(filepath.Join(s.Rootfs, "etc/passwd"))
		if err := os.Symlink(target, filepath.Join(s.Rootfs, "etc/passwd")); err != nil {
			t.Fatal(err)
		}
		os.WriteFile(filepath.Join(s.Rootfs, "etc/shadow-of-root"), []byte("daemon:x:77:77::/:/bin/sh\n"), 0o644)
		s.User = "daemon" // the host has one, with uid 1
		_, err := n.Create(context.Background(), s)
		if name == "absolute" {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err == nil {
			t.Errorf("%s: the host's user file was read", name)
		}
	}
}

func TestOOMKilled(t *testing.T) {
	n := newNode(t)
	s := n.spec(`exec head -c 200000000 /dev/zero | busybox tail -c 199999999 >/dev/null; exit $?`)
	s.MemoryBytes = 32 << 20
	s.Args = []string{"sh", "-c", "busybox tail -c 199999999 /dev/zero"}
	n.start(s)
	if e := n.wait(s.ID); !e.OOMKilled || e.Code != 137 {
		t.Errorf("%+v", e)
	}
}

func TestPidsLimitAndList(t *testing.T) {
	n := newNode(t)
	s := n.spec(`sleep 1000 & sleep 1000 & sleep 1000 & wait`)
	s.Pids = 4
	n.start(s)
	var pids []int
	for range 500 {
		pids, _ = n.Pids(context.Background(), s.ID)
		if len(pids) == 4 {
			break
		}
		time.Sleep(2 * time.Millisecond)
	}
	if len(pids) != 4 {
		t.Fatalf("pids %v", pids)
	}
	// No room for a probe: a clear failure, and the helper itself takes no place.
	_, _, _, err := n.probe(s.ID, time.Second, "true")
	if err == nil || !strings.Contains(err.Error(), "resource temporarily unavailable") {
		t.Errorf("probe in a full container: %v", err)
	}
}

func TestDeleteKillsAll(t *testing.T) { // cases/jail.md, jail-4
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
	began := time.Now()
	if err := n.Delete(ctx, s.ID); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > slowday.Of(2*time.Second) {
		t.Errorf("delete took %v", took)
	}
	for _, pid := range pids {
		if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); err == nil {
			t.Errorf("process %d lives", pid)
		}
	}
	if e := n.wait(s.ID); e.Code != 137 {
		t.Errorf("%+v", e)
	}
	if err := n.Kill(ctx, s.ID, 9); err != nil {
		t.Errorf("kill after the end: %v", err)
	}
}

// An ended process that nobody waited for yet is told to be in the root group:
// its container must not be taken for the whole machine.
func TestPidsOfTheDead(t *testing.T) {
	n := newNode(t)
	s := n.spec("exit 0")
	n.start(s)
	n.wait(s.ID)
	pids, err := (groups{}).pids(context.Background(), s.ID)
	if err != nil || len(pids) != 0 {
		t.Errorf("%v, %v", pids, err)
	}
}

// Many at once, each with its own order of things.
func TestManyAtOnce(t *testing.T) {
	n := newNode(t)
	var specs []Spec
	for i := range 12 {
		specs = append(specs, n.spec(fmt.Sprintf("echo %d; exit %d", i, i)))
	}
	var wg sync.WaitGroup
	for i, s := range specs {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
			defer cancel()
			if _, err := n.Create(ctx, s); err != nil {
				t.Error(err)
				return
			}
			if _, err := n.Start(ctx, s.ID); err != nil {
				t.Error(err)
			}
			if e, err := n.Wait(ctx, s.ID); err != nil || e.Code != i {
				t.Errorf("%d: %+v, %v", i, e, err)
			}
			if err := n.Delete(ctx, s.ID); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

func TestSecondShimInOneDirectory(t *testing.T) {
	n := newNode(t)
	before, _, _ := n.shim.Hello(context.Background())
	m, err := Open(context.Background(), testConfig(n.state))
	if err != nil {
		t.Fatal(err)
	}
	if after, _, _ := m.shim.Hello(context.Background()); after != before {
		t.Errorf("shim %d, then %d", before, after)
	}
	m.cancel() // not Close: it would end the shim of the other
	m.done.Wait()
	m.probes.close()
	if err := ShimMain(context.Background(), []string{"--state-dir", n.state + "/jail"}); err == nil || !strings.Contains(err.Error(), "another one runs") {
		t.Errorf("a second shim: %v", err)
	}
}

func TestLongStateDir(t *testing.T) {
	needRuntime(t)
	long := filepath.Join(t.TempDir(), strings.Repeat("d", 100), strings.Repeat("e", 100))
	n := &node{t: t, state: long}
	n.open()
	t.Cleanup(n.finish)
	s := n.spec(`tty`)
	s.TTY = true // the console's socket is there as well
	if got := n.run(s); !strings.HasPrefix(got, "/dev/pts/0") && !strings.HasPrefix(got, "/dev/console") {
		t.Errorf("%q", got)
	}
}

func TestOpenWithoutRuntime(t *testing.T) {
	_, err := Open(context.Background(), Config{StateDir: t.TempDir(), RuntimePath: "/nowhere/runc"})
	if err == nil || !strings.Contains(err.Error(), "install it") {
		t.Errorf("%v", err)
	}
}

func TestNetworks(t *testing.T) {
	n := newNode(t)
	name := "satljail" + newID()[:6]
	if out, err := exec.Command("ip", "netns", "add", name).CombinedOutput(); err != nil {
		t.Skipf("SKIPPED: ip netns add: %v %s", err, out)
	}
	t.Cleanup(func() { exec.Command("ip", "netns", "del", name).Run() })
	own := func(path string) string {
		link, err := os.Readlink(path)
		if err != nil {
			t.Fatal(err)
		}
		return link
	}
	script := `busybox readlink /proc/self/ns/net; busybox ip -o link | wc -l`
	s := n.spec(script)
	s.HostNetwork = true
	if got := n.run(s); !strings.HasPrefix(got, own("/proc/self/ns/net")+"\n") {
		t.Errorf("host network: %q", got)
	}
	s = n.spec(script)
	if got := n.run(s); strings.HasPrefix(got, own("/proc/self/ns/net")) || !strings.HasSuffix(got, "\n1\n") {
		t.Errorf("own network: %q", got)
	}
	s = n.spec(script + "; exec sleep 1000")
	s.NetNS = "/var/run/netns/" + name
	n.start(s)
	var inside strings.Builder
	if code, err := n.RunProbe(context.Background(), s.ID, []string{"busybox", "readlink", "/proc/self/ns/net"}, &inside, nil); code != 0 || err != nil {
		t.Fatal(code, err)
	}
	st, _ := os.Stat("/var/run/netns/" + name)
	if want := fmt.Sprintf("net:[%d]\n", st.Sys().(*syscall.Stat_t).Ino); inside.String() != want {
		t.Errorf("joined network %q, want %q", inside.String(), want)
	}
}

// A full disk neither stops a container nor loses its exit status.
func TestFullDisk(t *testing.T) {
	needRuntime(t)
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=2m"); err != nil {
		t.Skipf("SKIPPED: mount tmpfs: %v", err)
	}
	n := &node{t: t, state: dir}
	t.Cleanup(func() {
		// The shim's first thread may be gone before its last one has let go.
		err := syscall.Unmount(dir, 0)
		for range 100 {
			if err == nil {
				break
			}
			time.Sleep(20 * time.Millisecond)
			err = syscall.Unmount(dir, 0)
		}
		if err != nil {
			syscall.Unmount(dir, syscall.MNT_DETACH)
			t.Errorf("unmount: %v", err)
		}
		n.checkLeftovers()
	})
	n.open()
	t.Cleanup(func() {
		n.Delete(context.Background(), n.ids[0])
		n.Forget(context.Background(), n.ids[0])
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		n.close(ctx)
	})
	s := n.spec(`dd if=/dev/zero bs=100000 count=50 2>/dev/null; exit 6`)
	pid := n.create(s)
	if _, err := n.Start(context.Background(), s.ID); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(20 * time.Second)
	for {
		if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); err != nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the container stands still on a full disk")
		}
		time.Sleep(5 * time.Millisecond)
	}
	for _, f := range []string{"1.out", "2.out"} { // room again
		os.Truncate(filepath.Join(n.dir.Logs(s.ID), f), 0)
	}
	if e := n.wait(s.ID); e.Code != 6 {
		t.Errorf("%+v", e)
	}
}

// The pause is the kernel's, so another daemon knows of it.
func TestPausedUnderEarlierDaemon(t *testing.T) {
	n := newNode(t)
	ctx := context.Background()
	s := n.spec(noReaper)
	n.start(s)
	if err := n.Pause(ctx, s.ID); err != nil {
		t.Fatal(err)
	}
	if err := n.Close(); err != nil { // it leaves the shim, as there is a container
		t.Fatal(err)
	}
	n.open()
	if _, _, _, err := n.probe(s.ID, time.Second, "true"); !errdefs.IsConflict(err) {
		t.Errorf("probe while paused: %v", err)
	}
	if _, err := n.Exec(ctx, s.ID, ExecSpec{Args: []string{"true"}}); !errdefs.IsConflict(err) {
		t.Errorf("exec while paused: %v", err)
	}
	if err := n.Resume(ctx, s.ID); err != nil {
		t.Fatal(err)
	}
	if code, _, _, err := n.probe(s.ID, 5*time.Second, "true"); code != 0 || err != nil {
		t.Errorf("after the resume: %d, %v", code, err)
	}
}
