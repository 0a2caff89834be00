// SPDX-License-Identifier: BSD-2-Clause

package jail

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

const memoryFlags = unix.MS_NODEV | unix.MS_NOSUID

// mountMemory: see host. Kernels from 6.4 on keep it out of swap space too.
func (groups) mountMemory(_ context.Context, dir string, size int64) error {
	options := fmt.Sprintf("mode=700,size=%d", size)
	err := unix.Mount("tmpfs", dir, "tmpfs", memoryFlags, options+",noswap")
	if errors.Is(err, unix.EINVAL) {
		err = unix.Mount("tmpfs", dir, "tmpfs", memoryFlags, options)
	}
	if err != nil {
		return fmt.Errorf("mount tmpfs on %s: %w", dir, err)
	}
	return nil
}

// sealMemory: see host. The file system itself becomes read-only, for the
// container's mounts of it as well, and these are what keeps it from here on.
func (g groups) sealMemory(ctx context.Context, dir string) error {
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY|memoryFlags, ""); err != nil {
		return fmt.Errorf("make %s read-only: %w", dir, err)
	}
	return g.unmountMemory(dir)
}

// unmountMemory takes a container's file system in memory off the host, if it
// is there.
func (groups) unmountMemory(dir string) error {
	for {
		err := unix.Unmount(dir, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		if errors.Is(err, unix.EINVAL) || errors.Is(err, fs.ErrNotExist) { // nothing is mounted
			break
		}
		if err != nil {
			return fmt.Errorf("unmount %s: %w", dir, err)
		}
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove %s: %w", dir, err)
	}
	return nil
}

// reconcile: see host. The host has a container's files only while it is made,
// so that whatever is there was left by a crash.
func (g groups) reconcile(context.Context) {
	entries, err := os.ReadDir(g.memories)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		g.log.Warn("what an earlier daemon left of containers' files is not removed", "error", err)
	}
	for _, e := range entries {
		if err := g.unmountMemory(filepath.Join(g.memories, e.Name())); err != nil {
			g.log.Warn("what an earlier daemon left of a container's files is not removed", "container", e.Name(), "error", err)
		}
	}
}
