// SPDX-License-Identifier: BSD-2-Clause

package image

import (
	"encoding/json"
	"path"

	"github.com/distribution/reference"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// described is one image as an archive describes it.
type described struct {
	config string   // member that is its config
	digest string   // what the config's digest must be; empty: any
	tags   []string // as the archive has them
	layers []string // members, lowest first
}

func (d described) String() string {
	if len(d.tags) > 0 {
		return d.tags[0]
	}
	return path.Base(d.config)
}

// images reads the archive's description of its images: that of `docker
// save` if it has both kinds, as newer Docker's archives do.
func (a *archiveFile) images() ([]described, error) {
	switch {
	case a.has("manifest.json"):
		return a.dockerImages()
	case a.has("index.json"):
		return a.ociImages()
	}
	return nil, errInvalid("invalid image archive: neither manifest.json (docker save) nor index.json (OCI image layout) is in it")
}

// savedImage is an image in manifest.json of a `docker save` archive.
type savedImage struct {
	Config   string
	RepoTags []string
	Layers   []string
}

func (a *archiveFile) dockerImages() ([]described, error) {
	data, err := a.read("manifest.json")
	if err != nil {
		return nil, err
	}
	manifest, err := parseManifest[[]savedImage](data)
	if err != nil {
		return nil, err
	}
	var images []described
	for _, m := range manifest {
		images = append(images, described{config: m.Config, tags: m.RepoTags, layers: m.Layers})
	}
	if len(images) == 0 {
		return nil, errInvalid("invalid image archive: manifest.json names no image")
	}
	return images, nil
}

// Annotations that name an image in an OCI layout; containerd's is the full
// name, the other is that or only a tag.
const (
	annotationName = "io.containerd.image.name"
	annotationRef  = "org.opencontainers.image.ref.name"
)

func (a *archiveFile) ociImages() ([]described, error) {
	data, err := a.read("index.json")
	if err != nil {
		return nil, err
	}
	index, err := parseManifest[v1.IndexManifest](data)
	if err != nil {
		return nil, err
	}
	var images []described
	for _, desc := range index.Manifests {
		d, err := a.ociImage(desc, 0)
		if err != nil {
			return nil, err
		}
		if name := desc.Annotations[annotationName]; name != "" {
			d.tags = []string{name}
		} else if name := desc.Annotations[annotationRef]; hasTag(name) {
			d.tags = []string{name}
		}
		images = append(images, d)
	}
	if len(images) == 0 {
		return nil, errInvalid("invalid image archive: index.json names no image")
	}
	return images, nil
}

// hasTag tells a name with a tag from what may be only a tag.
func hasTag(name string) bool {
	named, err := reference.ParseNormalizedNamed(name)
	if err != nil {
		return false
	}
	_, ok := named.(reference.Tagged)
	return ok
}

// maxIndexDepth bounds lists of lists of images.
const maxIndexDepth = 4

// ociImage follows a descriptor to the image for this platform.
func (a *archiveFile) ociImage(desc v1.Descriptor, depth int) (described, error) {
	data, err := a.blob(desc.Digest)
	if err != nil {
		return described{}, err
	}
	if isIndex(desc.MediaType, data) {
		index, err := parseManifest[v1.IndexManifest](data)
		if err != nil {
			return described{}, err
		}
		chosen, ok := choose(index.Manifests)
		if !ok || depth == maxIndexDepth {
			return described{}, errInvalid("invalid image archive: it has no image for %s", wanted())
		}
		return a.ociImage(chosen, depth+1)
	}
	manifest, err := parseManifest[v1.Manifest](data)
	if err != nil {
		return described{}, err
	}
	d := described{config: blobPath(manifest.Config.Digest), digest: manifest.Config.Digest.String()}
	for _, l := range manifest.Layers {
		d.layers = append(d.layers, blobPath(l.Digest))
	}
	return d, nil
}

func blobPath(h v1.Hash) string { return path.Join("blobs", h.Algorithm, h.Hex) }

// blob reads a small blob and checks that it is what its name says.
func (a *archiveFile) blob(h v1.Hash) ([]byte, error) {
	data, err := a.read(blobPath(h))
	if err != nil {
		return nil, err
	}
	if digestOf(data) != h.String() {
		return nil, errInvalid("invalid image archive: the content of %s is %s", blobPath(h), digestOf(data))
	}
	return data, nil
}

func isIndex(t types.MediaType, data []byte) bool {
	if t != "" {
		return t.IsIndex()
	}
	var probe struct{ Manifests []json.RawMessage }
	return json.Unmarshal(data, &probe) == nil && probe.Manifests != nil
}

func parseManifest[T any](data []byte) (T, error) {
	var m T
	if err := json.Unmarshal(data, &m); err != nil {
		return m, errInvalid("invalid image archive: %v", err)
	}
	return m, nil
}
