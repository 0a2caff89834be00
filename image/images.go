// SPDX-License-Identifier: BSD-2-Clause

package image

import (
	"context"
	"io"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// Image is one stored image.
type Image struct {
	ID          string   // "sha256:<hex>" of its config
	RepoTags    []string // "nginx:1"
	RepoDigests []string // "registry.example.com/nginx@sha256:<hex>"
	Created     time.Time
	Size        int64 // bytes of its unpacked layers
	Config      v1.ConfigFile
}

// Auth is what a registry asks for; the zero value is anonymous.
type Auth struct {
	Username, Password, IdentityToken, RegistryToken string
}

// Progress is told what a pull or a load does, in the words of Docker's own
// JSON stream ("Downloading", id, current, total). It may be nil.
type Progress func(status, id string, current, total int64)

// Images is what the rest of the program uses of this package; *Store
// implements it. Errors are typed with containerd/errdefs (ErrNotFound,
// ErrConflict, ErrInvalidArgument, ErrUnauthenticated, ErrUnavailable).
type Images interface {
	// Pull fetches ref from its registry, unpacks it once and tags it. Plain
	// HTTP is used for registries on loopback. A failed pull leaves nothing.
	Pull(ctx context.Context, ref string, auth Auth, progress Progress) (Image, error)
	// Load reads a `docker save` or OCI archive and returns what it held.
	Load(ctx context.Context, archive io.Reader, progress Progress) ([]Image, error)
	// Save writes a `docker save` archive of the named images.
	Save(ctx context.Context, refs []string, w io.Writer) error
	// Import makes an image of one root file system archive (`docker import`):
	// ref may be empty; changes are Dockerfile instructions (CMD, ENTRYPOINT,
	// ENV, EXPOSE, LABEL, STOPSIGNAL, USER, VOLUME, WORKDIR).
	Import(ctx context.Context, archive io.Reader, ref, message string, changes []string) (Image, error)
	// Get finds an image by reference, ID or unique prefix of its ID.
	Get(ref string) (Image, error)
	List() []Image
	Tag(ref, target string) error
	// Remove drops a tag, and the image with its last tag. It refuses
	// (ErrConflict) while a container uses the image, unless forced to untag.
	// It tells what was untagged and deleted.
	Remove(ctx context.Context, ref string, force bool) (untagged, deleted []string, err error)
	// Digest asks the registry for the digest and the platforms of ref.
	Digest(ctx context.Context, ref string, auth Auth) (v1.Descriptor, []v1.Platform, error)

	// Mount gives container its root file system of the image and returns
	// the path; it is idempotent, and mounts an existing one again with its
	// changes kept (after a reboot, or at `docker start`).
	Mount(ctx context.Context, imageID, containerID string) (root string, err error)
	// Unmount unmounts container's root and keeps its changes. Idempotent.
	Unmount(ctx context.Context, containerID string) error
	// Release unmounts and deletes container's root. Idempotent.
	Release(ctx context.Context, containerID string) error
	// Sweep releases every root whose container keep does not name.
	Sweep(ctx context.Context, keep map[string]bool) error
	// Usage is the size of a container's own changes, in bytes.
	Usage(ctx context.Context, containerID string) (int64, error)
	// LayersSize is the total size of all unpacked layers, in bytes.
	LayersSize() int64
}
