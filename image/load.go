// SPDX-License-Identifier: BSD-2-Clause

package image

import (
	"context"
	"fmt"
	"io"
	"slices"
)

// Load reads a `docker save` archive or an OCI image layout in an archive,
// compressed or not: all its images or, on an error, none. The images
// returned carry, as RepoTags, the names that the archive gives them.
func (s *Store) Load(ctx context.Context, archive io.Reader, progress Progress) ([]Image, error) {
	a, err := spool(ctx, s.path("tmp"), archive)
	if err != nil {
		return nil, fmt.Errorf("loading images: %w", err)
	}
	defer a.Close()
	list, err := a.images()
	if err != nil {
		return nil, err
	}
	t := s.begin()
	defer t.end()
	tell := serial(progress)
	var loaded []newImage
	for _, d := range list {
		img, err := t.load(ctx, a, d, tell)
		if err != nil {
			return nil, fmt.Errorf("loading image %s: %w", d, err)
		}
		loaded = append(loaded, img)
	}
	if err := t.commit(loaded); err != nil {
		return nil, fmt.Errorf("loading images: %w", err)
	}
	var images []Image
	for _, l := range loaded {
		img, err := s.Get(l.id)
		if err != nil {
			return nil, err // removed already by somebody else
		}
		img.RepoTags = familiars(l.tags)
		images = append(images, img)
	}
	return images, nil
}

// load unpacks one image's layers.
func (t *transaction) load(ctx context.Context, a *archiveFile, d described, tell Progress) (newImage, error) {
	raw, err := a.read(d.config)
	if err != nil {
		return newImage{}, err
	}
	c, err := parseConfig(raw, d.digest)
	if err != nil {
		return newImage{}, err
	}
	if err := runsHere(c.parsed); err != nil {
		return newImage{}, err
	}
	ids := c.layerIDs()
	if len(ids) != len(d.layers) {
		return newImage{}, errInvalid("invalid image archive: the image has %d layers, the archive names %d", len(ids), len(d.layers))
	}
	img := newImage{id: digestOf(raw), config: c}
	for _, tag := range d.tags {
		name, err := parseTag(tag)
		if err != nil {
			return newImage{}, err
		}
		if !slices.Contains(img.tags, name.String()) {
			img.tags = append(img.tags, name.String())
		}
	}
	for i, id := range ids {
		_, err := t.layer(ctx, id, func(context.Context) (io.ReadCloser, error) {
			r, err := a.open(d.layers[i])
			if err != nil {
				return nil, err
			}
			return io.NopCloser(&progressReader{r: r, status: "Loading layer", id: shortID(id), total: r.Size(), tell: tell}), nil
		})
		if err != nil {
			return newImage{}, fmt.Errorf("layer %d: %w", i, truncatedIsInvalid(err))
		}
	}
	return img, nil
}
