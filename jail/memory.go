// SPDX-License-Identifier: BSD-2-Clause

package jail

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
)

// A container's files (Spec.Files) are secrets: they are never on a disk. They
// lie in a tmpfs of the container's own, at STATE/jail/memory/ID, and each is
// mounted read-only where the container is to see it. They are empty until the
// container has those mounts, so that nothing can copy one on the way; and the
// tmpfs is gone when the container is.
//
// On Linux the container's mounts alone keep it: the host lets go of it before
// the first process runs, and the kernel frees it with the last one. On
// FreeBSD, where mounts belong to no process, it stays mounted and is swept
// like the jail's other mounts.

// File is a file that a container is given and that is never on a disk.
type File struct {
	Target   string // absolute
	Data     []byte
	Mode     fs.FileMode // its permissions
	UID, GID int
}

// memorySpare is what a file system in memory needs besides the files, in bytes.
const memorySpare = 1 << 20

func (m *Manager) memory(id string) string { return filepath.Join(m.memories, id) }

// memoryFiles are the paths of a container's files on the host.
func memoryFiles(dir string, files []File) []string {
	paths := make([]string, len(files))
	for i := range files {
		paths[i] = filepath.Join(dir, strconv.Itoa(i))
	}
	return paths
}

// withFiles is a spec with the mounts of its files, over all others.
func (m *Manager) withFiles(spec Spec) Spec {
	mounts := make([]Mount, 0, len(spec.Mounts)+len(spec.Files))
	mounts = append(mounts, spec.Mounts...)
	for i, path := range memoryFiles(m.memory(spec.ID), spec.Files) {
		mounts = append(mounts, Mount{
			Type: "bind", Source: path, Target: spec.Files[i].Target, ReadOnly: true, Options: []string{"nosuid", "nodev"},
		})
	}
	spec.Mounts = mounts
	return spec
}

// placeFiles makes the container's file system in memory, with its files empty.
func (m *Manager) placeFiles(ctx context.Context, spec Spec) error {
	if len(spec.Files) == 0 {
		return nil
	}
	dir := m.memory(spec.ID)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("files of container %s: %w", spec.ID, err)
	}
	size := int64(memorySpare)
	for _, f := range spec.Files {
		size += int64(len(f.Data) + 2*os.Getpagesize()) // each in pages of its own
	}
	if err := m.host.mountMemory(ctx, dir, size); err != nil {
		return fmt.Errorf("files of container %s: %w", spec.ID, err)
	}
	for i, path := range memoryFiles(dir, spec.Files) {
		if err := placeFile(path, spec.Files[i]); err != nil {
			return fmt.Errorf("file %s of container %s: %w", spec.Files[i].Target, spec.ID, err)
		}
	}
	return nil
}

func placeFile(path string, f File) error {
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		return err
	}
	if err := os.Chown(path, f.UID, f.GID); err != nil {
		return err
	}
	return os.Chmod(path, f.Mode.Perm()) // whatever our umask
}

// fillFiles writes the files of a container that has its mounts.
func (m *Manager) fillFiles(ctx context.Context, spec Spec) error {
	if len(spec.Files) == 0 {
		return nil
	}
	dir := m.memory(spec.ID)
	for i, path := range memoryFiles(dir, spec.Files) {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err == nil {
			_, err = f.Write(spec.Files[i].Data)
			if cerr := f.Close(); err == nil {
				err = cerr
			}
		}
		if err != nil {
			return fmt.Errorf("file %s of container %s: %w", spec.Files[i].Target, spec.ID, err)
		}
	}
	if err := m.host.sealMemory(ctx, dir); err != nil {
		return fmt.Errorf("files of container %s: %w", spec.ID, err)
	}
	return nil
}
