// SPDX-License-Identifier: BSD-2-Clause

package executor

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"satld/image"
	"satld/jail"
	"satld/network"
)

// Purge kills and removes every container of a state directory that no
// daemon works on. It goes on after a failure and reports them all.
func Purge(ctx context.Context, stateDir string, rt jail.Runtime, images image.Images, networks network.Networks) error {
	n := &Node{dir: filepath.Join(stateDir, "executor"), cfg: Config{Runtime: rt, Images: images, Networks: networks}}
	records, strays, _, err := loadRecords(n.dir)
	if err != nil {
		return err
	}
	known, err := rt.List(ctx)
	if err != nil {
		return err
	}
	ids := append(strays, known...)
	for _, r := range records {
		ids = append(ids, r.ID)
	}
	var failed error
	for _, id := range ids {
		if err := n.purge(ctx, id); err != nil {
			failed = errors.Join(failed, fmt.Errorf("container %s: %w", short(id), err))
		}
	}
	return errors.Join(failed, networks.Sweep(ctx, nil), images.Sweep(ctx, nil))
}
