// SPDX-License-Identifier: BSD-2-Clause

package freebsd

import (
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/docker/docker/api/types/swarm"

	"satld/internal/fakefreebsd"
	"satld/internal/fakefreebsd/world"
	"satld/network/nettest"
)

// Without the three lines in the operator's ruleset satld does not start, says
// which, and changes nothing.
func TestRefusesWithoutAnchors(t *testing.T) {
	t.Parallel()
	r := newHost(t)
	r.ruleset = strings.ReplaceAll(r.ruleset, "satl", "other")
	r.MainRuleset(r.ruleset)
	cmd := r.satld(r.flags()...)
	var out []byte
	err := r.ns.Do(func() (err error) { out, err = cmd.CombinedOutput(); return err })
	if err == nil || cmd.ProcessState.ExitCode() != 1 {
		t.Errorf("satld ended with %v", err)
	}
	for _, line := range []string{`nat-anchor "satl/*"`, `rdr-anchor "satl/*"`, `anchor "satl/*"`} {
		if !strings.Contains(string(out), line) {
			t.Errorf("no %s in\n%s", line, out)
		}
	}
	// What there is to take away goes without them, and the rest is told.
	cmd = r.satld(append([]string{"cleanup"}, r.flags()...)...)
	err = r.ns.Do(func() (err error) { out, err = cmd.CombinedOutput(); return err })
	if err == nil || !strings.Contains(string(out), "rules may be left in the packet filter") {
		t.Errorf("cleanup ended with %v: %s", err, out)
	}
	r.ruleset = fakefreebsd.MainRuleset // for the cleanup at the end
	r.MainRuleset(r.ruleset)
}

// Images for Linux run when the Linuxulator is loaded, with its file systems,
// and are refused with the reason when it is not.
func TestLinuxImages(t *testing.T) {
	t.Parallel()
	r := newRing(t)
	create := func(name string) {
		r.docker("service", "create", "--detach", "--no-resolve-image", "--name", name, "--restart-condition", "none", "linux:1")
	}
	create("refused")
	r.until("the refusal", func() bool {
		return slices.ContainsFunc(r.tasks("refused"), func(t swarm.Task) bool {
			return t.Status.State == swarm.TaskStateRejected || t.Status.State == swarm.TaskStateFailed
		})
	})
	if err := r.tasks("refused")[0].Status.Err; !strings.Contains(err, "Linuxulator") {
		t.Errorf("refused with %q", err)
	}
	for _, m := range []string{"linux", "linux64", "linux_common", "linux64elf"} {
		r.Module(m)
	}
	r.Sysctl("compat.linux.osrelease", "5.15.0")
	create("runs")
	task := r.awaitRunning("runs", 1)[0]
	mounts, err := r.Run("mount", "-p")
	if err != nil {
		t.Fatal(err)
	}
	root := r.World().Jail(r.jailOf(task)).Path
	for _, want := range []string{"linprocfs\t\t" + root + "/proc ", "linsysfs\t\t" + root + "/sys "} {
		if !strings.Contains(mounts, want) {
			t.Errorf("no %q in\n%s", want, mounts)
		}
	}
}

// On ZFS every root is a clone; a dying jail holds it, and it is destroyed when
// the jail is gone.
func TestRootsOnZFS(t *testing.T) {
	t.Parallel()
	r := newHost(t)
	r.Pool("zroot")
	if _, err := r.Run("zfs", "create", "-o", "mountpoint="+r.state, "zroot/satl"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if left := r.Datasets(); !slices.Equal(left, []string{"zroot"}) {
			t.Errorf("datasets are left: %v", left)
		}
	})
	t.Cleanup(func() {
		r.end(syscall.SIGTERM)
		r.destroyPool()
	})
	r.up()
	r.Dying(-1)
	r.web("--replicas", "2")
	tasks := r.awaitRunning("web", 2)
	clones := func() (names []string) {
		for _, d := range r.Datasets() {
			if strings.HasPrefix(d, "zroot/satl/containers/") {
				names = append(names, d)
			}
		}
		return names
	}
	if n := len(clones()); n != 2 {
		t.Errorf("%d clones for 2 tasks: %v", n, r.Datasets())
	}
	r.awaitPool(webTable, r.addrsOf(tasks))
	r.docker("service", "rm", "web")
	r.until("dying jails", func() bool { _, dying := r.Jails(); return len(dying) == 2 })
	r.until("the end of the containers", func() bool { return r.docker("ps", "-q") == "" })
	if n := len(clones()); n != 2 {
		t.Errorf("%d clones are left of 2 that dying jails hold", n)
	}
	r.Bury()
	r.until("the end of the clones", func() bool { return len(clones()) == 0 })
}

// destroyPool is what an operator does who wants no satld any more.
func (r *ring) destroyPool() {
	r.t.Helper()
	cmd := r.satld(append([]string{"cleanup"}, r.flags()...)...)
	var out []byte
	if err := r.ns.Do(func() (err error) { out, err = cmd.CombinedOutput(); return err }); err != nil {
		r.t.Errorf("cleanup: %v\n%s", err, out)
	}
	r.until("nobody on the dataset", func() bool { _, err := r.Run("zfs", "unmount", "zroot/satl"); return err == nil })
	names := r.Datasets()
	for _, d := range slices.Backward(names) {
		if strings.Contains(d, "@") {
			if _, err := r.Run("zfs", "destroy", "-d", d); err != nil {
				r.t.Error(err)
			}
		}
	}
	if _, err := r.Run("zfs", "destroy", "-r", "zroot/satl"); err != nil {
		r.t.Error(err)
	}
}

// A tool that is late, fails or hangs on the way into a jail costs an attempt
// and leaves nothing.
func TestTroubleWithTools(t *testing.T) {
	t.Parallel()
	r := newRing(t)
	r.Fail("ifconfig -j", 1)
	r.Fail(" create -b", 1)
	r.Fail("epair", 1)
	r.Knobs(func(k *world.Knobs) { k.PidFileLate = 200 * time.Millisecond })
	r.web()
	task := r.awaitRunning("web", 1)[0]
	r.awaitPool(webTable, []string{r.addrOf(task)})
	for _, hits := range r.Clear() {
		if hits != 1 {
			t.Errorf("a fault hit %d calls, want 1", hits)
		}
	}
	if live, _ := r.Jails(); len(live) != 1 {
		t.Errorf("jails %v", live)
	}
	if n := len(slices.DeleteFunc(r.World().Links, func(l *world.Link) bool { return l.Kind != "epair" })); n != 4 { // two of each network
		t.Errorf("%d ends of links for one task", n)
	}
}

// A crash of ocijail's create leaves a jail and mounts that its own delete does
// not see; the next start of satld takes them away.
func TestStrayJailsAreSwept(t *testing.T) {
	t.Parallel()
	r := newRing(t)
	r.Add(fault{Match: " create -b", Times: 1, Crash: true})
	r.web()
	r.awaitRunning("web", 1)
	r.until("one jail alone", func() bool { return r.jailsAre(1) })
	r.end(syscall.SIGKILL)
	// And one that nobody has a record of.
	stray := r.state + "/containers/stray/rootfs"
	nettest.Must(t, makeStray(r, stray))
	r.start()
	r.until("its end", func() bool {
		live, _ := r.Jails()
		return !slices.Contains(live, "stray")
	})
	r.awaitRunning("web", 1)
}
