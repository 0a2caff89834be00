// SPDX-License-Identifier: BSD-2-Clause

package image

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"
)

// Save writes a `docker save` archive: for each image its config and its layers
// as they came, and manifest.json. An image asked for by name carries that
// name; one asked for by ID carries none, as with Docker.
func (s *Store) Save(ctx context.Context, refs []string, w io.Writer) error {
	if len(refs) == 0 {
		return errInvalid("saving images: no image was named")
	}
	t := s.begin()
	defer t.end()
	order, err := t.chosen(refs)
	if err != nil {
		return err
	}
	tw := tar.NewWriter(w)
	written := map[string]bool{}
	var manifest []savedImage
	for _, img := range order {
		m := savedImage{Config: blobName(img.id), RepoTags: familiars(img.tags), Layers: []string{}}
		if err := writeMember(tw, m.Config, img.config.raw); err != nil {
			return fmt.Errorf("saving image %s: %w", img.id, err)
		}
		for _, id := range img.config.layerIDs() {
			m.Layers = append(m.Layers, blobName(id))
			if written[id] {
				continue
			}
			written[id] = true
			if err := s.saveLayer(ctx, tw, id); err != nil {
				return fmt.Errorf("saving layer %s: %w", id, err)
			}
		}
		manifest = append(manifest, m)
	}
	data, err := json.Marshal(manifest)
	if err != nil {
		return err
	}
	if err := writeMember(tw, "manifest.json", data); err != nil {
		return fmt.Errorf("saving images: %w", err)
	}
	if err := tw.Close(); err != nil {
		return fmt.Errorf("saving images: %w", err)
	}
	return nil
}

func blobName(id string) string { return "blobs/sha256/" + hexOf(id) }

// chosen finds the images, each once with all the names it was asked for by,
// and holds their layers.
func (t *transaction) chosen(refs []string) ([]newImage, error) {
	var order []newImage
	for _, ref := range refs {
		img, tag, err := t.find(ref)
		if err != nil {
			return nil, err
		}
		at := slices.IndexFunc(order, func(o newImage) bool { return o.id == img.id })
		if at < 0 {
			at = len(order)
			order = append(order, img)
		}
		if tag != "" && !slices.Contains(order[at].tags, tag) {
			order[at].tags = append(order[at].tags, tag)
		}
	}
	return order, nil
}

// find looks an image up and holds its layers, in one step. tag is the name
// it was found by, if that is a tag.
func (t *transaction) find(ref string) (img newImage, tag string, err error) {
	s := t.s
	s.mu.Lock()
	defer s.mu.Unlock()
	id, name, err := s.index.find(ref)
	if err != nil {
		return newImage{}, "", err
	}
	if _, isTag := s.index.Tags[name]; isTag {
		tag = name
	}
	c := s.configs[id]
	for _, l := range c.layerIDs() {
		t.held = append(t.held, l)
		s.holds[l]++
	}
	return newImage{id: id, config: c}, tag, nil
}

// saveLayer writes a layer's archive. Its length, which comes first in an
// archive, is found by writing it to nowhere first, and with it whether the
// files are still what they were.
func (s *Store) saveLayer(ctx context.Context, tw *tar.Writer, diffID string) error {
	dir := s.layerDir(diffID)
	sum := sha256.New()
	count := &counter{ctx: ctx, w: sum}
	if err := writeLayer(dir, count); err != nil {
		return err
	}
	if got := "sha256:" + hex.EncodeToString(sum.Sum(nil)); got != diffID {
		return fmt.Errorf("its files were changed: its content is %s now", got)
	}
	if err := tw.WriteHeader(memberHeader(blobName(diffID), count.n)); err != nil {
		return err
	}
	return writeLayer(dir, &counter{ctx: ctx, w: tw})
}

// counter counts what is written through it, until its context is done.
type counter struct {
	ctx context.Context
	w   io.Writer
	n   int64
}

func (c *counter) Write(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

func memberHeader(name string, size int64) *tar.Header {
	return &tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: size, ModTime: time.Unix(0, 0)}
}

func writeMember(tw *tar.Writer, name string, data []byte) error {
	if err := tw.WriteHeader(memberHeader(name, int64(len(data)))); err != nil {
		return err
	}
	_, err := tw.Write(data)
	return err
}
