// SPDX-License-Identifier: BSD-2-Clause

package image

import (
	"errors"
	"strings"

	"golang.org/x/sys/unix"
)

// setOpaque is for the overlay format, which FreeBSD does not have.
func setOpaque(string) error { return unix.ENOTSUP }

// isOpaque: in the plain format a file says so.
func isOpaque(string) bool { return false }

// setXattr sets an attribute that an archive carries. Only the namespaces
// user and system exist here; others, as Linux's security, are left out.
func setXattr(path, attr string, value []byte) error {
	if !strings.HasPrefix(attr, "user.") {
		return nil
	}
	err := unix.Lsetxattr(path, attr, value, 0)
	if errors.Is(err, unix.ENOTSUP) || errors.Is(err, unix.EPERM) {
		return nil
	}
	return err
}

// copyXattrs copies the attributes of the user namespace, which setXattr sets.
func copyXattrs(from, to string) error {
	names := make([]byte, 64<<10)
	n, err := unix.Llistxattr(from, names)
	if errors.Is(err, unix.ENOTSUP) || errors.Is(err, unix.EPERM) || err == nil && n == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(names[:n]), "\x00"), "\x00") {
		if !strings.HasPrefix(name, "user.") {
			continue
		}
		size, err := unix.Lgetxattr(from, name, nil)
		if err != nil {
			return err
		}
		value := make([]byte, size)
		if size, err = unix.Lgetxattr(from, name, value); err != nil {
			return err
		}
		if err := setXattr(to, name, value[:size]); err != nil {
			return err
		}
	}
	return nil
}

// mknodat makes fifos as well (kern_mknodat hands them to kern_mkfifoat).
func mknodat(fd int, base string, mode, major, minor uint32) error {
	return unix.Mknodat(fd, base, mode, unix.Mkdev(major, minor))
}
