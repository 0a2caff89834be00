// SPDX-License-Identifier: BSD-2-Clause

package image

import "golang.org/x/sys/unix"

// mountsBelow lists the mount points at or below path, which is absolute and
// free of symbolic links (getfsstat(2)).
func mountsBelow(path string) ([]string, error) {
	n, err := unix.Getfsstat(nil, unix.MNT_NOWAIT)
	if err != nil {
		return nil, err
	}
	all := make([]unix.Statfs_t, n+16) // some may come meanwhile
	if n, err = unix.Getfsstat(all, unix.MNT_NOWAIT); err != nil {
		return nil, err
	}
	var found []string
	for _, fs := range all[:n] {
		if point := unix.ByteSliceToString(fs.Mntonname[:]); isBelow(path, point) {
			found = append(found, point)
		}
	}
	return found, nil
}

// openSameDevice: each mount has a device number of its own here, nullfs too.
func openSameDevice(fd int, base string) (int, error) { return openDirSameDevice(fd, base) }

// clearMounts has nothing to do: nothing is mounted below tmp here.
func clearMounts(string) error { return nil }

// syncFS writes what is cached to the disk; sync(2) knows no single file system.
func syncFS(string) error { return unix.Sync() }
