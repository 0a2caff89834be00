// SPDX-License-Identifier: BSD-2-Clause

package fakefreebsd

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"satld/internal/fakefreebsd/world"
)

// remove ends the host: nothing of it is left on this machine, and the test
// fails when that cannot be done.
func (f *Fake) remove(dir string) {
	w, err := world.Read(f.state)
	if err != nil {
		f.t.Errorf("the fake FreeBSD is lost, look for what it has mounted: %v", err)
		return
	}
	for _, wrong := range w.Wrongs {
		f.t.Errorf("no real host would forgive: %s", wrong)
	}
	for _, j := range w.Jails {
		killRoot(j.RootDev, j.RootIno)
		if j.NetNS != "" {
			_ = unix.Unmount(j.NetNS, unix.MNT_DETACH) // EINVAL: it is not there
		}
	}
	for _, m := range slices.Backward(w.Mounts) {
		if m.Real {
			_ = unix.Unmount(m.On, unix.MNT_DETACH) // EINVAL: somebody else did
		}
	}
	// Datasets lie in mounts of our own; nothing is deleted across one that is left.
	for _, point := range slices.Backward(mountsIn(dir)) {
		_ = unix.Unmount(point, unix.MNT_DETACH)
	}
	if left := mountsIn(dir); len(left) > 0 {
		f.t.Errorf("mounts are left: %v", left)
		return
	}
	if err := os.RemoveAll(dir); err != nil {
		f.t.Error(err)
	}
}

// mountsIn are the mount points below a directory, parents first.
func mountsIn(dir string) (points []string) {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return []string{err.Error()}
	}
	for line := range strings.Lines(string(mounts)) {
		if fields := strings.Fields(line); len(fields) > 1 && strings.HasPrefix(fields[1], dir+"/") {
			points = append(points, fields[1])
		}
	}
	return points
}

// killRoot kills whoever has a directory for a root.
func killRoot(dev, ino uint64) {
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		left := false
		roots, _ := filepath.Glob("/proc/[0-9]*/root")
		for _, r := range roots {
			var st unix.Stat_t
			pid, err := strconv.Atoi(strings.Split(r, "/")[2])
			if err == nil && unix.Stat(r, &st) == nil && st.Dev == dev && st.Ino == ino {
				left = true
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
		if !left {
			return
		}
	}
}
