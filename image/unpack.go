// SPDX-License-Identifier: BSD-2-Clause

package image

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// unpacker writes the entries of one layer's archive below one directory.
//
// It uses system calls relative to a directory that os.Root opened for it, so
// that the kernel, and not a comparison of strings, keeps every entry inside:
// the process needs no chroot, no mount namespace and no helper process, and
// it is the same code on every system. The directory is new and nobody else
// writes to it.
type unpacker struct {
	root   *os.Root
	format whiteoutFormat
	buf    []byte

	parent     *os.File // the directory of the last entry, kept open
	parentName string

	dirs   []dirTime
	hidden map[string]bool // whiteouts made so far
	size   int64           // bytes of regular files
}

// dirTime is a directory's time, set when nothing more is written to it.
type dirTime struct {
	name  string
	mtime time.Time
}

// unpack writes the uncompressed archive r below dir and returns the bytes of
// its regular files. Entries that climb out of dir, by their name, through a
// symbolic link or as a hard link, are refused with ErrInvalidArgument, and
// so is a symbolic link whose relative target climbs out; absolute links are
// ordinary in images and are never followed here. What was written before an
// error stays: dir is the caller's to delete.
func unpack(dir string, r io.Reader, format whiteoutFormat) (size int64, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return 0, err
	}
	defer root.Close()
	u := &unpacker{root: root, format: format, buf: make([]byte, 128<<10), hidden: map[string]bool{}}
	defer u.forgetParent()
	tr := tar.NewReader(r)
	for {
		hdr, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if errors.Is(err, tar.ErrHeader) || errors.Is(err, tar.ErrFieldTooLong) {
			return 0, asInvalid(fmt.Errorf("reading layer archive: %w", err))
		}
		if err != nil {
			return 0, err
		}
		if err := u.entry(hdr, tr); err != nil {
			return 0, classifyEntry(hdr.Name, err)
		}
	}
	for _, d := range slices.Backward(u.dirs) {
		err := root.Chtimes(d.name, d.mtime, d.mtime)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return 0, classifyEntry(d.name, err)
		}
	}
	return u.size, nil
}

// escapes tells whether os.Root refused a path; its error has no name.
func escapes(err error) bool {
	return err != nil && strings.Contains(err.Error(), "path escapes from parent")
}

// classifyEntry names the entry in err and tells the archive's faults from
// the system's.
func classifyEntry(name string, err error) error {
	wrapped := fmt.Errorf("unpacking entry %q: %w", name, err)
	switch {
	case escapes(err):
		return errInvalid("invalid archive: entry %q leads out of the root file system through a symbolic link", name)
	case errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENAMETOOLONG),
		errors.Is(err, unix.EISDIR):
		return asInvalid(wrapped)
	}
	return wrapped
}

// entryName is the path below the root that an archive means by name: a
// leading slash counts from the root, as in tar(1) and Docker.
func entryName(name string) (string, error) {
	clean := path.Clean(strings.TrimLeft(name, "/"))
	if clean == ".." || strings.HasPrefix(clean, "../") || strings.ContainsRune(clean, 0) {
		return "", errInvalid("invalid archive: entry %q climbs out of the root file system", name)
	}
	return clean, nil
}

// climbs tells whether the relative target of the symbolic link called name
// points above the root. Absolute targets count from the root.
func climbs(name, target string) bool {
	if path.IsAbs(target) {
		return false
	}
	clean := path.Join(path.Dir(name), target)
	return clean == ".." || strings.HasPrefix(clean, "../")
}

// entry writes one entry.
func (u *unpacker) entry(hdr *tar.Header, body io.Reader) error {
	if hdr.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	name, err := entryName(hdr.Name)
	if err != nil {
		return err
	}
	if name == "." {
		if hdr.Typeflag != tar.TypeDir {
			return errInvalid("invalid archive: entry %q replaces the root directory", hdr.Name)
		}
		return nil // the root's mode is always 0755, as with Docker
	}
	dir, base := path.Dir(name), path.Base(name)
	parent, err := u.open(dir)
	if err != nil {
		return err
	}
	fd := int(parent.Fd())
	if strings.HasPrefix(base, whiteoutPrefix) {
		return u.whiteout(fd, dir, base)
	}
	isDir := hdr.Typeflag == tar.TypeDir
	exists, err := u.clear(fd, name, base, isDir)
	if err != nil {
		return err
	}
	if err := u.create(fd, name, base, exists, hdr, body); err != nil {
		return err
	}
	if isDir {
		u.dirs = append(u.dirs, dirTime{name, hdr.ModTime})
	}
	if !u.hidden[name] {
		return nil
	}
	delete(u.hidden, name) // deleted and made again
	if !isDir {
		return nil
	}
	if err := setOpaque(u.path(name)); err != nil {
		return fmt.Errorf("marking directory opaque: %w", err)
	}
	return nil
}

// path is the absolute path of a name; only for calls that have no form
// relative to a directory. No link on it leads out: os.Root opened its
// directory just before.
func (u *unpacker) path(name string) string { return path.Join(u.root.Name(), name) }

// open returns the directory called name, made with its parents where it is
// missing: an archive need not list its directories.
func (u *unpacker) open(name string) (*os.File, error) {
	if u.parent != nil && u.parentName == name {
		return u.parent, nil
	}
	if err := u.revive(name); err != nil {
		return nil, err
	}
	const flags = os.O_RDONLY | unix.O_DIRECTORY
	f, err := u.root.OpenFile(name, flags, 0)
	if errors.Is(err, os.ErrNotExist) {
		if err := u.makeParents(name); err != nil {
			return nil, err
		}
		f, err = u.root.OpenFile(name, flags, 0)
	}
	if err != nil {
		return nil, err
	}
	u.forgetParent()
	u.parent, u.parentName = f, name
	return f, nil
}

func (u *unpacker) forgetParent() {
	if u.parent != nil {
		u.parent.Close()
		u.parent = nil
	}
}

// makeParents makes name and each directory above it, mode 0755 whatever the
// process's umask is.
func (u *unpacker) makeParents(name string) error {
	for i := 0; i <= len(name); i++ {
		if i < len(name) && name[i] != '/' {
			continue
		}
		err := u.root.Mkdir(name[:i], 0o755)
		if errors.Is(err, os.ErrExist) {
			continue
		}
		if err == nil {
			err = u.root.Chmod(name[:i], 0o755)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// clear makes room for an entry. A directory over a directory is kept, which
// exists tells; all else that is there goes.
func (u *unpacker) clear(fd int, name, base string, isDir bool) (exists bool, err error) {
	var st unix.Stat_t
	err = unix.Fstatat(fd, base, &st, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return false, unix.Unlinkat(fd, base, 0)
	}
	if isDir {
		return true, nil
	}
	return false, u.root.RemoveAll(name)
}

// create makes the entry at base in the directory fd, where nothing is unless
// it is a directory that exists, and gives it owner, mode, attributes and time.
func (u *unpacker) create(fd int, name, base string, exists bool, hdr *tar.Header, body io.Reader) error {
	switch hdr.Typeflag {
	case tar.TypeDir:
		if !exists {
			if err := unix.Mkdirat(fd, base, 0o700); err != nil {
				return err
			}
		}
	case tar.TypeReg, '\x00', tar.TypeCont, tar.TypeGNUSparse:
		n, err := u.regular(fd, base, body)
		u.size += n
		if err != nil {
			return err
		}
	case tar.TypeSymlink:
		if hdr.Linkname == "" {
			return errInvalid("invalid archive: symbolic link %q has no target", hdr.Name)
		}
		if climbs(name, hdr.Linkname) {
			return errInvalid("invalid archive: symbolic link %q -> %q points out of the root file system", hdr.Name, hdr.Linkname)
		}
		if err := unix.Symlinkat(hdr.Linkname, fd, base); err != nil {
			return err
		}
	case tar.TypeLink:
		return u.hardlink(fd, base, hdr) // owner, mode and time are the target's
	case tar.TypeChar, tar.TypeBlock, tar.TypeFifo:
		kind := uint32(unix.S_IFIFO)
		if hdr.Typeflag == tar.TypeChar {
			kind = unix.S_IFCHR
		} else if hdr.Typeflag == tar.TypeBlock {
			kind = unix.S_IFBLK
		}
		if err := mknodat(fd, base, kind|0o600, uint32(hdr.Devmajor), uint32(hdr.Devminor)); err != nil {
			return err
		}
	default:
		return errInvalid("invalid archive: entry %q has the unknown type %q", hdr.Name, hdr.Typeflag)
	}
	return u.attributes(fd, name, base, hdr)
}

// regular writes a new file's content and returns how much it was.
func (u *unpacker) regular(fd int, base string, body io.Reader) (int64, error) {
	file, err := unix.Openat(fd, base, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return 0, err
	}
	f := os.NewFile(uintptr(file), base)
	n, err := io.CopyBuffer(struct{ io.Writer }{f}, struct{ io.Reader }{body}, u.buf)
	return n, errors.Join(err, f.Close())
}

// hardlink links base in fd to another entry of this archive.
func (u *unpacker) hardlink(fd int, base string, hdr *tar.Header) error {
	target, err := entryName(hdr.Linkname)
	if err != nil || target == "." {
		return errInvalid("invalid archive: hard link %q -> %q points out of the root file system", hdr.Name, hdr.Linkname)
	}
	dir, err := u.root.OpenFile(path.Dir(target), os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err == nil {
		defer dir.Close()
		err = unix.Linkat(int(dir.Fd()), path.Base(target), fd, base, 0) // a symbolic link itself, not what it names
	}
	switch {
	case escapes(err):
		return errInvalid("invalid archive: hard link %q -> %q points out of the root file system through a symbolic link", hdr.Name, hdr.Linkname)
	case errors.Is(err, os.ErrNotExist), errors.Is(err, unix.EPERM):
		return errInvalid("invalid archive: hard link %q -> %q: no such file in this layer", hdr.Name, hdr.Linkname)
	}
	return err
}

// attributes sets owner, mode, extended attributes and times, in the order
// in which none undoes another (chown clears set-id bits and capabilities).
func (u *unpacker) attributes(fd int, name, base string, hdr *tar.Header) error {
	if err := unix.Fchownat(fd, base, hdr.Uid, hdr.Gid, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return fmt.Errorf("chown %d:%d: %w", hdr.Uid, hdr.Gid, err)
	}
	if hdr.Typeflag != tar.TypeSymlink {
		if err := unix.Fchmodat(fd, base, uint32(hdr.Mode)&0o7777, 0); err != nil {
			return fmt.Errorf("chmod: %w", err)
		}
	}
	for record, value := range hdr.PAXRecords {
		attr, ok := strings.CutPrefix(record, "SCHILY.xattr.")
		// What the overlay file system keeps for itself is not an image's to set.
		if !ok || strings.HasPrefix(attr, "trusted.overlay.") || strings.HasPrefix(attr, "user.overlay.") {
			continue
		}
		if err := setXattr(u.path(name), attr, []byte(value)); err != nil {
			return fmt.Errorf("setting attribute %s: %w", attr, err)
		}
	}
	if hdr.Typeflag == tar.TypeDir {
		return nil // its time is set at the end
	}
	mtime, err := unix.TimeToTimespec(hdr.ModTime)
	if err != nil {
		mtime = unix.Timespec{} // outside of what the system can say
	}
	return unix.UtimesNanoAt(fd, base, []unix.Timespec{mtime, mtime}, unix.AT_SYMLINK_NOFOLLOW)
}
