// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"context"
	"io"
	"strings"

	"github.com/containerd/errdefs"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"satld/image"
)

// fakeImages stubs image.Images; a nil field answers ErrNotFound.
type fakeImages struct {
	pull   func(context.Context, string, image.Auth, image.Progress) (image.Image, error)
	load   func(context.Context, io.Reader, image.Progress) ([]image.Image, error)
	save   func(context.Context, []string, io.Writer) error
	imp    func(context.Context, io.Reader, string, string, []string) (image.Image, error)
	get    func(string) (image.Image, error)
	list   func() []image.Image
	tag    func(string, string) error
	remove func(context.Context, string, bool) ([]string, []string, error)
	digest func(context.Context, string, image.Auth) (v1.Descriptor, []v1.Platform, error)
	usage  func(context.Context, string) (int64, error)
	layers int64
}

func noImage(ref string) error { return errdefs.ErrNotFound.WithMessage("No such image: " + ref) }

func (f *fakeImages) Pull(ctx context.Context, ref string, auth image.Auth, p image.Progress) (image.Image, error) {
	if f.pull == nil {
		return image.Image{}, noImage(ref)
	}
	return f.pull(ctx, ref, auth, p)
}

func (f *fakeImages) Load(ctx context.Context, r io.Reader, p image.Progress) ([]image.Image, error) {
	if f.load == nil {
		return nil, errdefs.ErrInvalidArgument
	}
	return f.load(ctx, r, p)
}

func (f *fakeImages) Save(ctx context.Context, refs []string, w io.Writer) error {
	if f.save == nil {
		return noImage(strings.Join(refs, " "))
	}
	return f.save(ctx, refs, w)
}

func (f *fakeImages) Import(ctx context.Context, r io.Reader, ref, message string, changes []string) (image.Image, error) {
	if f.imp == nil {
		return image.Image{}, errdefs.ErrInvalidArgument
	}
	return f.imp(ctx, r, ref, message, changes)
}

func (f *fakeImages) Get(ref string) (image.Image, error) {
	if f.get == nil {
		return image.Image{}, noImage(ref)
	}
	return f.get(ref)
}

func (f *fakeImages) List() []image.Image {
	if f.list == nil {
		return nil
	}
	return f.list()
}

func (f *fakeImages) Tag(ref, target string) error {
	if f.tag == nil {
		return noImage(ref)
	}
	return f.tag(ref, target)
}

func (f *fakeImages) Remove(ctx context.Context, ref string, force bool) ([]string, []string, error) {
	if f.remove == nil {
		return nil, nil, noImage(ref)
	}
	return f.remove(ctx, ref, force)
}

func (f *fakeImages) Digest(ctx context.Context, ref string, auth image.Auth) (v1.Descriptor, []v1.Platform, error) {
	if f.digest == nil {
		return v1.Descriptor{}, nil, noImage(ref)
	}
	return f.digest(ctx, ref, auth)
}

func (f *fakeImages) Usage(ctx context.Context, id string) (int64, error) {
	if f.usage == nil {
		return 0, nil
	}
	return f.usage(ctx, id)
}

func (f *fakeImages) Mount(context.Context, string, string) (string, error) { panic("not the API's") }
func (f *fakeImages) Unmount(context.Context, string) error                 { panic("not the API's") }
func (f *fakeImages) Release(context.Context, string) error                 { panic("not the API's") }
func (f *fakeImages) Sweep(context.Context, map[string]bool) error          { panic("not the API's") }
func (f *fakeImages) LayersSize() int64                                     { return f.layers }
