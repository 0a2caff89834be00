// SPDX-License-Identifier: BSD-2-Clause

package image

import (
	"errors"
	"strings"

	"golang.org/x/sys/unix"
)

// opaqueAttr marks a directory that hides those below it
// (Linux, filesystems/overlayfs.rst, "whiteouts and opaque directories").
const opaqueAttr = "trusted.overlay.opaque"

func setOpaque(dir string) error {
	return unix.Lsetxattr(dir, opaqueAttr, []byte{'y'}, 0)
}

// isOpaque tells whether the directory hides those below it.
func isOpaque(dir string) bool {
	value := make([]byte, 1)
	n, err := unix.Lgetxattr(dir, opaqueAttr, value)
	return err == nil && n == 1 && value[0] == 'y'
}

// setXattr sets an attribute that an archive carries; a file system that has
// no such attributes is no error, as with Docker.
func setXattr(path, attr string, value []byte) error {
	err := unix.Lsetxattr(path, attr, value, 0)
	if errors.Is(err, unix.ENOTSUP) || errors.Is(err, unix.EPERM) {
		return nil
	}
	return err
}

// copyXattrs copies all extended attributes but those that the overlay file
// system keeps for itself.
func copyXattrs(from, to string) error {
	names := make([]byte, 64<<10) // XATTR_LIST_MAX
	n, err := unix.Llistxattr(from, names)
	if errors.Is(err, unix.ENOTSUP) || err == nil && n == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	value := make([]byte, 64<<10) // XATTR_SIZE_MAX
	for name := range strings.SplitSeq(strings.TrimSuffix(string(names[:n]), "\x00"), "\x00") {
		if strings.HasPrefix(name, "trusted.overlay.") {
			continue
		}
		n, err := unix.Lgetxattr(from, name, value)
		if err != nil {
			return err
		}
		if err := setXattr(to, name, value[:n]); err != nil {
			return err
		}
	}
	return nil
}

func mknodat(fd int, base string, mode, major, minor uint32) error {
	return unix.Mknodat(fd, base, mode, int(unix.Mkdev(major, minor)))
}
