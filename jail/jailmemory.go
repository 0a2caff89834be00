// SPDX-License-Identifier: BSD-2-Clause

package jail

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// mountMemory: see host.
func (j *jails) mountMemory(ctx context.Context, dir string, size int64) error {
	_, err := j.tool(ctx, "mount", "-t", "tmpfs", "-o", "nosuid,mode=0700,size="+strconv.FormatInt(size, 10), "tmpfs", dir)
	return err
}

// sealMemory: see host. The jail's mounts of it are read-only, and need it.
func (j *jails) sealMemory(context.Context, string) error { return nil }

// filesMounted tells that the jail has mounts of its files. Where the kernel
// cannot mount a single file, which FreeBSD 14 can, ocijail copies it into the
// root, and so to a disk: it is empty yet, and the jail is refused.
func (j *jails) filesMounted(ctx context.Context, spec Spec) error {
	if len(spec.Files) == 0 {
		return nil
	}
	mounts, err := j.tool.mounts(ctx)
	if err != nil {
		return fmt.Errorf("look for the files of container %s: %w", spec.ID, err)
	}
	for i, path := range memoryFiles(filepath.Join(j.memories, spec.ID), spec.Files) {
		if !slices.ContainsFunc(mounts, func(m mountLine) bool { return m.from(path) }) {
			return unsupported("secrets and configs: this system cannot mount a single file, and %s would be copied to a disk", spec.Files[i].Target)
		}
	}
	return nil
}

// from tells that it is a mount of that path.
func (m mountLine) from(path string) bool {
	rest, ok := strings.CutPrefix(m.paths, path)
	return ok && (strings.HasPrefix(rest, "\t") || strings.HasPrefix(rest, " "))
}

// unmountMemory takes a container's file system in memory away, once nothing
// is mounted of it any more.
func (j *jails) unmountMemory(ctx context.Context, name string) error {
	dir := filepath.Join(j.memories, name)
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	mounts, err := j.tool.mounts(ctx)
	if err != nil {
		return err
	}
	points := slices.DeleteFunc(pointsBelow(mounts, j.memories), func(p string) bool { return p != dir })
	if err := j.unmountAll(ctx, points); err != nil {
		return err
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove %s: %w", dir, err)
	}
	return nil
}

// reconcileMemory takes away what no jail accounts for any more.
func (j *jails) reconcileMemory(ctx context.Context, records map[string]jailRecord) error {
	entries, err := os.ReadDir(j.memories)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, e := range entries {
		if _, known := records[e.Name()]; !known {
			j.log.Warn("unmounting files that no container accounts for", "container", e.Name())
			errs = append(errs, j.unmountMemory(ctx, e.Name()))
		}
	}
	return errors.Join(errs...)
}
