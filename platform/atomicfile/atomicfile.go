// SPDX-License-Identifier: BSD-2-Clause

// Package atomicfile replaces a file in one step. What is in a file, and what
// is made of one that is damaged, is for those who write and read it.
//
// Whoever opens the file finds the old content or the new one, whole, also
// while it is replaced, and so does whoever comes after a writer that was killed
// (kill -9). When the machine loses its power it depends on the call:
//
//	              before the call returned   after
//	Write         old, new or damaged        old, new or damaged
//	WriteDurably  old or new                 new
//
// Damaged is an empty file or one that is cut off, on file systems that may have
// a file's new name on the disk before its data. On ext4 (auto_da_alloc) and ZFS
// it is old or new. What is old goes back half a minute at most where systems
// write out at their own pace. So Write, which costs no wait for the disk, is for
// what the next start of the machine makes anew or can do without, and its readers
// have to cope with a damaged file.
//
// Writers of one file may overlap, in several processes too: they follow each
// other, and the last one's content stays. A writer that is stopped (SIGSTOP), or
// that a disk keeps waiting, keeps the others of that file waiting.
//
// An error leaves the file as it was and nothing beside it, but for one that
// comes after the last step, of a disk that fails: then the new content is there,
// and nobody knows for how long. Errors name the file and wrap that of the system
// (ENOSPC, EROFS, fs.ErrNotExist for a directory that is not there).
//
// A writer that is killed leaves an unfinished file beside the one it was to
// replace (Unfinished). Nobody reads it, and the next writer takes it over.
// Its name can be foretold: the directory has to be one where no stranger may
// make files, as in /tmp.
package atomicfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Write replaces the file at path, or makes it, with the content data and the
// permission bits mode, whatever the umask. A symbolic link at path is replaced
// itself. See the package's comment for what survives.
func Write(path string, data []byte, mode fs.FileMode) error {
	return replace(path, data, mode, false)
}

// WriteDurably is Write, and returns when the content and the name are on the
// disk: it waits for it twice, some milliseconds or, on a busy one, seconds.
func WriteDurably(path string, data []byte, mode fs.FileMode) error {
	return replace(path, data, mode, true)
}

// Unfinished is the file that a writer of path which was killed may leave, for
// those who empty a directory by name.
func Unfinished(path string) string { return path + ".new" }

func replace(path string, data []byte, mode fs.FileMode, durably bool) error {
	f, err := claim(Unfinished(path))
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err = fill(f, data, mode, durably); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		err = errors.Join(err, os.Remove(f.Name()))
	} else if durably {
		err = SyncDir(filepath.Dir(path))
	}
	// Not before: with the file its lock goes.
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// claim opens an unfinished file, made or left by a writer that was killed, and
// waits until it is this writer's alone: until then the others may have renamed it.
func claim(name string) (*os.File, error) {
	for {
		f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return nil, err
		}
		err = lock(f)
		if err == nil {
			var here bool
			if here, err = isAt(f, name); here {
				return f, nil
			}
		}
		if err = errors.Join(err, f.Close()); err != nil {
			return nil, err
		}
	}
}

// lock is undone by the end of the process, so that of nobody else is waited for
// than of who lives.
func lock(f *os.File) error {
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX)
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EINTR) {
			return &fs.PathError{Op: "lock", Path: f.Name(), Err: err}
		}
	}
}

// isAt tells whether the file still has that name.
func isAt(f *os.File, name string) (bool, error) {
	own, err := f.Stat()
	if err != nil {
		return false, err
	}
	there, err := os.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && os.SameFile(own, there), err
}

// fill gives the file its content and, last, its mode: what is unfinished is for
// its owner alone.
func fill(f *os.File, data []byte, mode fs.FileMode, durably bool) error {
	if err := f.Truncate(0); err != nil { // what a writer that was killed left
		return err
	}
	if _, err := f.Write(data); err != nil {
		return err
	}
	if err := f.Chmod(mode); err != nil {
		return err
	}
	if durably {
		return f.Sync()
	}
	return nil
}

// SyncDir returns when the names in a directory are on the disk, for those who
// rename a file by themselves.
func SyncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
