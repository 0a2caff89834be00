// SPDX-License-Identifier: BSD-2-Clause

package freebsd

import (
	"archive/tar"
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// images is an archive with app:1 and app:2, images for FreeBSD, and linux:1,
// the same for Linux: the test server, busybox and nothing else.
var images = sync.OnceValues(func() (string, error) {
	dir, err := programs()
	if err != nil {
		return "", err
	}
	layer, err := layer(dir)
	if err != nil {
		return "", err
	}
	config := func(os string, env ...string) (v1.Image, error) {
		img, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{
			OS: os, Architecture: runtime.GOARCH, RootFS: v1.RootFS{Type: "layers"},
			Config: v1.Config{Cmd: []string{"/app"}, Env: append([]string{"PATH=/bin"}, env...), WorkingDir: "/tmp"},
		})
		if err != nil {
			return nil, err
		}
		return mutate.AppendLayers(img, layer)
	}
	all := make(map[name.Tag]v1.Image)
	for tag, os := range map[string]string{"app:1": "freebsd", "app:2": "freebsd", "linux:1": "linux"} {
		parsed, err := name.NewTag(tag)
		if err != nil {
			return "", err
		}
		if all[parsed], err = config(os, "IMAGE="+tag); err != nil {
			return "", err
		}
	}
	file := filepath.Join(dir, "images.tar")
	f, err := os.Create(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	return file, tarball.MultiWrite(all, f)
})

func layer(dir string) (v1.Layer, error) {
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		return nil, err
	}
	root := new(bytes.Buffer)
	w := tar.NewWriter(root)
	for _, d := range []string{"bin", "etc", "tmp", "root", "var", "dev"} {
		mode := int64(0o755)
		if d == "tmp" {
			mode = 0o1777
		}
		if err := w.WriteHeader(&tar.Header{Name: d + "/", Typeflag: tar.TypeDir, Mode: mode}); err != nil {
			return nil, err
		}
	}
	add := func(name string, mode int64, data []byte) error {
		if err := w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: mode, Size: int64(len(data))}); err != nil {
			return err
		}
		_, err := w.Write(data)
		return err
	}
	for name, from := range map[string]string{"bin/busybox": busybox, "app": filepath.Join(dir, "app")} {
		data, err := os.ReadFile(from)
		if err != nil {
			return nil, err
		}
		if err := add(name, 0o755, data); err != nil {
			return nil, err
		}
	}
	if err := add("etc/passwd", 0o644, []byte("root:x:0:0:root:/root:/bin/sh\n")); err != nil {
		return nil, err
	}
	applets, err := exec.Command(busybox, "--list").Output()
	if err != nil {
		return nil, err
	}
	for _, a := range strings.Fields(string(applets)) {
		if a == "busybox" {
			continue
		}
		if err := w.WriteHeader(&tar.Header{Name: "bin/" + a, Typeflag: tar.TypeSymlink, Linkname: "/bin/busybox", Mode: 0o777}); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(root.Bytes())), nil })
}
