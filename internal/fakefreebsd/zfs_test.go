// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package fakefreebsd

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func device(t *testing.T, path string) uint64 {
	t.Helper()
	var st syscall.Stat_t
	if err := syscall.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	return st.Dev
}

func TestDatasets(t *testing.T) {
	needRoot(t)
	h := newHost(t)
	h.Pool("zroot")
	dir := t.TempDir()
	h.refused("cannot open 'zroot/none': dataset does not exist", "zfs list -H -o name zroot/none")
	h.do("zfs create -o mountpoint=" + dir + "/satl zroot/satl")
	h.do("zfs create zroot/satl/layers")
	if device(t, dir+"/satl") == device(t, dir) || device(t, dir+"/satl") == device(t, dir+"/satl/layers") {
		t.Error("each file system has a device number of its own")
	}
	h.do("zfs create -o canmount=noauto zroot/satl/layers/a")
	h.do("zfs mount zroot/satl/layers/a")
	file := filepath.Join(dir, "satl/layers/a/file")
	if err := os.WriteFile(file, []byte("one"), 0o640); err != nil {
		t.Fatal(err)
	}
	h.do("zfs snapshot zroot/satl/layers/a@final")
	if err := os.WriteFile(file, []byte("two"), 0o640); err != nil {
		t.Fatal(err)
	}
	h.do("zfs clone -o mountpoint=" + dir + "/root zroot/satl/layers/a@final zroot/satl/c")
	if data, err := os.ReadFile(dir + "/root/file"); err != nil || string(data) != "one" {
		t.Errorf("%q, %v: a clone is what the snapshot was", data, err)
	}
	sample(t, "zfs_list.txt", strings.ReplaceAll(h.do("zfs list -H -o name,origin,mountpoint -r -t filesystem,snapshot zroot/satl"), dir, "/DIR"))
	if got := h.do("zfs get -H -o value mountpoint zroot"); got != "none\n" {
		t.Errorf("%q", got)
	}
	h.refused("cannot destroy 'zroot/satl/layers/a@final': snapshot has dependent clones", "zfs destroy zroot/satl/layers/a@final")
	h.refused("cannot destroy 'zroot/satl/layers/a': filesystem has children", "zfs destroy zroot/satl/layers/a")
	h.refused("cannot destroy 'zroot/satl/layers/a': filesystem has dependent clones", "zfs destroy -r zroot/satl/layers/a")
	h.do("zfs destroy -d zroot/satl/layers/a@final")
	held, err := os.Open(dir + "/root/file")
	if err != nil {
		t.Fatal(err)
	}
	h.refused("cannot unmount '"+dir+"/root': pool or dataset is busy", "zfs destroy zroot/satl/c")
	held.Close()
	if got := h.do("mount -p"); !strings.Contains(got, "zroot/satl/c\t\t"+dir+"/root") {
		t.Errorf("%s", got)
	}
	h.do("zfs destroy zroot/satl/c")
	if got := h.do("zfs list -H -o name -t all -r zroot/satl/layers"); got != "zroot/satl/layers\nzroot/satl/layers/a\n" {
		t.Errorf("%q: the snapshot went with its last clone", got)
	}
	h.do("zfs unmount zroot/satl/layers/a")
	if _, err := os.Stat(file); err == nil {
		t.Error("unmounted, and the file is there")
	}
	h.do("zfs mount zroot/satl/layers/a")
	if data, err := os.ReadFile(file); err != nil || string(data) != "two" {
		t.Errorf("%q, %v", data, err)
	}
}

func TestDyingJailHoldsItsDataset(t *testing.T) {
	r := newRuntime(t)
	r.Pool("zroot")
	dir := t.TempDir()
	r.do("zfs create -o mountpoint=" + dir + " zroot/c")
	if err := os.CopyFS(dir, os.DirFS(root(t))); err != nil {
		t.Fatal(err)
	}
	r.create("web", bundle(t, dir, nil, "sh", "-c", "sleep 1000"))
	r.Dying(-1)
	r.must("delete", "--force", "web")
	r.refused("cannot unmount '"+dir+"': pool or dataset is busy", "zfs destroy zroot/c")
	r.refused("umount: unmount of "+dir+" failed: Device busy", "umount "+dir)
	r.Bury()
	r.do("zfs destroy zroot/c")
}
