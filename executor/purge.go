// SPDX-License-Identifier: BSD-2-Clause

package executor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"

	"satld/image"
	"satld/jail"
)

// Purge kills and removes every container of a state directory that no
// daemon works on. It goes on after a failure and reports them all.
func Purge(ctx context.Context, stateDir string, rt jail.Runtime, images image.Images, networks Networks) error {
	n := &Node{dir: filepath.Join(stateDir, "executor"), cfg: Config{Runtime: rt, Images: images, Networks: networks}, ctx: ctx, log: slog.Default()}
	records, strays, _, err := loadRecords(n.dir)
	if err != nil {
		return err
	}
	known, err := rt.List(ctx)
	if err != nil {
		return err
	}
	ids := append(strays, known...)
	runs := make(map[string]string) // the last run of a container, by its ID
	for _, r := range records {
		ids = append(ids, r.ID)
		runs[r.ID] = r.runtimeID()
	}
	var failed error
	for _, id := range ids {
		failed = errors.Join(failed, rt.Delete(ctx, cmp.Or(runs[id], id)))
	}
	for _, id := range ids {
		n.awaitVanished(n.log.With("container", short(id)), cmp.Or(runs[id], id))
		if err := n.purge(ctx, id, cmp.Or(runs[id], id)); err != nil {
			failed = errors.Join(failed, fmt.Errorf("container %s: %w", short(id), err))
		}
	}
	return errors.Join(failed, networks.Sweep(ctx, nil), images.Sweep(ctx, nil))
}
