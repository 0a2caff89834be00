// SPDX-License-Identifier: BSD-2-Clause

package jail

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"satld/jail/shim"
)

// strays are jails in our directories that nobody knows of: ocijail's create
// died between making the jail and writing that down, and its delete then does
// nothing. What lies elsewhere is not looked at.
func strays(all []prison, records map[string]jailRecord, inside func(path string) bool) (names []string) {
	for _, p := range all {
		if _, known := records[p.name]; !known && !p.dying && inside(p.path) {
			names = append(names, p.name)
		}
	}
	return names
}

// abandoned are jails that have a record and no container any more.
func abandoned(records map[string]jailRecord, hasContainer func(name string) bool) (names []string) {
	for _, name := range slices.Sorted(maps.Keys(records)) {
		if records[name].Deleted.IsZero() && !hasContainer(name) {
			names = append(names, name)
		}
	}
	return names
}

// reconcile is done once, at the start: what a crash left and no container
// accounts for is removed. Everything else comes with the container's own
// deletion. What fails is logged and tried at the next start.
func (j *jails) reconcile(ctx context.Context) {
	if err := j.tryReconcile(ctx); err != nil {
		j.log.Warn("what an earlier daemon left of jails is not all removed", "error", err)
	}
}

// mendRecords makes a record that is damaged anew of what ocijail knows, or drops
// it: one alone would keep every jail's root from being taken away, as nobody
// knows whether that is its root too. What ocijail does not know has no jail that
// was made whole, and is a stray if it has one.
func (j *jails) mendRecords() error {
	names, err := j.records.names()
	errs := []error{err}
	for _, name := range names {
		_, _, err := j.records.read(name)
		if !errors.Is(err, shim.ErrDamaged) {
			continue
		}
		root, known := j.stateOf(name).root()
		j.log.Error("the record of a jail is damaged: it is made again of what ocijail knows, or removed", "jail", name, "known", known, "error", err)
		if known {
			errs = append(errs, j.records.write(name, jailRecord{Rootfs: root, Limits: j.counts}))
		} else {
			errs = append(errs, j.records.remove(name))
		}
	}
	return errors.Join(errs...)
}

func (j *jails) tryReconcile(ctx context.Context) error {
	if err := j.mendRecords(); err != nil {
		return err
	}
	records, err := j.records.all()
	if err != nil {
		return err
	}
	all, err := j.tool.prisons(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range strays(all, records, j.inside) {
		j.log.Warn("removing a jail that no container accounts for", "jail", name)
		_, err := j.tool(ctx, j.ending(name)...)
		errs = append(errs, err)
	}
	hasContainer := func(name string) bool {
		_, err := os.Lstat(j.layout.Container(name))
		return !errors.Is(err, fs.ErrNotExist)
	}
	for _, name := range abandoned(records, hasContainer) {
		j.records.delete(name, records[name], j.log) // the background does the rest
	}
	mounts, err := j.tool.mounts(ctx)
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	known := make(map[string]bool)
	for _, r := range records {
		known[r.Rootfs] = true
	}
	orphans := orphanPoints(mounts, j.roots, func(id string) bool { return known[filepath.Join(j.roots, id, rootName)] })
	for _, p := range orphans {
		j.log.Warn("unmounting what no container accounts for", "path", p)
	}
	errs = append(errs, j.unmountAll(ctx, orphans))
	return errors.Join(append(errs, j.reconcileMemory(ctx, records))...)
}
