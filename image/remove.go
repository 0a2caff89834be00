// SPDX-License-Identifier: BSD-2-Clause

package image

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// RemoveTree deletes path and all below it, and never what is mounted there.
// It looks twice: before, it refuses with the list of the mounts at or below
// path, having deleted nothing; during, no directory is entered that is on
// another device or, on Linux, behind any mount, a bind mount of the same
// device included. Symbolic links are deleted, not followed. A path that does
// not exist is no error. A refusal is a BusyError, and worth another try once
// the mounts are gone.
//
// path has to be absolute and clean and at least two levels deep: an empty
// name from a mistaken caller must not come to mean the working directory.
func RemoveTree(path string) error {
	if !filepath.IsAbs(path) || filepath.Clean(path) != path || filepath.Dir(path) == "/" {
		return errInvalid("refusing to delete %q: not an absolute, clean path below a directory other than /", path)
	}
	parent, err := filepath.EvalSymlinks(filepath.Dir(path))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("deleting %s: %w", path, err)
	}
	path = filepath.Join(parent, filepath.Base(path))
	mounts, err := mountsBelow(path)
	if err != nil {
		return fmt.Errorf("deleting %s: listing mounts: %w", path, err)
	}
	if len(mounts) > 0 {
		return errMounted(path, mounts)
	}
	dir, err := os.Open(parent)
	if err != nil {
		return fmt.Errorf("deleting %s: %w", path, err)
	}
	defer dir.Close()
	return removeAt(dir, filepath.Base(path))
}

// removeAll deletes what dir has under these names.
func removeAll(dir string, names ...string) error {
	for _, name := range names {
		if err := RemoveTree(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

func errMounted(path string, mounts []string) error {
	return &BusyError{What: path, Mounts: mounts}
}

// removeAt deletes the entry base of parent.
func removeAt(parent *os.File, base string) error {
	fd := int(parent.Fd())
	path := filepath.Join(parent.Name(), base)
	err := unix.Unlinkat(fd, base, 0)
	switch {
	case err == nil || errors.Is(err, unix.ENOENT):
		return nil
	case errors.Is(err, unix.EBUSY):
		return errMounted(path, []string{path})
	case !errors.Is(err, unix.EISDIR) && !errors.Is(err, unix.EPERM): // Linux; POSIX
		return fmt.Errorf("deleting %s: %w", path, err)
	}
	dir, openErr := openSameDevice(fd, base)
	switch {
	case errors.Is(openErr, unix.EXDEV):
		return errMounted(path, []string{path})
	case errors.Is(openErr, unix.ENOTDIR): // not a directory: the first answer stands
		return fmt.Errorf("deleting %s: %w", path, err)
	case openErr != nil:
		return fmt.Errorf("deleting %s: %w", path, openErr)
	}
	d := os.NewFile(uintptr(dir), path)
	defer d.Close()
	if err := removeEntries(d); err != nil {
		return err
	}
	err = unix.Unlinkat(fd, base, unix.AT_REMOVEDIR)
	if errors.Is(err, unix.EBUSY) {
		return errMounted(path, []string{path})
	}
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("deleting %s: %w", path, err)
	}
	return nil
}

// removeEntries empties the directory d.
func removeEntries(d *os.File) error {
	for {
		names, err := d.Readdirnames(1024)
		for _, name := range names {
			if err := removeAt(d, name); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("deleting %s: %w", d.Name(), err)
		}
		// Entries went while the directory was read: from the start again.
		if _, err := d.Seek(0, io.SeekStart); err != nil {
			return fmt.Errorf("deleting %s: %w", d.Name(), err)
		}
	}
}

// openDirSameDevice opens the directory base in fd, or fails with EXDEV when it
// is on another device than fd.
func openDirSameDevice(fd int, base string) (int, error) {
	dir, err := unix.Openat(fd, base, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	var outer, inner unix.Stat_t
	err = errors.Join(unix.Fstat(fd, &outer), unix.Fstat(dir, &inner))
	if err == nil && outer.Dev != inner.Dev {
		err = unix.EXDEV
	}
	if err != nil {
		unix.Close(dir)
		return -1, err
	}
	return dir, nil
}

// isBelow tells whether path is root or below it; both are clean and absolute.
func isBelow(root, path string) bool {
	return path == root || strings.HasPrefix(path, strings.TrimSuffix(root, "/")+"/")
}
