// SPDX-License-Identifier: BSD-2-Clause

package image

import (
	"context"
	"fmt"
	"path/filepath"

	"satld/platform/command"
)

// ZFSOff is the value of Config.ZFSRoot for plain copies on any file system.
const ZFSOff = "off"

// newJailRoots is how a FreeBSD host makes roots: clones of ZFS datasets below
// zfsRoot, or where that is empty below the dataset that is mounted at the
// state directory, if one is; and full copies otherwise.
func newJailRoots(s *Store, zfsRoot string, run command.Runner) (rootMaker, error) {
	if zfsRoot == ZFSOff {
		return copier{}, nil
	}
	ctx := context.Background()
	state := filepath.Dir(s.dir)
	if zfsRoot == "" {
		table, err := mountTable(ctx, run)
		if err != nil {
			return nil, fmt.Errorf("looking for a dataset at %s: %w", state, err)
		}
		for _, m := range table {
			if m.on == state { // of several, the last covers the others
				zfsRoot = ""
				if m.kind == "zfs" {
					zfsRoot = m.from
				}
			}
		}
	}
	if zfsRoot == "" {
		s.log.Info("every container gets a full copy of its image: no ZFS dataset is mounted at the state directory", "dir", state)
		return copier{}, nil
	}
	z := &zfsRoots{sets: datasets{root: zfsRoot, state: state, run: run}, tmp: s.path("tmp"), log: s.log}
	if err := z.open(ctx); err != nil {
		return nil, fmt.Errorf("using ZFS below %s: %w", zfsRoot, err)
	}
	return z, nil
}
