// SPDX-License-Identifier: BSD-2-Clause

package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// copier makes a root by copying the layers over one another: slow and large,
// and it works everywhere. The copy is made beside and renamed, so that
// a root is whole or not there. There is nothing to unmount.
type copier struct{}

const unfinishedName = "rootfs.new"

func (copier) kind() string                               { return "copy" }
func (copier) unmount(context.Context, string) error      { return nil }
func (copier) kept(context.Context) (int64, error)        { return 0, nil }
func (copier) sweep(context.Context, func() needed) error { return nil }
func (copier) remove(_ context.Context, dir string) error {
	return removeAll(dir, rootName, unfinishedName)
}

// mounted: whether a container runs in a copy cannot be seen from here, so it
// counts as in use while it exists.
func (copier) mounted(dir string) bool {
	_, err := os.Lstat(filepath.Join(dir, rootName))
	return err == nil
}

func (c copier) mount(ctx context.Context, dir string, layers []tree) error {
	if c.mounted(dir) {
		return nil
	}
	fresh := filepath.Join(dir, unfinishedName)
	if err := RemoveTree(fresh); err != nil {
		return err
	}
	if err := errors.Join(os.Mkdir(fresh, 0o755), os.Chmod(fresh, 0o755)); err != nil {
		return err
	}
	for _, l := range layers {
		if err := copyLayer(ctx, l.dir, fresh); err != nil {
			return fmt.Errorf("copying layer %s: %w", l.diffID, err)
		}
	}
	return os.Rename(fresh, filepath.Join(dir, rootName))
}

// usage counts the files whose size or time differs from the layers'.
func (copier) usage(_ context.Context, dir string, layers []tree) (int64, error) {
	root := filepath.Join(dir, rootName)
	return treeSize(root, func(path string, st *unix.Stat_t) bool {
		rel := strings.TrimPrefix(path, root)
		for _, l := range layers {
			var was unix.Stat_t
			if unix.Lstat(filepath.Join(l.dir, rel), &was) == nil && was.Size == st.Size && was.Mtim == st.Mtim {
				return false
			}
		}
		return true
	})
}

// layerCopy copies one layer over a root. Both are reached only through
// os.Root, and directories are entered by name and never through a link that
// a lower layer put there.
type layerCopy struct {
	ctx      context.Context
	from, to *os.Root
	links    map[uint64]string // inodes with several names that were copied
}

func copyLayer(ctx context.Context, from, to string) error {
	src, err := os.OpenRoot(from)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.OpenRoot(to)
	if err != nil {
		return err
	}
	defer dst.Close()
	return (&layerCopy{ctx: ctx, from: src, to: dst, links: map[uint64]string{}}).dir(".")
}

// dir copies what is in the directory called name, which the root has.
func (c *layerCopy) dir(name string) error {
	d, err := c.from.Open(name)
	if err != nil {
		return err
	}
	entries, err := d.ReadDir(-1)
	d.Close()
	if err != nil {
		return err
	}
	// Deletions first: they are about the layers below.
	skip := map[string]bool{}
	opaque := isOpaque(filepath.Join(c.from.Name(), name))
	for _, e := range entries {
		gone, err := c.whiteout(name, e)
		if err != nil {
			return err
		}
		skip[e.Name()] = gone != "" || strings.HasPrefix(e.Name(), whiteoutPrefix)
		opaque = opaque || e.Name() == whiteoutOpaque
		if gone != "" {
			if err := c.to.RemoveAll(path.Join(name, gone)); err != nil {
				return err
			}
		}
	}
	if opaque {
		if err := c.clear(name); err != nil {
			return err
		}
	}
	for _, e := range entries {
		if err := c.ctx.Err(); err != nil {
			return err
		}
		if skip[e.Name()] {
			continue
		}
		if err := c.entry(path.Join(name, e.Name())); err != nil {
			return fmt.Errorf("%s: %w", path.Join(name, e.Name()), err)
		}
	}
	return nil
}

// whiteout is the name in dir that e deletes from the layers below, if it is
// of that kind, in either format.
func (c *layerCopy) whiteout(dir string, e os.DirEntry) (string, error) {
	switch {
	case strings.HasPrefix(e.Name(), whiteoutMeta): // opaque, and AUFS's own
		return "", nil
	case strings.HasPrefix(e.Name(), whiteoutPrefix):
		gone := strings.TrimPrefix(e.Name(), whiteoutPrefix)
		if gone == "" || gone == "." || gone == ".." {
			return "", nil
		}
		return gone, nil
	case e.Type()&os.ModeCharDevice != 0:
		st, err := c.stat(path.Join(dir, e.Name()))
		if err == nil && st.Rdev == 0 {
			return e.Name(), nil
		}
		return "", err
	}
	return "", nil
}

// clear deletes what the layers below have in dir.
func (c *layerCopy) clear(dir string) error {
	d, err := c.to.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	for _, n := range names {
		err = errors.Join(err, c.to.RemoveAll(path.Join(dir, n)))
	}
	return err
}

func (c *layerCopy) stat(name string) (*unix.Stat_t, error) {
	var st unix.Stat_t
	err := unix.Lstat(filepath.Join(c.from.Name(), name), &st)
	return &st, err
}

// entry copies one file, link, device or directory with all below it.
func (c *layerCopy) entry(name string) error {
	st, err := c.stat(name)
	if err != nil {
		return err
	}
	kind := uint32(st.Mode) & unix.S_IFMT
	was, err := c.to.Lstat(name)
	exists := err == nil && kind == unix.S_IFDIR && was.IsDir()
	if err == nil && !exists {
		if err := c.to.RemoveAll(name); err != nil {
			return err
		}
	}
	if kind != unix.S_IFDIR && st.Nlink > 1 {
		if first, ok := c.links[st.Ino]; ok {
			return c.to.Link(first, name)
		}
		c.links[st.Ino] = name
	}
	target := filepath.Join(c.to.Name(), name) // its parents are directories that we made
	switch kind {
	case unix.S_IFDIR:
		if !exists {
			if err := c.to.Mkdir(name, 0o700); err != nil {
				return err
			}
		}
		err = c.dir(name)
	case unix.S_IFREG:
		err = c.regular(name)
	case unix.S_IFLNK:
		var link string
		if link, err = c.from.Readlink(name); err == nil {
			err = c.to.Symlink(link, name)
		}
	case unix.S_IFCHR, unix.S_IFBLK, unix.S_IFIFO:
		dev := uint64(st.Rdev)
		err = mknodat(unix.AT_FDCWD, target, kind|0o600, unix.Major(dev), unix.Minor(dev))
	default: // a socket: nothing listens on it
		return nil
	}
	if err != nil {
		return err
	}
	return c.attributes(name, target, st)
}

func (c *layerCopy) regular(name string) error {
	src, err := c.from.Open(name)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := c.to.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(dst, src) // copy_file_range(2) where there is one
	return errors.Join(err, dst.Close())
}

// attributes copies owner, mode, extended attributes and times.
func (c *layerCopy) attributes(name, target string, st *unix.Stat_t) error {
	if err := c.to.Lchown(name, int(st.Uid), int(st.Gid)); err != nil {
		return err
	}
	kind := uint32(st.Mode) & unix.S_IFMT
	if kind != unix.S_IFLNK {
		if err := unix.Fchmodat(unix.AT_FDCWD, target, uint32(st.Mode)&0o7777, 0); err != nil {
			return err
		}
	}
	if kind == unix.S_IFREG || kind == unix.S_IFDIR {
		if err := copyXattrs(filepath.Join(c.from.Name(), name), target); err != nil {
			return err
		}
	}
	return unix.UtimesNanoAt(unix.AT_FDCWD, target, []unix.Timespec{st.Mtim, st.Mtim}, unix.AT_SYMLINK_NOFOLLOW)
}
