// SPDX-License-Identifier: BSD-2-Clause

package jail

import (
	"os"

	"golang.org/x/sys/unix"
)

// openInRoot opens a file for reading as a process whose root is rootfs would
// see it: links, also absolute ones, stay inside (openat2(2)).
func openInRoot(rootfs, name string) (*os.File, error) {
	dir, err := unix.Open(rootfs, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: rootfs, Err: err}
	}
	defer unix.Close(dir)
	for {
		fd, err := unix.Openat2(dir, name, &unix.OpenHow{
			Flags:   unix.O_RDONLY | unix.O_CLOEXEC | unix.O_NONBLOCK | unix.O_NOCTTY,
			Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
		})
		if err == unix.EINTR || err == unix.EAGAIN { // EAGAIN: something was renamed meanwhile
			continue
		}
		if err != nil {
			return nil, &os.PathError{Op: "open", Path: name, Err: err}
		}
		return os.NewFile(uintptr(fd), name), nil
	}
}
