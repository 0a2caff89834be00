// SPDX-License-Identifier: BSD-2-Clause

package e2e

import (
	"archive/tar"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// staticImages are images of one static binary, with no shell: static:1, and
// checked:1 with a HEALTHCHECK of its own that fails.
var staticImages = sync.OnceValues(func() (map[name.Tag]v1.Image, error) {
	program, err := os.ReadFile(filepath.Join(bin, "app"))
	if err != nil {
		return nil, err
	}
	root := new(bytes.Buffer)
	w := tar.NewWriter(root)
	if err := w.WriteHeader(&tar.Header{Name: "app", Typeflag: tar.TypeReg, Mode: 0o755, Size: int64(len(program))}); err != nil {
		return nil, err
	}
	if _, err := w.Write(program); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(root.Bytes())), nil })
	if err != nil {
		return nil, err
	}
	img, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		return nil, err
	}
	static, err := mutate.Config(img, v1.Config{Cmd: []string{"/app"}})
	if err != nil {
		return nil, err
	}
	checked, err := mutate.Config(img, v1.Config{Cmd: []string{"/app"}, Healthcheck: &v1.HealthConfig{Test: []string{"CMD", "/nosuch"}, Interval: time.Second, Retries: 1}})
	if err != nil {
		return nil, err
	}
	return map[name.Tag]v1.Image{tag("static:1"): static, tag("checked:1"): checked}, nil
})

// staticImage is an archive of staticImages.
var staticImage = sync.OnceValues(func() (string, error) {
	images, err := staticImages()
	if err != nil {
		return "", err
	}
	f, err := os.CreateTemp(scratch, "static-*.tar")
	if err != nil {
		return "", err
	}
	defer f.Close()
	return f.Name(), tarball.MultiWrite(images, f)
})
