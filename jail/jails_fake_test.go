// SPDX-License-Identifier: BSD-2-Clause

//go:build fakefreebsd

package jail

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"satld/internal/fakefreebsd"
	"satld/internal/fakefreebsd/world"
)

func (n *node) fake() *fakefreebsd.Fake { return fakes[n.t] }

// playedNode is a node on a host that is prepared before it is opened.
func playedNode(t *testing.T, prepare func(f *fakefreebsd.Fake)) *node {
	t.Helper()
	needRuntime(t)
	prepare(fakes[t])
	return newNode(t)
}

var scratch = regexp.MustCompile(`\b(probe|exec)-[0-9]+`)

// What is run for one container, in order; the golden file is to be read.
func TestJailCommandLines(t *testing.T) {
	n := playedNode(t, func(f *fakefreebsd.Fake) { f.Sysctl("kern.racct.enable", "1") })
	s := n.spec("sleep 1000")
	s.MemoryBytes, s.NanoCPUs, s.Pids = 64<<20, 1.5e9, 100
	n.start(s)
	if code, _, _, err := n.probe(s.ID, patience, "true"); code != 0 || err != nil {
		t.Fatal(code, err)
	}
	p, err := n.Exec(context.Background(), s.ID, ExecSpec{Args: []string{"true"}})
	if err != nil {
		t.Fatal(err)
	}
	if code, err := p.Wait(); code != 0 || err != nil {
		t.Fatal(code, err)
	}
	if _, err := n.Pids(context.Background(), s.ID); err != nil {
		t.Fatal(err)
	}
	n.remove(s.ID)
	n.gone(s.ID)
	var got strings.Builder
	last := ""
	for _, c := range n.fake().Calls() {
		line := strings.NewReplacer(n.state, "/STATE", s.ID, "ID").Replace(c.String())
		line = scratch.ReplaceAllString(line, "$1-N") // names of files that are made for the moment
		if line != last {                             // how often it is looked is a matter of time
			fmt.Fprintln(&got, line)
		}
		last = line
	}
	path := filepath.Join("testdata", "jail-calls.txt")
	if *update {
		if err := os.WriteFile(path, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil || string(want) != got.String() {
		t.Errorf("not as in %s (-update writes it): %v\n%s", path, err, got.String())
	}
}

func TestJailDies(t *testing.T) { // cases/jail.md, jail-1
	n := playedNode(t, func(f *fakefreebsd.Fake) { f.Dying(-1) })
	ctx := context.Background()
	first := n.spec(noReaper)
	var runs []Spec
	for i := range 6 { // the same container again and again, with a new name each
		s := first
		if i > 0 {
			s.ID = fmt.Sprintf("%s-%d", first.ID, i+1)
			n.ids = append(n.ids, s.ID)
		}
		n.start(s)
		n.remove(s.ID)
		if left, _ := n.processes(s.ID); len(left) > 0 {
			t.Fatalf("run %d: deleted with %v", i, left)
		}
		if there, dying := n.jailed(s.ID); !there || !dying {
			t.Fatalf("run %d: there %v, dying %v", i, there, dying)
		}
		runs = append(runs, s)
	}
	for _, s := range runs {
		if left, err := n.Lingers(ctx, s.ID); !left || err != nil {
			t.Errorf("a dying jail does not linger: %v, %v", left, err)
		}
		if err := n.Forget(ctx, s.ID); err != nil { // does not wait for it
			t.Error(err)
		}
	}
	if _, err := n.Create(ctx, first); !errdefs.IsConflict(err) || !strings.Contains(err.Error(), "still there, dying") {
		t.Errorf("the name of a dying jail is used again: %v", err)
	}
	dying, err := n.Dying(ctx)
	if err != nil || len(dying) != len(runs) || dying[0].Since.IsZero() {
		t.Errorf("%v, %v", dying, err)
	}
	n.fake().Bury()
	for _, s := range runs {
		n.gone(s.ID)
	}
	if dying, err := n.Dying(ctx); err != nil || len(dying) > 0 {
		t.Errorf("%v, %v", dying, err)
	}
}

// The background takes away by itself what could not be at once.
func TestJailIsSweptInTheBackground(t *testing.T) {
	n := playedNode(t, func(f *fakefreebsd.Fake) { f.Dying(time.Second) })
	s := n.spec(noReaper)
	n.start(s)
	n.remove(s.ID)
	if err := n.Forget(context.Background(), s.ID); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the end of its record", func() bool {
		_, ok, err := n.jails().records.read(s.ID)
		return !ok && err == nil
	})
}

// Nobody is told of a jail that dies, until it takes too long.
func TestJailSlowDeathIsTold(t *testing.T) {
	n := playedNode(t, func(f *fakefreebsd.Fake) { f.Dying(-1) })
	var log bytes.Buffer
	n.jails().log = slog.New(slog.NewTextHandler(&log, nil))
	s := n.spec(noReaper)
	n.start(s)
	n.remove(s.ID)
	ctx := context.Background()
	if _, err := n.jails().sweepOne(ctx, s.ID); err != nil || log.Len() > 0 {
		t.Errorf("%v; told at once: %s", err, log.String())
	}
	rec, _, err := n.jails().records.read(s.ID)
	if err != nil {
		t.Fatal(err)
	}
	rec.Deleted = time.Now().Add(-slowDeath - time.Second)
	if err := n.jails().records.write(s.ID, rec); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := n.jails().sweepOne(ctx, s.ID); err != nil {
			t.Fatal(err)
		}
	}
	if got := strings.Count(log.String(), "does not finish dying"); got != 1 || !strings.Contains(log.String(), s.ID) {
		t.Errorf("told %d times: %s", got, log.String())
	}
	n.fake().Bury()
	n.gone(s.ID)
}

// Faults of the tools: a deletion ends with no process left, or says so, and
// the rest is done when they pass.
func TestJailDeleteWithFaults(t *testing.T) {
	for name, c := range map[string]struct {
		trouble func(f *fakefreebsd.Fake, id string)
		fails   bool
	}{
		"ocijail's delete fails":  {func(f *fakefreebsd.Fake, id string) { f.Fail("delete "+id, 3) }, false},
		"it hangs":                {func(f *fakefreebsd.Fake, id string) { f.Hang("delete "+id, 1, 2*time.Second) }, false},
		"jail -R fails":           {func(f *fakefreebsd.Fake, id string) { f.Fail("jail -R "+id, 3) }, false},
		"mount fails":             {func(f *fakefreebsd.Fake, id string) { f.Fail("mount -p", 2) }, false},
		"umount fails":            {func(f *fakefreebsd.Fake, id string) { f.Fail("delete "+id, 1); f.Fail("umount", 2) }, false},
		"jls fails for a while":   {func(f *fakefreebsd.Fake, id string) { f.Fail("jls", 1) }, true},
		"jls is of another world": {func(f *fakefreebsd.Fake, id string) { f.Lie("jls", 1, "null") }, true},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			ctx := context.Background()
			s := n.spec(noReaper)
			n.start(s)
			c.trouble(n.fake(), s.ID)
			err := n.Delete(ctx, s.ID)
			if c.fails && err != nil {
				err = n.Delete(ctx, s.ID)
			}
			if err != nil {
				t.Fatal(err)
			}
			if there, dying := n.jailed(s.ID); there && !dying {
				t.Error("the jail lives")
			}
			n.gone(s.ID)
			if left := n.mounted(s); len(left) > 0 {
				t.Errorf("mounted: %v", left)
			}
		})
	}
}

// A deletion whose context ends before the jail can be removed is an error,
// and can be taken up again.
func TestJailDeleteIsResumed(t *testing.T) { // cases/jail.md, jail-4
	n := newNode(t)
	s := n.spec(noReaper)
	n.start(s)
	n.fake().Fail("jail -R", 0)
	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	// A second process, as the first one dies by a signal of ours.
	p, err := n.Exec(context.Background(), s.ID, ExecSpec{Args: []string{"sleep", "1000"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Delete(ctx, s.ID); err == nil {
		t.Error("deleted with a process in it")
	}
	if left, _ := n.processes(s.ID); len(left) == 0 {
		t.Error("the jail is empty, so that this shows nothing")
	}
	n.fake().Clear()
	n.remove(s.ID)
	if _, err := p.Wait(); err != nil {
		t.Error(err)
	}
}

func TestJailPidFileIsLate(t *testing.T) {
	n := playedNode(t, func(f *fakefreebsd.Fake) {
		f.Knobs(func(k *world.Knobs) { k.PidFileLate = 300 * time.Millisecond })
	})
	s := n.spec("exit 7")
	n.start(s)
	if e := n.wait(s.ID); e.Code != 7 {
		t.Errorf("%+v", e)
	}
	s = n.spec(noReaper)
	n.start(s)
	p, err := n.Exec(context.Background(), s.ID, ExecSpec{Args: []string{"sh", "-c", "sleep 0.5; exit 8"}})
	if err != nil {
		t.Fatal(err)
	}
	if code, err := p.Wait(); code != 8 || err != nil {
		t.Errorf("%d, %v", code, err)
	}
}

// ocijail's create dies between jail_set and the writing of its state: its
// delete would do nothing.
func TestJailCreateCrashes(t *testing.T) {
	n := newNode(t)
	s := n.spec(noReaper)
	n.fake().Add(fakefreebsd.Fault{Match: "create", Times: 1, Crash: true})
	if _, err := n.Create(context.Background(), s); err == nil {
		t.Fatal("it was made")
	}
	if there, dying := n.jailed(s.ID); there && !dying {
		t.Error("the jail lives")
	}
	n.gone(s.ID)
	if left := n.mounted(s); len(left) > 0 {
		t.Errorf("mounted: %v", left)
	}
}

func TestJailLimits(t *testing.T) {
	n := playedNode(t, func(f *fakefreebsd.Fake) { f.Sysctl("kern.racct.enable", "1") })
	s := n.spec(noReaper)
	s.MemoryBytes, s.Pids = 1<<20, 7
	n.start(s)
	want := []string{"jail:" + s.ID + ":memoryuse:sigkill=1048576", "jail:" + s.ID + ":maxproc:deny=7"}
	got := n.fake().World().Rctl
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if w := n.Warnings(); len(w) > 0 {
		t.Errorf("warnings: %q", w)
	}
	n.remove(s.ID)
	n.gone(s.ID)
	if got := n.fake().World().Rctl; len(got) > 0 {
		t.Errorf("left: %q", got)
	}
	// A limit that cannot be set is no limit.
	n.fake().Fail("rctl -a", 1)
	s = n.spec(noReaper)
	s.Pids = 7
	if _, err := n.Create(context.Background(), s); err == nil || !strings.Contains(err.Error(), "rctl -a jail:"+s.ID+":maxproc:deny=7") {
		t.Errorf("%v", err)
	}
	n.gone(s.ID)
}

func TestJailLimitsAreNotEnforced(t *testing.T) {
	n := newNode(t)
	s := n.spec(noReaper)
	s.MemoryBytes = 1 << 20
	n.start(s)
	if w := n.Warnings(); len(w) != 1 || !strings.Contains(w[0], "kern.racct.enable=1") {
		t.Errorf("warnings: %q", w)
	}
	if calls := n.fake().CallsOf("rctl -a"); len(calls) > 0 {
		t.Errorf("%q", calls)
	}
}

func TestLinuxImages(t *testing.T) {
	n := playedNode(t, func(f *fakefreebsd.Fake) {
		f.Module("linux64elf")
		f.Sysctl("compat.linux.osrelease", "5.15.0")
	})
	s := n.spec("cat /proc/version >/dev/null && echo proc; ls -d /sys /dev/shm; exec sleep 1000")
	s.OS = "linux"
	n.start(s)
	n.says(s.ID, "/sys")
	var types []string
	for _, m := range n.fake().World().Mounts {
		if strings.HasPrefix(m.On, s.Rootfs+"/") {
			types = append(types, strings.TrimPrefix(m.On, s.Rootfs)+" "+m.Type)
		}
	}
	if want := []string{"/proc linprocfs", "/sys linsysfs", "/dev devfs", "/dev/fd fdescfs", "/dev/shm tmpfs"}; !slices.Equal(types, want) {
		t.Errorf("%q", types)
	}
	n.remove(s.ID)
	n.gone(s.ID)
	if left := n.mounted(s); len(left) > 0 {
		t.Errorf("mounted: %v", left)
	}
}

// The shim that started a container dies before it did what it wrote down: the
// next one does it.
func TestJailStartIsDone(t *testing.T) {
	n := newNode(t)
	ctx := context.Background()
	s := n.spec("echo runs; exit 4")
	n.create(s)
	if err := os.WriteFile(n.file(s.ID, "started.json"), []byte(`{"At":"2026-01-01T00:00:00Z"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Start(ctx, s.ID); err != nil {
		t.Fatal(err)
	}
	if e := n.wait(s.ID); e.Code != 4 && e.Code != -1 {
		t.Errorf("%+v", e)
	}
	if out, _ := n.output(s.ID); out != "runs\n" {
		t.Errorf("%q", out)
	}
	if _, err := n.Start(ctx, s.ID); err != nil {
		t.Errorf("again: %v", err)
	}
}

// On a full disk a container is deleted all the same: that is what makes room.
func TestJailDeleteOnFullDisk(t *testing.T) {
	needRuntime(t)
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=24m"); err != nil {
		t.Skipf("SKIPPED: mount tmpfs: %v", err)
	}
	t.Cleanup(func() {
		var err error
		for range 100 { // the shim may be gone a moment before it has let go
			if err = syscall.Unmount(dir, 0); err == nil {
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
		syscall.Unmount(dir, syscall.MNT_DETACH)
		t.Errorf("unmount: %v", err)
	})
	n := &node{t: t, state: dir}
	n.open()
	t.Cleanup(n.finish)
	s := n.spec(noReaper)
	n.start(s)
	full, err := os.Create(filepath.Join(dir, "full"))
	if err != nil {
		t.Fatal(err)
	}
	for piece := 1 << 20; piece > 0; {
		if _, err := full.Write(make([]byte, piece)); err != nil {
			piece /= 2
		}
	}
	full.Close()
	if err := os.WriteFile(filepath.Join(dir, "more"), make([]byte, 1), 0o644); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("the disk is not full: %v", err)
	}
	n.remove(s.ID)
	if there, dying := n.jailed(s.ID); there && !dying {
		t.Error("the jail lives")
	}
	n.gone(s.ID)
	if left := n.mounted(s); len(left) > 0 {
		t.Errorf("mounted: %v", left)
	}
	os.Remove(filepath.Join(dir, "full"))
	if e := n.wait(s.ID); e.Code != 137 && e.Code != -1 {
		t.Errorf("%+v", e)
	}
}
