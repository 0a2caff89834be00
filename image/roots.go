// SPDX-License-Identifier: BSD-2-Clause

package image

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"satld/platform"
	"satld/platform/atomicfile"
	"satld/platform/command"
)

// A container's directory is StateDir/containers/<ID>. This package's names in
// it are rootfs, what its rootMaker lists, and image.json, which is written
// first and deleted last; others may keep theirs beside them.
const (
	rootName      = "rootfs"
	containerMeta = "image.json"
)

// container says what a container's root is made of; image.json holds it. The
// layers are named here too, so that the root can be mounted again, and its
// layers stay, after the image is gone.
type container struct {
	Image  string   `json:"image"`
	Layers []string `json:"layers"` // diff IDs, lowest first
	Kind   string   `json:"kind"`   // of rootMaker

	mounted bool
	damaged bool // its record cannot be read: nothing else of it is known
}

// rootMaker makes roots of layers. Calls for one container never overlap.
type rootMaker interface {
	// kind names it in image.json: the root of one cannot be taken over by another.
	kind() string
	// mount has a root at dir/rootfs, of the layers, lowest first. If there is
	// one it is kept, with its changes.
	mount(ctx context.Context, dir string, layers []tree) error
	// unmount undoes the mount and keeps the changes.
	unmount(ctx context.Context, dir string) error
	// mounted tells whether there is something for unmount to do, or a
	// container could be running in it.
	mounted(dir string) bool
	// remove deletes the root, which is unmounted, and all that was made for it.
	remove(ctx context.Context, dir string) error
	// usage is the bytes of the root's own: what differs from the layers.
	usage(ctx context.Context, dir string, layers []tree) (int64, error)
	// kept is the bytes that it keeps of layers beside their directories.
	kept(ctx context.Context) (int64, error)
	// sweep deletes what it keeps of layers, and roots without a record, that
	// nobody needs. needed is asked again before each thing goes.
	sweep(ctx context.Context, needed func() needed) error
}

// tree is an unpacked layer.
type tree struct {
	diffID string
	dir    string // of its files
}

// needed is what must stay.
type needed struct {
	chains     map[string]bool // chain IDs of stacks of layers
	containers map[string]bool
}

// newRootMaker picks how roots are made here.
func newRootMaker(s *Store, c Config) (rootMaker, error) {
	switch {
	case c.Copy:
		return copier{}, nil
	case c.tools != nil:
		return newJailRoots(s, c.ZFSRoot, c.tools)
	case platform.OS == "freebsd":
		return newJailRoots(s, c.ZFSRoot, command.Run)
	}
	return newOverlay(s)
}

var containerID = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,127}$`)

func (s *Store) containerDir(id string) string { return filepath.Join(s.containers, id) }

// Mount gives a container its root. See Images.
func (s *Store) Mount(ctx context.Context, imageID, id string) (string, error) {
	if !containerID.MatchString(id) {
		return "", errInvalid("invalid container ID %q", id)
	}
	imageID = "sha256:" + hexOf(imageID)
	unlock, err := s.busy.lock(ctx, "container "+id)
	if err != nil {
		return "", err
	}
	defer unlock()

	c, was, err := s.claim(imageID, id)
	if err != nil {
		return "", err
	}
	dir := s.containerDir(id)
	if err := s.makeRoot(ctx, dir, c, was != recorded); err != nil {
		err = fmt.Errorf("mounting root of container %s: %w", id, err)
		switch was {
		case absent:
			err = errors.Join(err, s.discard(context.WithoutCancel(ctx), id))
		case damaged:
			s.setDamaged(id)
		}
		return "", err
	}
	s.setMounted(id, true)
	return filepath.Join(dir, rootName), nil
}

// found is what claim came upon.
type found int

const (
	absent found = iota
	recorded
	damaged // there is a root and no record of it that can be read
)

// claim finds the container's record, or makes it in memory; from then on its
// layers are in use.
func (s *Store) claim(imageID, id string) (c container, was found, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, ok := s.mounts[id]
	if ok && !c.damaged {
		if c.Image != imageID {
			return c, recorded, errConflict("container %s has a root of image %s, not of %s", id, shortID(c.Image), shortID(imageID))
		}
		if c.Kind != s.roots.kind() {
			return c, recorded, errdefs.ErrFailedPrecondition.WithMessage(fmt.Sprintf(
				"container %s has a root of kind %q; this host makes %q", id, c.Kind, s.roots.kind()))
		}
		return c, recorded, nil
	}
	if ok {
		was = damaged
	}
	if !s.index.Images[imageID] {
		return container{}, was, errNotFound("No such image: %s", imageID)
	}
	c = container{Image: imageID, Layers: s.configs[imageID].layerIDs(), Kind: s.roots.kind()}
	s.mounts[id] = c
	return c, was, nil
}

func (s *Store) makeRoot(ctx context.Context, dir string, c container, unwritten bool) error {
	if unwritten {
		if err := os.MkdirAll(dir, 0o711); err != nil {
			return err
		}
		data, err := json.Marshal(c)
		if err != nil {
			return err
		}
		// Durably: roots outlive the machine's restart, and one without a record
		// would be taken for somebody else's and stay. It is written once.
		if err := atomicfile.WriteDurably(filepath.Join(dir, containerMeta), data, fileMode); err != nil {
			return err
		}
	}
	return s.roots.mount(ctx, dir, s.diffs(c.Layers))
}

// diffs are the container's layers, lowest first. Of a
// layer that an image has several times only the uppermost is named: what it
// says of a file it says last there, and an overlay refuses to have it twice.
func (s *Store) diffs(layers []string) []tree {
	var trees []tree
	for i, l := range layers {
		if !slices.Contains(layers[i+1:], l) {
			trees = append(trees, tree{diffID: l, dir: filepath.Join(s.layerDir(l), layerDiff)})
		}
	}
	return trees
}

func (s *Store) setMounted(id string, mounted bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c, ok := s.mounts[id]; ok {
		c.mounted = mounted
		s.mounts[id] = c
	}
}

// setDamaged has the record of a container unreadable, as it is on disk.
func (s *Store) setDamaged(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mounts[id] = container{damaged: true, mounted: s.mounts[id].mounted}
}

// Unmount unmounts a container's root and keeps its changes. A root that is in
// use is a BusyError. Idempotent.
func (s *Store) Unmount(ctx context.Context, id string) error {
	unlock, err := s.busy.lock(ctx, "container "+id)
	if err != nil {
		return err
	}
	defer unlock()
	if _, ok := s.container(id); !ok {
		return nil
	}
	if err := s.roots.unmount(ctx, s.containerDir(id)); err != nil {
		return fmt.Errorf("unmounting root of container %s: %w", id, err)
	}
	s.setMounted(id, false)
	return nil
}

// Release unmounts and deletes a container's root. It deletes nothing while
// something is mounted in the root or holds it, as a dying jail does: that is a
// BusyError, and it can then be called again. Idempotent.
func (s *Store) Release(ctx context.Context, id string) error {
	unlock, err := s.busy.lock(ctx, "container "+id)
	if err != nil {
		return err
	}
	defer unlock()
	if _, ok := s.container(id); !ok {
		return nil
	}
	if err := s.discard(ctx, id); err != nil {
		return fmt.Errorf("deleting root of container %s: %w", id, err)
	}
	s.collect()
	return nil
}

// discard undoes Mount; the record goes last, so that a crash or a failure on
// the way is made good by the next try.
func (s *Store) discard(ctx context.Context, id string) error {
	dir := s.containerDir(id)
	if err := s.roots.unmount(ctx, dir); err != nil {
		return err
	}
	s.setMounted(id, false)
	if err := s.roots.remove(ctx, dir); err != nil {
		return err
	}
	if err := removeAll(dir, atomicfile.Unfinished(containerMeta), containerMeta); err != nil {
		return err
	}
	err := os.Remove(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, unix.ENOTEMPTY) && !errors.Is(err, unix.EEXIST) {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mounts, id)
	return nil
}

// Sweep releases every root whose container keep does not name. It goes on
// after a failure and reports all of them.
func (s *Store) Sweep(ctx context.Context, keep map[string]bool) error {
	s.mu.Lock()
	ids := slices.Sorted(maps.Keys(s.mounts))
	s.mu.Unlock()
	var errs []error
	for _, id := range ids {
		if !keep[id] {
			errs = append(errs, s.Release(ctx, id))
		}
	}
	return errors.Join(errs...)
}

// Usage is the bytes of the container's own changes.
func (s *Store) Usage(ctx context.Context, id string) (int64, error) {
	c, ok := s.container(id)
	if !ok {
		return 0, errNotFound("container %s has no root", id)
	}
	n, err := s.roots.usage(ctx, s.containerDir(id), s.diffs(c.Layers))
	if err != nil {
		return 0, fmt.Errorf("measuring root of container %s: %w", id, err)
	}
	return n, nil
}

func (s *Store) container(id string) (container, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, ok := s.mounts[id]
	return c, ok
}

// users are the containers that use an image, in order of their IDs.
func (s *Store) users(imageID string) []user {
	s.mu.Lock()
	defer s.mu.Unlock()
	var users []user
	for _, id := range slices.Sorted(maps.Keys(s.mounts)) {
		if c := s.mounts[id]; c.Image == imageID {
			users = append(users, user{id, c.mounted})
		}
	}
	return users
}

// treeSize is the bytes of the regular files below dir that count accepts,
// each inode once.
func treeSize(dir string, count func(path string, st *unix.Stat_t) bool) (int64, error) {
	type inode struct{ dev, ino uint64 }
	seen := map[inode]bool{}
	var sum int64
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, os.ErrNotExist) {
			return nil // gone while we looked
		}
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			if errors.Is(err, unix.ENOENT) {
				return nil
			}
			return err
		}
		key := inode{uint64(st.Dev), st.Ino}
		if st.Nlink > 1 && seen[key] {
			return nil
		}
		seen[key] = true
		if count == nil || count(path, &st) {
			sum += st.Size
		}
		return nil
	})
	return sum, err
}
