// SPDX-License-Identifier: BSD-2-Clause

package network

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"
)

// nsfsMagic is what statfs(2) says of a file that names a namespace
// (linux/magic.h, NSFS_MAGIC).
const nsfsMagic = 0x6e736673

// openNetns opens the network namespace with the name, making it if need be.
// The name is a bind mount, as ip-netns(8) makes them, and keeps the namespace
// alive while no process is in it.
func openNetns(path string) (*os.File, error) {
	var fs unix.Statfs_t
	err := unix.Statfs(path, &fs)
	if err == nil && fs.Type != nsfsMagic {
		// A name whose mount is gone, as after a reboot on a disk /run.
		err = os.Remove(path)
		if err == nil {
			err = unix.ENOENT
		}
	}
	if errors.Is(err, unix.ENOENT) {
		err = makeNetns(path)
	}
	if err != nil {
		return nil, fmt.Errorf("network namespace %s: %w", path, err)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("network namespace: %w", err)
	}
	return f, nil
}

// isNetns tells whether a name is that of a namespace.
func isNetns(path string) bool {
	var fs unix.Statfs_t
	return unix.Statfs(path, &fs) == nil && fs.Type == nsfsMagic
}

func makeNetns(path string) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if dir == defaultNetnsDir {
		if err := shareDir(dir); err != nil {
			return err
		}
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDONLY, 0o444)
	if err != nil {
		return err
	}
	_ = f.Close()
	done := make(chan error, 1)
	go func() {
		// Never unlocked: the thread is in the new namespace and ends with
		// this goroutine.
		runtime.LockOSThread()
		done <- func() error {
			if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
				return fmt.Errorf("unshare: %w", err)
			}
			// IPv4 only; lo is there already and keeps ::1.
			_ = setSysctl("net/ipv6/conf/default/disable_ipv6", "1")
			self := fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid())
			if err := unix.Mount(self, path, "none", unix.MS_BIND, ""); err != nil {
				return fmt.Errorf("bind mount: %w", err)
			}
			return nil
		}()
	}()
	if err := <-done; err != nil {
		_ = os.Remove(path)
		return err
	}
	return nil
}

// shareDir makes the directory of names a shared mount of its own, as
// ip-netns(8) does at its first use. It would do so after us otherwise, on top
// of the names that are there: these could never be taken away any more.
func shareDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	// Several daemons may come at once, and a second mount would hide the first.
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s: %w", dir, err)
	}
	err = unix.Mount("", dir, "none", unix.MS_SHARED|unix.MS_REC, "")
	if errors.Is(err, unix.EINVAL) { // no mount yet
		if err = unix.Mount(dir, dir, "none", unix.MS_BIND|unix.MS_REC, ""); err == nil {
			err = unix.Mount("", dir, "none", unix.MS_SHARED|unix.MS_REC, "")
		}
	}
	if err != nil {
		return fmt.Errorf("share %s: %w", dir, err)
	}
	return nil
}

func deleteNetns(path string) error {
	if err := unix.Unmount(path, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("unmount network namespace %s: %w", path, err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove network namespace: %w", err)
	}
	return nil
}
