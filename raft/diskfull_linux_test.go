// SPDX-License-Identifier: BSD-2-Clause

package raft

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// smallDisk mounts a file system of a few MiB for the test.
func smallDisk(t *testing.T) string {
	if os.Getuid() != 0 {
		t.Skip("needs root to mount a small file system")
	}
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=4m"); err != nil {
		t.Skipf("cannot mount a tmpfs: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Errorf("unmount %s: %v", dir, err)
		}
	})
	return dir
}

// fillUp writes a file until there is no room left and returns its path.
func fillUp(t *testing.T, dir string) string {
	t.Helper()
	path := filepath.Join(dir, "ballast")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for size := 64 << 10; size > 0; {
		if _, err := f.Write(make([]byte, size)); err != nil {
			size /= 2
		}
	}
	return path
}

// TestFullDisk: the write that fails says why, so do the next ones, nothing
// that was acknowledged is lost, and once there is room the node leads again.
func TestFullDisk(t *testing.T) {
	disk := smallDisk(t)
	dir := filepath.Join(disk, "raft")
	m := solo(t, Config{Dir: dir, SnapshotInterval: 20 * time.Millisecond, SnapshotThreshold: 16})
	fill(t, m, 20)
	ballast := fillUp(t, disk)

	acked := 20
	var err error
	for i := range 500 {
		if err = m.create(fmt.Sprintf("full%05d", i), strings.Repeat("x", 2000)+fmt.Sprint(i)); err != nil {
			break
		}
		acked++
	}
	if err == nil {
		t.Fatal("the disk never became full")
	}
	t.Logf("after %d writes: %v", acked, err)
	if !errors.As(err, new(*WriteError)) || !strings.Contains(err.Error(), "no space left") {
		t.Errorf("the write that met the full disk: %v", err)
	}
	eventually(t, 5*time.Second, "the node says what keeps it from leading", func() bool { return m.Trouble() != nil })
	if err := m.create("next", "next"); !errors.Is(err, ErrStorage) || !strings.Contains(err.Error(), "no space left") {
		t.Errorf("the next write: %v", err)
	}
	if n := len(names(m.Store())); n != acked {
		t.Errorf("%d services can be read, %d were acknowledged", n, acked)
	}

	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	// Between two vain attempts to write it leads for a moment, too.
	eventually(t, 5*time.Second, "the node leads again", func() bool { return m.Leads() && m.Trouble() == nil })
	t.Logf("leading %v after there was room", time.Since(begin))
	if err := m.create("after", "after"); err != nil {
		t.Fatal(err)
	}
	m.stop()
	m = solo(t, Config{Dir: dir})
	got := names(m.Store())
	if got["after"] != "after" || len(got) < acked+1 || len(got) > acked+2 {
		t.Errorf("%d services after a restart, %d were acknowledged", len(got), acked+1)
	}
}

// TestStopOnFullDisk: a node that waits for room can be stopped.
func TestStopOnFullDisk(t *testing.T) {
	disk := smallDisk(t)
	m := solo(t, Config{Dir: filepath.Join(disk, "raft")})
	ballast := fillUp(t, disk)
	for i := 0; m.Trouble() == nil && i < 2000; i++ {
		m.create(fmt.Sprintf("full%05d", i), strings.Repeat("x", 2000)+fmt.Sprint(i))
	}
	if m.Trouble() == nil {
		t.Fatal("the disk never became full")
	}
	begin := time.Now()
	m.stop()
	if d := time.Since(begin); d > time.Second {
		t.Errorf("stopping took %v", d)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	m = solo(t, Config{Dir: m.cfg.Dir})
	if err := m.create("after", "after"); err != nil {
		t.Error(err)
	}
}
