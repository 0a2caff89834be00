// SPDX-License-Identifier: BSD-2-Clause

package image

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// TestRemoveTreeStopsAtMounts is cases/jail.md, jail-3: what is mounted below
// is somebody's data.
func TestRemoveTreeStopsAtMounts(t *testing.T) {
	needRoot(t)
	top := t.TempDir()
	data, dir := filepath.Join(top, "data"), filepath.Join(top, "dir")
	point := filepath.Join(dir, "a", "mount point")
	for _, d := range []string{data, point} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write(t, "precious", data, "file")
	write(t, "x", dir, "first")
	if err := unix.Mount(data, point, "", unix.MS_BIND, ""); err != nil { // the same device as dir
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(point, unix.MNT_DETACH) })

	err := RemoveTree(dir)
	if !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), point) {
		t.Errorf("RemoveTree: %v, want it refused with the mount in the text", err)
	}
	if content(t, dir, "first") != "x" {
		t.Error("something was deleted before the mount was seen")
	}
	// The second look, without the first one's list.
	parent, err := os.Open(top)
	if err != nil {
		t.Fatal(err)
	}
	defer parent.Close()
	if err := removeAt(parent, "dir"); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("removeAt: %v, want it refused", err)
	}
	if content(t, data, "file") != "precious" {
		t.Fatal("the delete crossed the mount")
	}
	if err := unix.Unmount(point, 0); err != nil {
		t.Fatal(err)
	}
	if err := RemoveTree(dir); err != nil {
		t.Errorf("after the unmount: %v", err)
	}
	missing(t, dir)
}

// TestOpenDirSameDevice is the check that systems without openat2 rely on.
func TestOpenDirSameDevice(t *testing.T) {
	needRoot(t)
	top := t.TempDir()
	point := filepath.Join(top, "tmpfs")
	if err := os.Mkdir(point, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", point, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(point, unix.MNT_DETACH) })
	parent, err := os.Open(top)
	if err != nil {
		t.Fatal(err)
	}
	defer parent.Close()
	if fd, err := openDirSameDevice(int(parent.Fd()), "tmpfs"); err != unix.EXDEV {
		unix.Close(fd)
		t.Errorf("entering another device: %v, want EXDEV", err)
	}
}
