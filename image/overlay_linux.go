// SPDX-License-Identifier: BSD-2-Clause

package image

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// newOverlay is the overlay where the state directory's file system can carry
// one, and the full copy otherwise.
func newOverlay(s *Store) (rootMaker, error) {
	o := overlay{log: s.log}
	if err := o.probe(s.path("tmp")); err != nil {
		s.log.Warn("overlay mounts do not work here; every container gets a full copy of its image", "dir", s.dir, "error", err)
		return copier{}, nil
	}
	return o, nil
}

// overlay mounts roots as overlays: the layers below, and above them the
// container's own directory. In a container's directory it keeps
//
//	upper, work  the container's changes, and the kernel's scratch for them
//	l/N          symbolic links to the layers, the lowest is 0
//
// The mount is made from within that directory with these short relative
// names, as all the options together may be no longer than a page.
type overlay struct{ log *slog.Logger }

const (
	upperName = "upper"
	workName  = "work"
	linksName = "l"
	emptyName = "l/empty" // below an image without layers
)

// overlayNames are what a root has in its container's directory.
var overlayNames = []string{rootName, upperName, workName, linksName}

func (overlay) kind() string                               { return "overlay" }
func (overlay) kept(context.Context) (int64, error)        { return 0, nil }
func (overlay) sweep(context.Context, func() needed) error { return nil }
func (overlay) remove(_ context.Context, dir string) error { return removeAll(dir, overlayNames...) }

// probe tries an overlay, with the kinds of files that layers need, below tmp.
func (o overlay) probe(tmp string) error {
	dir, err := os.MkdirTemp(tmp, "probe-")
	if err != nil {
		return err
	}
	layer := filepath.Join(dir, "layer")
	err = errors.Join(os.Mkdir(layer, 0o755), setOpaque(layer), mknodat(unix.AT_FDCWD, filepath.Join(layer, "gone"), unix.S_IFCHR, 0, 0))
	if err == nil {
		err = o.mount(context.Background(), dir, []tree{{dir: layer}})
	}
	return errors.Join(err, o.unmount(context.Background(), dir), RemoveTree(dir))
}

func (o overlay) mount(_ context.Context, dir string, layers []tree) error {
	if o.mounted(dir) {
		return nil
	}
	for _, name := range overlayNames {
		if err := makeDir(filepath.Join(dir, name), name == rootName || name == upperName); err != nil {
			return err
		}
	}
	lower, err := linkLayers(dir, layers)
	if err != nil {
		return err
	}
	options := "lowerdir=" + strings.Join(lower, ":") + ",upperdir=" + upperName + ",workdir=" + workName
	if _, err := os.Stat("/sys/module/overlay/parameters/index"); err == nil {
		options += ",index=off" // an index ties the upper directory to its layers' file handles
	}
	if len(options) >= os.Getpagesize() {
		return errInvalid("the image has %d layers, more than an overlay mount can name", len(layers))
	}
	return mountFrom(dir, options)
}

// makeDir makes a directory of exactly this mode, whatever the umask; what
// a container sees as its / is open, the rest is private. An existing one is
// left as it is.
func makeDir(path string, isOpen bool) error {
	mode := os.FileMode(0o700)
	if isOpen {
		mode = 0o755
	}
	err := os.Mkdir(path, mode)
	if errors.Is(err, os.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return os.Chmod(path, mode)
}

// linkLayers has the links to the layers in dir and returns their names, the
// uppermost layer first.
func linkLayers(dir string, layers []tree) ([]string, error) {
	if len(layers) == 0 {
		return []string{emptyName}, makeDir(filepath.Join(dir, emptyName), true)
	}
	var names []string
	for i, l := range layers {
		name := linksName + "/" + strconv.Itoa(i)
		target, err := filepath.Rel(filepath.Join(dir, linksName), l.dir)
		if err != nil {
			return nil, err
		}
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil && !errors.Is(err, os.ErrExist) {
			return nil, err
		}
		names = append(names, name)
	}
	slices.Reverse(names)
	return names, nil
}

// mountFrom mounts an overlay at dir/rootfs with dir as the working
// directory, so that the options' paths are relative to it. The working
// directory is a thread's own after unshare(CLONE_FS); the thread ends with
// the goroutine, because it stays locked to it.
func mountFrom(dir, options string) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := unix.Unshare(unix.CLONE_FS)
		if err == nil {
			err = unix.Chdir(dir)
		}
		if err == nil {
			err = unix.Mount("overlay", rootName, "overlay", 0, options)
			unix.Chdir("/") // until the thread is gone it would keep dir's file system busy
		}
		done <- err
	}()
	if err := <-done; err != nil {
		return fmt.Errorf("mount -t overlay -o %s overlay %s: %w", options, filepath.Join(dir, rootName), err)
	}
	return nil
}

// mounted tells whether an overlay is mounted at dir/rootfs.
func (overlay) mounted(dir string) bool {
	var fs unix.Statfs_t
	var outer, inner unix.Stat_t
	root := filepath.Join(dir, rootName)
	return unix.Statfs(root, &fs) == nil && fs.Type == unix.OVERLAYFS_SUPER_MAGIC &&
		unix.Stat(dir, &outer) == nil && unix.Stat(root, &inner) == nil && outer.Dev != inner.Dev
}

// How long unmount waits for a busy root, and between two tries.
const (
	busyWait  = time.Second
	busyRetry = 50 * time.Millisecond
)

// unmount takes the overlay off. Where something else is mounted within, it is
// refused with the list: that is somebody's, and whoever made it has to take
// it off. Where only a process of the host sits in it (a shell's working
// directory, an open file; a container has its own mount namespace and is not
// in the way), it waits a second and then, as the last resort, detaches the
// mount: the process keeps what it has open, and the name is free. Nothing of
// the host's can be lost by that, as nothing is mounted within.
func (o overlay) unmount(ctx context.Context, dir string) error {
	root := filepath.Join(dir, rootName)
	deadline := time.Now().Add(busyWait)
	for o.mounted(dir) {
		err := unix.Unmount(root, unix.UMOUNT_NOFOLLOW)
		if err == nil || errors.Is(err, unix.EINVAL) { // EINVAL: somebody else took it off
			continue
		}
		if !errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("umount %s: %w", root, err)
		}
		if time.Now().Before(deadline) {
			select {
			case <-time.After(busyRetry):
				continue
			case <-ctx.Done():
				return fmt.Errorf("umount %s: %w: %w", root, err, ctx.Err())
			}
		}
		if err := o.detach(root); err != nil {
			return err
		}
	}
	return nil
}

func (o overlay) detach(root string) error {
	mounts, err := mountsBelow(root)
	if err != nil {
		return fmt.Errorf("umount %s: %w", root, err)
	}
	within := slices.DeleteFunc(mounts, func(m string) bool { return m == root })
	if len(within) > 0 {
		return errMounted(root, within)
	}
	o.log.Warn("a root is still in use by a process of the host; its mount is detached", "root", root)
	if err := unix.Unmount(root, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH); err != nil {
		return fmt.Errorf("umount --lazy %s: %w", root, err)
	}
	return nil
}

func (overlay) usage(_ context.Context, dir string, _ []tree) (int64, error) {
	return treeSize(filepath.Join(dir, upperName), nil)
}
