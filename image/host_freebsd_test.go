// SPDX-License-Identifier: BSD-2-Clause

//go:build freebsdhost

package image

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sys/unix"

	"satld/platform/command"
)

// Tests on a real FreeBSD host, as root: scripts/freebsd-test runs them.

func sh(t testing.TB, argv ...string) string {
	t.Helper()
	out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", strings.Join(argv, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// mountOn mounts something for the length of a test.
func mountOn(t testing.TB, point string, argv ...string) {
	t.Helper()
	if err := os.MkdirAll(point, 0o755); err != nil {
		t.Fatal(err)
	}
	sh(t, append(append([]string{"mount"}, argv...), point)...)
	t.Cleanup(func() { _ = unix.Unmount(point, unix.MNT_FORCE) })
}

// realDir is a temporary directory by its real path, as mount tables have it.
func realDir(t testing.TB) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestHostMountTable: what `mount -p` says is what getfsstat(2) says.
func TestHostMountTable(t *testing.T) {
	needRoot(t)
	dir := realDir(t)
	for _, name := range []string{"a b", "short", "with a long name of many characters", "tmpfs rw"} {
		mountOn(t, filepath.Join(dir, name), "-t", "tmpfs", "-o", "size=1m", "tmpfs")
		mountOn(t, filepath.Join(dir, "of "+name), "-t", "nullfs", filepath.Join(dir, name))
	}
	table, err := mountTable(t.Context(), command.Run)
	if err != nil {
		t.Fatal(err)
	}
	n, err := unix.Getfsstat(nil, unix.MNT_NOWAIT)
	if err != nil {
		t.Fatal(err)
	}
	all := make([]unix.Statfs_t, n)
	if n, err = unix.Getfsstat(all, unix.MNT_NOWAIT); err != nil {
		t.Fatal(err)
	}
	for _, fs := range all[:n] {
		want := mountEntry{from: unix.ByteSliceToString(fs.Mntfromname[:]), on: unix.ByteSliceToString(fs.Mntonname[:]), kind: unix.ByteSliceToString(fs.Fstypename[:])}
		if !slices.Contains(table, want) {
			t.Errorf("%+v is not in the table", want)
		}
	}
	t.Logf("%d mounts, %d readings of `mount -p`", n, len(table))
}

// TestHostRemoveStopsAtMounts is cases/jail.md, jail-3, with nullfs and devfs.
func TestHostRemoveStopsAtMounts(t *testing.T) {
	needRoot(t)
	top := realDir(t)
	data, dir := filepath.Join(top, "data"), filepath.Join(top, "dir")
	if err := errors.Join(os.Mkdir(data, 0o755), os.Mkdir(dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	write(t, "precious", data, "file")
	write(t, "x", dir, "first")
	point := filepath.Join(dir, "a", "data")
	mountOn(t, point, "-t", "nullfs", data)
	mountOn(t, filepath.Join(dir, "dev"), "-t", "devfs", "devfs")
	if err := RemoveTree(dir); !IsBusy(err) || !strings.Contains(err.Error(), point) || !strings.Contains(err.Error(), "/dev") {
		t.Errorf("RemoveTree: %v, want it refused with both mounts", err)
	}
	if content(t, dir, "first") != "x" {
		t.Error("something was deleted before the mounts were seen")
	}
	parent, err := os.Open(top)
	if err != nil {
		t.Fatal(err)
	}
	defer parent.Close()
	if err := removeAt(parent, "dir"); !IsBusy(err) {
		t.Errorf("removeAt: %v, want it refused", err)
	}
	if content(t, data, "file") != "precious" {
		t.Fatal("the delete crossed the mount")
	}
	for _, m := range []string{point, filepath.Join(dir, "dev")} {
		if err := unix.Unmount(m, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := RemoveTree(dir); err != nil {
		t.Errorf("after the unmounts: %v", err)
	}
	missing(t, dir)
}

// TestHostClearMounts takes off what a crash left in tmp, in use or not.
func TestHostClearMounts(t *testing.T) {
	needRoot(t)
	dir := realDir(t)
	point := filepath.Join(dir, "chain")
	mountOn(t, point, "-t", "tmpfs", "-o", "size=1m", "tmpfs")
	mountOn(t, filepath.Join(point, "inner"), "-t", "tmpfs", "-o", "size=1m", "tmpfs")
	write(t, "x", point, "held")
	held, err := os.Open(filepath.Join(point, "held"))
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if err := clearMounts(dir); err != nil {
		t.Fatal(err)
	}
	if left, err := mountsBelow(dir); err != nil || len(left) > 0 {
		t.Errorf("left: %v %v", left, err)
	}
}

// zfsHost is a dataset of a pool on a file, mounted at the state directory.
func zfsHost(t testing.TB) (dataset, state string) {
	t.Helper()
	needRoot(t)
	if _, err := exec.LookPath("zpool"); err != nil {
		t.Skip("SKIPPED: no zpool(8) on this host")
	}
	if out, err := exec.Command("kldload", "-n", "zfs").CombinedOutput(); err != nil {
		t.Skipf("SKIPPED: zfs.ko cannot be loaded: %s", out)
	}
	dir := realDir(t)
	disk, pool := filepath.Join(dir, "disk"), fmt.Sprintf("satltest%d", os.Getpid())
	f, err := os.Create(disk)
	if err == nil {
		err = errors.Join(f.Truncate(256<<20), f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	state = filepath.Join(dir, "state")
	sh(t, "zpool", "create", "-m", "none", pool, disk)
	t.Cleanup(func() { sh(t, "zpool", "destroy", "-f", pool) })
	sh(t, "zfs", "create", "-o", "mountpoint="+state, pool+"/satl")
	return pool + "/satl", state
}

// TestHostZFS is the life of containers on clones, with what holds a root.
func TestHostZFS(t *testing.T) {
	root, state := zfsHost(t)
	s := open(t, Config{StateDir: state}) // found by its mount
	if s.roots.kind() != "zfs" {
		t.Fatalf("roots are of kind %s", s.roots.kind())
	}
	img := load(t, s, twoLayers(t))
	one := mount(t, s, img.ID, "c1")
	checkRoot(t, one)
	missing(t, mount(t, s, img.ID, "c2"), "new")
	write(t, string(noise(1<<20)), one, "new")
	sh(t, "zpool", "sync", strings.Split(root, "/")[0])
	if n, err := s.Usage(t.Context(), "c1"); err != nil || n < 1<<20 || n > 2<<20 {
		t.Errorf("usage %d %v, want about 1 MiB", n, err)
	}
	held, err := os.Open(filepath.Join(one, "new"))
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if err := s.Release(t.Context(), "c1"); !IsBusy(err) {
		t.Errorf("release of a held root: %v, want it busy", err)
	}
	held.Close()
	inner := filepath.Join(one, "var")
	mountOn(t, inner, "-t", "tmpfs", "-o", "size=1m", "tmpfs")
	if err := s.Release(t.Context(), "c1"); !IsBusy(err) || !strings.Contains(err.Error(), inner) {
		t.Errorf("release with a mount within: %v, want it busy and the mount named", err)
	}
	if err := unix.Unmount(inner, 0); err != nil {
		t.Fatal(err)
	}
	if err := s.Unmount(t.Context(), "c1"); err != nil {
		t.Fatal(err)
	}
	if n := len(content(t, mount(t, s, img.ID, "c1"), "new")); n != 1<<20 {
		t.Errorf("new has %d bytes after a new mount", n)
	}
	// As after a backup, a crash while a layer was made, and a reboot.
	sh(t, "zfs", "snapshot", "-r", root+"@backup")
	s.Close()
	sh(t, "zfs", "create", "-o", "canmount=noauto", "-o", "mountpoint=none", root+"/layers/"+strings.Repeat("ab", 32))
	sh(t, "zfs", "unmount", root+"/containers/c1")
	s = open(t, Config{StateDir: state, ZFSRoot: root})
	if n := len(content(t, mount(t, s, img.ID, "c1"), "new")); n != 1<<20 {
		t.Errorf("new has %d bytes after a restart", n)
	}
	if err := errors.Join(s.Release(t.Context(), "c1"), s.Release(t.Context(), "c2")); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Remove(t.Context(), "web:1", false); err != nil {
		t.Fatal(err)
	}
	left := sh(t, "zfs", "list", "-H", "-o", "name", "-t", "filesystem", "-r", root)
	if want := strings.Join([]string{root, root + "/containers", root + "/layers"}, "\n"); left != want {
		t.Errorf("datasets left:\n%s\nwant\n%s", left, want)
	}
	if _, err := Open(Config{StateDir: realDir(t), ZFSRoot: root}); err == nil {
		t.Error("another state directory takes the same dataset")
	}
	tidy(t, s)
}

// TestHostZFSMessages: the texts that are told apart are those of this host.
func TestHostZFSMessages(t *testing.T) {
	root, _ := zfsHost(t)
	d := datasets{root: root, state: "/none", run: command.Run}
	ctx := context.Background()
	if _, ok, err := d.one(ctx, root+"/none"); ok || err != nil {
		t.Errorf("a missing dataset: %v %v", ok, err)
	}
	if all, err := d.below(ctx, root+"/none"); len(all) > 0 || err != nil {
		t.Errorf("below a missing dataset: %v %v", all, err)
	}
	if err := d.destroy(ctx, d.container("none")); err != nil {
		t.Errorf("destroying what is not there: %v", err)
	}
	if err := d.prepare(ctx); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(d.create(ctx, d.layer("a"), "", "none"), d.snapshot(ctx, d.layer("a")),
		d.zfs(ctx, "hold", "satl", d.layer("a")+"@final")); err != nil {
		t.Fatal(err)
	}
	if err := d.destroy(ctx, d.layer("a")); !IsBusy(err) {
		t.Errorf("destroying what is on hold: %v, want it busy", err)
	}
	if err := errors.Join(d.zfs(ctx, "release", "satl", d.layer("a")+"@final"), d.destroy(ctx, d.layer("a"))); err != nil {
		t.Errorf("after the hold: %v", err)
	}
}

// TestHostCopies is the life of a container where there is no dataset.
func TestHostCopies(t *testing.T) {
	s := open(t, Config{StateDir: realDir(t), ZFSRoot: "off"})
	img := load(t, s, saved(t, "web:1", v1.Config{}, baseLayer(t), topLayer(t)))
	root := mount(t, s, img.ID, "c")
	checkRoot(t, root)
	mountOn(t, filepath.Join(root, "dev"), "-t", "devfs", "devfs")
	if err := s.Release(t.Context(), "c"); !IsBusy(err) {
		t.Errorf("release with a devfs within: %v, want it busy", err)
	}
	if err := unix.Unmount(filepath.Join(root, "dev"), 0); err != nil {
		t.Fatal(err)
	}
	if err := s.Release(t.Context(), "c"); err != nil {
		t.Error(err)
	}
	tidy(t, s)
}
