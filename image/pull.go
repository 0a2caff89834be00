// SPDX-License-Identifier: BSD-2-Clause

package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/distribution/reference"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// pullParallel is how many layers are fetched at once, Docker's default.
const pullParallel = 3

// layerTries is how often a layer is asked for when the connection breaks.
const layerTries = 3

// Pull fetches ref from its registry. See Images.
func (s *Store) Pull(ctx context.Context, ref string, auth Auth, progress Progress) (Image, error) {
	named, err := parseName(ref)
	if err != nil {
		return Image{}, err
	}
	tell := serial(progress)
	desc, err := s.describe(ctx, named, auth)
	if err != nil {
		return Image{}, err
	}
	tell("Pulling from "+reference.FamiliarName(named), identifier(named), 0, 0)
	img, err := platformImage(ctx, named, desc)
	if err != nil {
		return Image{}, err
	}
	t := s.begin()
	defer t.end()
	found, err := t.pull(ctx, named, img, tell)
	if err != nil {
		return Image{}, err
	}
	found.digests = []string{canonicalName(named, desc.Digest)}
	if _, ok := named.(reference.Tagged); ok {
		found.tags = []string{named.String()}
	}
	isNew := !s.isCalled(named, found.id)
	if err := t.commit([]newImage{found}); err != nil {
		return Image{}, fmt.Errorf("pulling %s: %w", reference.FamiliarString(named), err)
	}
	tell("Digest: "+desc.Digest.String(), "", 0, 0)
	if isNew {
		tell("Status: Downloaded newer image for "+reference.FamiliarString(named), "", 0, 0)
	} else {
		tell("Status: Image is up to date for "+reference.FamiliarString(named), "", 0, 0)
	}
	return s.Get(found.id)
}

// isCalled tells whether named is the image id already.
func (s *Store) isCalled(named reference.Named, id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.index.Tags[named.String()] == id || s.index.Digests[named.String()] == id
}

// platformImage is the image of an answer, or the one for this platform where
// the answer is a list of several.
func platformImage(ctx context.Context, named reference.Named, desc *remote.Descriptor) (v1.Image, error) {
	if !desc.MediaType.IsIndex() {
		img, err := desc.Image()
		if err != nil {
			return nil, asInvalid(fmt.Errorf("pulling %s: %w", reference.FamiliarString(named), err))
		}
		return img, nil
	}
	list, err := manifestList(named, desc)
	if err != nil {
		return nil, err
	}
	chosen, ok := choose(list.Manifests)
	if !ok {
		return nil, errNotFound("no matching manifest for %s in the manifest list entries of %s", wanted(), reference.FamiliarString(named))
	}
	index, err := desc.ImageIndex()
	if err != nil {
		return nil, registryError(ctx, named, err)
	}
	img, err := index.Image(chosen.Digest)
	if err != nil {
		return nil, registryError(ctx, named, err)
	}
	return img, nil
}

// pull fetches an image's config and those of its layers that are not here.
func (t *transaction) pull(ctx context.Context, named reference.Named, img v1.Image, tell Progress) (newImage, error) {
	raw, err := img.RawConfigFile()
	if err != nil {
		return newImage{}, registryError(ctx, named, err)
	}
	id, err := img.ConfigName()
	if err != nil {
		return newImage{}, registryError(ctx, named, err)
	}
	c, err := parseConfig(raw, id.String())
	if err != nil {
		return newImage{}, err
	}
	if err := runsHere(c.parsed); err != nil {
		return newImage{}, err
	}
	manifest, err := img.Manifest()
	if err != nil {
		return newImage{}, registryError(ctx, named, err)
	}
	ids := c.layerIDs()
	if len(ids) != len(manifest.Layers) {
		return newImage{}, errInvalid("invalid image %s: its config has %d layers, its manifest %d", reference.FamiliarString(named), len(ids), len(manifest.Layers))
	}
	for _, desc := range manifest.Layers {
		tell("Pulling fs layer", shortID(desc.Digest.String()), 0, 0)
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(pullParallel)
	for i, desc := range manifest.Layers {
		group.Go(func() error { return t.pullLayer(groupCtx, img, ids[i], desc, tell) })
	}
	if err := group.Wait(); err != nil {
		return newImage{}, registryError(ctx, named, err)
	}
	return newImage{id: id.String(), config: c}, nil
}

// pullLayer fetches and unpacks one layer, both at once, again when the
// connection breaks.
func (t *transaction) pullLayer(ctx context.Context, img v1.Image, diffID string, desc v1.Descriptor, tell Progress) error {
	show := shortID(desc.Digest.String())
	blob, err := img.LayerByDigest(desc.Digest)
	if err != nil {
		return err
	}
	for try := 1; ; try++ {
		existed, err := t.layer(ctx, diffID, func(ctx context.Context) (io.ReadCloser, error) {
			body, err := blob.Compressed() // checks the digest of what is read
			if err != nil {
				return nil, err
			}
			return &download{
				progressReader: progressReader{r: body, status: "Downloading", id: show, total: desc.Size, tell: tell},
				body:           body,
				stop:           context.AfterFunc(ctx, func() { body.Close() }), // ends a Read that waits
			}, nil
		})
		switch {
		case err == nil && existed:
			tell("Already exists", show, 0, 0)
			return nil
		case err == nil:
			tell("Pull complete", show, 0, 0)
			return nil
		case try == layerTries || ctx.Err() != nil || !brokenConnection(err):
			return err
		}
		tell(fmt.Sprintf("Retrying in %d second%s", try, map[bool]string{true: "s"}[try > 1]), show, 0, 0)
		select {
		case <-time.After(time.Duration(try) * time.Second):
		case <-ctx.Done():
			return err
		}
	}
}

// brokenConnection tells whether trying again may help.
func brokenConnection(err error) bool {
	return errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, errStalled) || errors.Is(err, unix.ECONNRESET)
}

// download is a layer on its way, which is unpacked as it comes.
type download struct {
	progressReader
	body io.ReadCloser
	stop func() bool
	done bool
}

func (d *download) Read(p []byte) (int, error) {
	n, err := d.progressReader.Read(p)
	if errors.Is(err, io.EOF) && !d.done {
		d.done = true
		d.tell("Download complete", d.id, 0, 0)
		d.tell("Extracting", d.id, d.total, d.total)
	}
	return n, err
}

func (d *download) Close() error {
	d.stop()
	return d.body.Close()
}
