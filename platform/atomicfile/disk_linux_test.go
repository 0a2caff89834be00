// SPDX-License-Identifier: BSD-2-Clause

package atomicfile

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// mount mounts a file system for the test.
func mount(t *testing.T, source, dir, kind, options string) {
	t.Helper()
	if err := unix.Mount(source, dir, kind, 0, options); err != nil {
		t.Skipf("SKIPPED: cannot mount %s: %v", kind, err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Errorf("unmount %s: %v", dir, err)
		}
	})
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("SKIPPED: needs root to mount file systems")
	}
}

// On a full disk the old content stays, and the room that the attempt took is
// free again.
func TestFullDisk(t *testing.T) {
	needRoot(t)
	for name, write := range ways {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			mount(t, "tmpfs", dir, "tmpfs", "size=256k")
			path := filepath.Join(dir, "f")
			old := strings.Repeat("old", 20<<10)
			put(t, path, old, 0o600)
			for range 3 {
				if err := write(path, bytes.Repeat([]byte("new"), 80<<10), 0o600); !errors.Is(err, unix.ENOSPC) {
					t.Fatalf("error %v", err)
				}
				if read(t, path) != old {
					t.Fatal("the old content is gone")
				}
				holds(t, dir, "f")
			}
			if err := write(path, bytes.Repeat([]byte("fit"), 20<<10), 0o600); err != nil {
				t.Errorf("what there is room for: %v", err)
			}
		})
	}
}

func TestReadOnlyDirectory(t *testing.T) {
	needRoot(t)
	for name, write := range ways {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			mount(t, "tmpfs", dir, "tmpfs", "size=256k")
			path := filepath.Join(dir, "f")
			put(t, path, "old", 0o600)
			if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
				t.Fatal(err)
			}
			if err := write(path, []byte("new"), 0o600); !errors.Is(err, unix.EROFS) {
				t.Errorf("error %v", err)
			}
			if got := read(t, path); got != "old" {
				t.Errorf("it holds %q", got)
			}
			holds(t, dir, "f")
		})
	}
}

// A directory that is this user's to read alone.
func TestForbiddenDirectory(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("root may write everywhere: see TestReadOnlyDirectory")
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	put(t, path, "old", 0o600)
	if err := os.Chmod(dir, 0o500); err != nil {
		t.Fatal(err)
	}
	defer os.Chmod(dir, 0o700)
	if err := Write(path, []byte("new"), 0o600); !errors.Is(err, fs.ErrPermission) || read(t, path) != "old" {
		t.Errorf("error %v, content %q", err, read(t, path))
	}
	holds(t, dir, "f")
}

// shutDown cuts a file system off from its disk at once, and what it has not
// written by then is lost: ext4's EXT4_IOC_SHUTDOWN with NOLOGFLUSH, made for
// tests like this one.
func shutDown(t *testing.T, dir string) {
	t.Helper()
	const (
		shutdown   = 0x8004587d // _IOR('X', 125, __u32)
		noLogFlush = 2
	)
	d, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := unix.IoctlSetPointerInt(int(d.Fd()), shutdown, noLogFlush); err != nil {
		t.Skipf("SKIPPED: this kernel cannot shut ext4 down: %v", err)
	}
}

// The power is cut the moment a call returns: what was written durably is
// there, under a new name too, and what was written otherwise is, on ext4, old or
// new.
func TestPowerCut(t *testing.T) {
	needRoot(t)
	disk, dir := filepath.Join(t.TempDir(), "disk"), t.TempDir()
	put(t, disk, "", 0o600)
	if err := os.Truncate(disk, 16<<20); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mkfs.ext4", "-q", "-F", disk).CombinedOutput(); err != nil {
		t.Skipf("SKIPPED: mkfs.ext4: %v %s", err, out)
	}
	mounted := func(do func()) {
		// The tool finds and lets go of a loop device; nobody else could.
		if out, err := exec.Command("mount", "-o", "loop", disk, dir).CombinedOutput(); err != nil {
			t.Skipf("SKIPPED: mount: %v %s", err, out)
		}
		defer func() {
			if err := unix.Unmount(dir, 0); err != nil {
				t.Errorf("unmount %s: %v", dir, err)
			}
		}()
		do()
	}
	file := func(name string) string { return filepath.Join(dir, name) }
	old, fresh := strings.Repeat("old", 5000), strings.Repeat("new", 5000)
	mounted(func() {
		for _, name := range []string{"durable", "not"} {
			if err := WriteDurably(file(name), []byte(old), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	})
	mounted(func() {
		if err := WriteDurably(file("durable"), []byte(fresh), 0o640); err != nil {
			t.Fatal(err)
		}
		if err := WriteDurably(file("made"), []byte(fresh), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := Write(file("not"), []byte(fresh), 0o600); err != nil {
			t.Fatal(err)
		}
		shutDown(t, dir)
	})
	mounted(func() {
		if read(t, file("durable")) != fresh || read(t, file("made")) != fresh {
			t.Error("what was written durably is lost")
		}
		if st, err := os.Stat(file("durable")); err != nil || st.Mode() != 0o640 {
			t.Errorf("its mode: %v, %v", st, err)
		}
		if got := read(t, file("not")); got != old && got != fresh {
			t.Errorf("what was not is %d bytes, neither old nor new", len(got))
		} else {
			t.Logf("what was not written durably is lost: %v", got == old)
		}
	})
}
