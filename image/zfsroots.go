// SPDX-License-Identifier: BSD-2-Clause

package image

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
)

// zfsRoots makes roots as clones. For each stack of layers that a container
// was made of there is a dataset, named by the OCI chain ID: the clone of the
// one below it with one more layer copied over, and a snapshot of that. It is made
// when a container first needs it, so an image that never ran takes its space
// once. A container's root is a clone of its uppermost snapshot.
//
// All is derived from names: a dataset without its snapshot is half-made,
// whoever crashed, and is made anew; one that no image and no container needs
// is swept. Nothing is mounted by the system itself at boot (canmount=noauto).
type zfsRoots struct {
	sets datasets
	tmp  string // where datasets of layers are mounted while they are made
	log  *slog.Logger

	chains keyLock // by chain ID: made, cloned or destroyed

	atOpen map[string]bool // containers whose roots were mounted at Open
}

func (z *zfsRoots) kind() string { return "zfs" }

// open has the datasets, and deletes the half-made ones.
func (z *zfsRoots) open(ctx context.Context) error {
	if err := z.sets.prepare(ctx); err != nil {
		return err
	}
	roots, err := z.sets.below(ctx, z.sets.root+"/"+containersSet)
	if err != nil {
		return err
	}
	z.atOpen = map[string]bool{}
	for _, r := range roots {
		if r.mounted {
			z.atOpen[strings.TrimPrefix(r.name, z.sets.container(""))] = true
		}
	}
	layers, err := z.layers(ctx)
	if err != nil {
		return err
	}
	for _, l := range layers {
		if l.final {
			continue
		}
		z.log.Info("a half-made dataset of a layer is destroyed", "dataset", l.name)
		if err := z.sets.destroy(ctx, l.name); err != nil {
			z.log.Warn("a half-made dataset of a layer is left; it is tried again", "error", err)
		}
	}
	return nil
}

func (z *zfsRoots) mounted(dir string) bool { return z.atOpen[filepath.Base(dir)] }

// mount: a dataset that is there has the container's changes and is kept. A
// clone is made in one step, so it is whole or not there.
func (z *zfsRoots) mount(ctx context.Context, dir string, layers []tree) error {
	root := z.sets.container(filepath.Base(dir))
	point := filepath.Join(dir, rootName)
	found, ok, err := z.sets.one(ctx, root)
	if err != nil {
		return err
	}
	if !ok {
		if err := z.clone(ctx, root, point, layers); err != nil {
			return err
		}
	}
	if found.mounted {
		return nil
	}
	return z.sets.mount(ctx, root, point)
}

func (z *zfsRoots) clone(ctx context.Context, root, point string, layers []tree) error {
	if len(layers) == 0 {
		return z.sets.create(ctx, root, "", point)
	}
	origin, unlock, err := z.stack(ctx, layers)
	if err != nil {
		return err
	}
	defer unlock()
	return z.sets.create(ctx, root, origin, point)
}

// stack has the dataset of a stack of layers and returns its snapshot, which
// stays until unlock. Locks are taken from the top of a stack downwards.
func (z *zfsRoots) stack(ctx context.Context, layers []tree) (snapshot string, unlock func(), err error) {
	chain := chainID(layers)
	unlock, err = z.chains.lock(ctx, chain)
	if err != nil {
		return "", nil, err
	}
	name := z.sets.layer(chain)
	snapshot = name + "@" + finalSnapshot
	if err := z.ensure(ctx, name, snapshot, chain, layers); err != nil {
		unlock()
		return "", nil, fmt.Errorf("making the dataset of layer %s: %w", layers[len(layers)-1].diffID, err)
	}
	return snapshot, unlock, nil
}

// ensure has the dataset of a stack, whose lock is held.
func (z *zfsRoots) ensure(ctx context.Context, name, snapshot, chain string, layers []tree) error {
	found, err := z.sets.below(ctx, name)
	if err != nil || slices.ContainsFunc(found, func(d dataset) bool { return d.name == snapshot }) {
		return err
	}
	if len(found) > 0 { // half-made
		if err := z.sets.destroy(ctx, name); err != nil {
			return err
		}
	}
	point := filepath.Join(z.tmp, "chain-"+chain[:16])
	if err = z.build(ctx, name, point, layers); err != nil {
		err = errors.Join(err, z.sets.destroy(context.WithoutCancel(ctx), name))
	}
	return errors.Join(err, RemoveTree(point))
}

// build makes the dataset of a stack: what is below it, the uppermost layer,
// the snapshot. The caller destroys what an error leaves.
func (z *zfsRoots) build(ctx context.Context, name, point string, layers []tree) error {
	last := len(layers) - 1
	origin := ""
	if last > 0 {
		below, unlock, err := z.stack(ctx, layers[:last])
		if err != nil {
			return err
		}
		defer unlock()
		origin = below
	}
	if err := z.sets.create(ctx, name, origin, point); err != nil {
		return err
	}
	if err := z.sets.mount(ctx, name, point); err != nil {
		return err
	}
	err := copyLayer(ctx, layers[last].dir, point)
	if err == nil {
		err = z.sets.snapshot(ctx, name)
	}
	return errors.Join(err, z.sets.unmount(context.WithoutCancel(ctx), name))
}

// chainID names a stack of layers, lowest first (OCI image-spec, config.md,
// "Layer ChainID"), in hex.
func chainID(layers []tree) string {
	chains := chainsOf(layers)
	return chains[len(chains)-1]
}

// chainsOf are the chain IDs of a stack and of each below it, in hex, lowest
// first.
func chainsOf(layers []tree) []string {
	var chains []string
	for i, l := range layers {
		id := hexOf(l.diffID)
		if i > 0 {
			sum := sha256.Sum256([]byte("sha256:" + chains[i-1] + " " + l.diffID))
			id = hex.EncodeToString(sum[:])
		}
		chains = append(chains, id)
	}
	return chains
}

// unmount does not force: a jail that is dying holds its root for a while,
// and the caller asks again (BusyError, with the mounts within if there are any).
func (z *zfsRoots) unmount(ctx context.Context, dir string) error {
	err := z.sets.unmount(ctx, z.sets.container(filepath.Base(dir)))
	if busy := new(*BusyError); errors.As(err, busy) {
		root := filepath.Join(dir, rootName)
		mounts, listErr := mountsBelow(root)
		if listErr != nil {
			return errors.Join(err, listErr)
		}
		(*busy).Mounts = slices.DeleteFunc(mounts, func(m string) bool { return m == root })
	}
	return err
}

// remove deletes the dataset, and what a root of another kind left: a host may
// have got its dataset later.
func (z *zfsRoots) remove(ctx context.Context, dir string) error {
	if err := z.sets.destroy(ctx, z.sets.container(filepath.Base(dir))); err != nil {
		return err
	}
	return copier{}.remove(ctx, dir)
}

func (z *zfsRoots) usage(ctx context.Context, dir string, _ []tree) (int64, error) {
	return z.sets.used(ctx, z.sets.container(filepath.Base(dir)))
}

func (z *zfsRoots) kept(ctx context.Context) (int64, error) {
	return z.sets.used(ctx, z.sets.root+"/"+layersSet)
}

// layerSet is the dataset of a stack of layers.
type layerSet struct {
	dataset
	chain string
	final bool // has its snapshot: is whole
}

func (z *zfsRoots) layers(ctx context.Context) ([]layerSet, error) {
	parent := z.sets.root + "/" + layersSet
	all, err := z.sets.below(ctx, parent)
	if err != nil {
		return nil, err
	}
	var layers []layerSet
	for _, d := range all {
		if chain, ok := strings.CutPrefix(d.name, z.sets.layer("")); ok && containerID.MatchString(chain) {
			whole := slices.ContainsFunc(all, func(s dataset) bool { return s.name == d.name+"@"+finalSnapshot })
			layers = append(layers, layerSet{dataset: d, chain: chain, final: whole})
		}
	}
	return layers, nil
}

// sweep goes on after a failure and reports all of them.
func (z *zfsRoots) sweep(ctx context.Context, needed func() needed) error {
	roots, err := z.sets.below(ctx, z.sets.root+"/"+containersSet)
	if err != nil {
		return err
	}
	layers, err := z.layers(ctx)
	if err != nil {
		return err
	}
	now := needed() // after the lists: what was made since is not in them
	var errs []error
	for _, r := range roots {
		id, ok := strings.CutPrefix(r.name, z.sets.container(""))
		if ok && containerID.MatchString(id) && !now.containers[id] {
			errs = append(errs, z.sets.destroy(ctx, r.name))
		}
	}
	layers = slices.DeleteFunc(layers, func(l layerSet) bool { return now.chains[l.chain] })
	// What is cloned goes before what it is a clone of.
	for len(layers) > 0 {
		top := slices.IndexFunc(layers, func(l layerSet) bool {
			return !slices.ContainsFunc(layers, func(above layerSet) bool { return above.origin == l.name+"@"+finalSnapshot })
		})
		if top < 0 {
			break // no clone is its own origin
		}
		errs = append(errs, z.drop(ctx, layers[top], needed))
		layers = slices.Delete(layers, top, top+1)
	}
	return errors.Join(errs...)
}

// drop destroys the dataset of a stack unless somebody needs it by now. That is
// asked under the lock: who needs a stack says so before taking it.
func (z *zfsRoots) drop(ctx context.Context, l layerSet, needed func() needed) error {
	unlock, err := z.chains.lock(ctx, l.chain)
	if err != nil {
		return err
	}
	defer unlock()
	if needed().chains[l.chain] {
		return nil
	}
	return z.sets.destroy(ctx, l.name)
}
