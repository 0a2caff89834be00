// SPDX-License-Identifier: BSD-2-Clause

package image

import (
	"golang.org/x/sys/unix"

	"satld/platform/command"
)

// mountsBelow lists the mount points at or below path, which is absolute and
// free of symbolic links.
func mountsBelow(path string) ([]string, error) { return toolMountsBelow(command.Run, path) }

// openSameDevice: each mount has a device number of its own here, nullfs too.
func openSameDevice(fd int, base string) (int, error) { return openDirSameDevice(fd, base) }

// clearMounts takes off what a crash left mounted below dir, where only datasets
// of layers in the making are.
func clearMounts(dir string) error { return unmountBelow(command.Run, dir) }

// syncFS writes what is cached to the disk; sync(2) knows no single file system.
func syncFS(string) error { return unix.Sync() }
