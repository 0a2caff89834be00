// SPDX-License-Identifier: BSD-2-Clause

package image

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"satld/platform/atomicfile"
)

// transaction is one load, pull or import at work. It keeps the layers that
// it found or brought from being collected until its images are in the index,
// or until it gave up: then those that only it needed go.
type transaction struct {
	s     *Store
	held  []string
	added bool // brought a layer that is not known to be on the disk yet
}

func (s *Store) begin() *transaction { return &transaction{s: s} }

// end lets go of the layers; what nobody uses is deleted.
func (t *transaction) end() {
	t.s.mu.Lock()
	for _, id := range t.held {
		if t.s.holds[id]--; t.s.holds[id] == 0 {
			delete(t.s.holds, id)
		}
	}
	t.s.mu.Unlock()
	t.held = nil
	t.s.collect()
}

// hold keeps a layer, present or to come, from being collected, and tells
// whether it is present.
func (t *transaction) hold(diffID string) bool {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	t.held = append(t.held, diffID)
	t.s.holds[diffID]++
	_, ok := t.s.layers[diffID]
	return ok
}

// layer has the layer diffID in the store, unpacked from what open gives
// unless it is there. Of several that want the same layer at once, one
// unpacks and the others wait for it. existed tells that nothing was read.
func (t *transaction) layer(ctx context.Context, diffID string, open func(context.Context) (io.ReadCloser, error)) (existed bool, err error) {
	if t.hold(diffID) {
		return true, nil
	}
	unlock, err := t.s.busy.lock(ctx, "layer "+diffID)
	if err != nil {
		return false, err
	}
	defer unlock()
	if t.hold(diffID) {
		return true, nil
	}
	archive, err := open(ctx)
	if err != nil {
		return false, err
	}
	defer archive.Close()
	_, err = t.unpack(ctx, diffID, archive)
	return false, err
}

// unpack unpacks archive and puts the layer in its place. want is its diff
// ID, or empty if that is not known before.
func (t *transaction) unpack(ctx context.Context, want string, archive io.Reader) (layer, error) {
	dir, l, err := unpackLayer(ctx, t.s.path("tmp"), want, t.s.format, archive)
	if err != nil {
		return layer{}, err
	}
	if want == "" {
		t.hold(l.DiffID)
	}
	t.s.mu.Lock()
	_, exists := t.s.layers[l.DiffID]
	if !exists {
		if err = os.Rename(dir, t.s.layerDir(l.DiffID)); err == nil {
			t.s.layers[l.DiffID] = l
			t.added = true
		}
	}
	t.s.mu.Unlock()
	if exists || err != nil {
		if removeErr := RemoveTree(dir); err == nil {
			err = removeErr
		}
	}
	if err != nil {
		return layer{}, fmt.Errorf("keeping layer %s: %w", l.DiffID, err)
	}
	return l, nil
}

// newImage is an image whose layers are all held.
type newImage struct {
	id      string
	config  config
	tags    []string // in full form
	digests []string // in full form
}

// commit puts the images into the index, all or none.
func (t *transaction) commit(images []newImage) error {
	if t.added {
		if err := syncFS(t.s.dir); err != nil {
			return fmt.Errorf("writing layers to disk: %w", err)
		}
	}
	t.s.edit.Lock()
	defer t.s.edit.Unlock()
	for _, img := range images {
		if t.s.index.Images[img.id] {
			continue
		}
		if err := atomicfile.WriteDurably(t.s.path("configs", hexOf(img.id)), img.config.raw, fileMode); err != nil {
			t.s.dropConfigs(images)
			return err
		}
		// In memory before the index names it: readers look there.
		t.s.mu.Lock()
		t.s.configs[img.id] = img.config
		t.s.mu.Unlock()
	}
	err := t.s.update(func(x index) (index, error) {
		for _, img := range images {
			x = x.add(img.id, img.tags, img.digests)
		}
		return x, nil
	})
	if err != nil {
		t.s.dropConfigs(images)
	}
	return err
}

// dropConfigs forgets the configs of images that did not come into the index.
// The caller holds edit.
func (s *Store) dropConfigs(images []newImage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, img := range images {
		if !s.index.Images[img.id] {
			delete(s.configs, img.id)
			os.Remove(s.path("configs", hexOf(img.id)))
		}
	}
}

// maxConfig bounds an image's config and manifest, in bytes; Docker's own
// bound on a manifest is 4 MiB.
const maxConfig = 8 << 20

// parseConfig reads an image's config. id, unless empty, is what its digest
// must be. Errors are ErrInvalidArgument.
func parseConfig(raw []byte, id string) (config, error) {
	if id != "" && id != digestOf(raw) {
		return config{}, errInvalid("invalid image config: its content is %s, expected %s", digestOf(raw), id)
	}
	parsed, err := v1.ParseConfigFile(bytes.NewReader(raw))
	if err != nil {
		return config{}, errInvalid("invalid image config: %v", err)
	}
	for _, l := range parsed.RootFS.DiffIDs {
		if !isID(l.String()) { // it becomes a directory's name
			return config{}, errInvalid("invalid image config: layer %q is no SHA-256 digest", l)
		}
	}
	return config{raw: raw, parsed: *parsed}, nil
}

func digestOf(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}
