// SPDX-License-Identifier: BSD-2-Clause

package image

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"satld/platform"
)

// Names by which a layer says what it deletes from the layers below
// (OCI image-spec, layer.md, "Whiteouts").
const (
	whiteoutPrefix = ".wh."
	whiteoutMeta   = ".wh..wh."
	whiteoutOpaque = ".wh..wh..opq"
)

// whiteoutFormat is how an unpacked layer keeps its deletions.
type whiteoutFormat string

const (
	// overlayFormat is the kernel's: a character device 0/0, and the extended
	// attribute trusted.overlay.opaque on a directory.
	overlayFormat whiteoutFormat = "overlay"
	// plainFormat keeps the archive's own .wh. files.
	plainFormat whiteoutFormat = "plain"
)

// platformFormat is how layers keep their deletions here.
func platformFormat() whiteoutFormat {
	if platform.OS == "freebsd" {
		return plainFormat
	}
	return overlayFormat
}

// whiteout notes that the layer deletes something of the layers below.
func (u *unpacker) whiteout(fd int, dir, base string) error {
	if u.format == plainFormat {
		return touch(fd, base)
	}
	if base == whiteoutOpaque {
		return setOpaque(u.path(dir))
	}
	if strings.HasPrefix(base, whiteoutMeta) {
		return nil // AUFS's own bookkeeping
	}
	gone := strings.TrimPrefix(base, whiteoutPrefix)
	if gone == "" || gone == "." || gone == ".." {
		return errInvalid("invalid archive: whiteout %q names nothing", path.Join(dir, base))
	}
	name := path.Join(dir, gone)
	err := mknodat(fd, gone, unix.S_IFCHR, 0, 0)
	if err == nil {
		u.hidden[name] = true
	}
	if !errors.Is(err, unix.EEXIST) {
		return err
	}
	// The same layer has it already, and a whiteout is about those below:
	// a file hides them anyway, a directory has to be told.
	var st unix.Stat_t
	if err := unix.Fstatat(fd, gone, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return setOpaque(u.path(name))
	}
	return nil
}

// touch makes an empty file where there is none.
func touch(fd int, base string) error {
	f, err := unix.Openat(fd, base, unix.O_WRONLY|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	return unix.Close(f)
}

// revive makes name, and each directory above it, a directory again where this
// layer deleted it before: one that shows nothing of the layers below.
func (u *unpacker) revive(name string) error {
	for gone := range u.hidden {
		if !isBelow(gone, name) {
			continue
		}
		delete(u.hidden, gone)
		if err := u.root.Remove(gone); err != nil {
			return err
		}
		if err := u.makeParents(gone); err != nil {
			return err
		}
		if err := setOpaque(u.path(gone)); err != nil {
			return fmt.Errorf("marking directory opaque: %w", err)
		}
	}
	return nil
}
