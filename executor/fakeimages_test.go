// SPDX-License-Identifier: BSD-2-Clause

package executor

import (
	"cmp"
	"context"

	cerrdefs "github.com/containerd/errdefs"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"satld/image"
)

type fakeImages struct {
	image.Images
	j    *journal // nil: not written
	busy func() error
	root string // "" is /root

	labels map[string]string // of every image
}

func (f *fakeImages) Get(ref string) (image.Image, error) {
	if ref == "missing:1" {
		return image.Image{}, cerrdefs.ErrNotFound.WithMessage("No such image: " + ref)
	}
	return image.Image{ID: "sha256:1", Config: v1.ConfigFile{Config: v1.Config{
		Cmd: []string{"/app"}, Env: []string{"PATH=/bin", "A=1"}, WorkingDir: "/srv", User: "web", Labels: f.labels,
		Healthcheck: &v1.HealthConfig{Test: []string{"CMD", "/image-probe"}},
	}}}, nil
}
func (*fakeImages) Pull(context.Context, string, image.Auth, image.Progress) (image.Image, error) {
	return image.Image{}, cerrdefs.ErrNotFound.WithMessage("No such image: missing:1")
}
func (f *fakeImages) Mount(context.Context, string, string) (string, error) {
	f.j.add("mount")
	return cmp.Or(f.root, "/root"), nil
}
func (f *fakeImages) Unmount(context.Context, string) error {
	f.j.add("unmount")
	return f.held()
}
func (f *fakeImages) Release(context.Context, string) error {
	f.j.add("release")
	return f.held()
}
func (f *fakeImages) held() error {
	if f.busy == nil {
		return nil
	}
	return f.busy()
}
func (*fakeImages) Sweep(context.Context, map[string]bool) error { return nil }
