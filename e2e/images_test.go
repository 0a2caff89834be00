// SPDX-License-Identifier: BSD-2-Clause

package e2e

import (
	"archive/tar"
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// appImage is an archive with the test server, busybox and nothing else,
// loadable as app:1 and app:2.
var appImage = sync.OnceValues(func() (string, error) {
	root := new(bytes.Buffer)
	w := tar.NewWriter(root)
	for _, dir := range []string{"bin", "etc", "tmp", "root", "var", "proc", "sys", "dev"} {
		mode := int64(0o755)
		if dir == "tmp" {
			mode = 0o1777
		}
		if err := w.WriteHeader(&tar.Header{Name: dir + "/", Typeflag: tar.TypeDir, Mode: mode}); err != nil {
			return "", err
		}
	}
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		return "", err
	}
	for name, from := range map[string]string{"bin/busybox": busybox, "app": filepath.Join(bin, "app")} {
		data, err := os.ReadFile(from)
		if err != nil {
			return "", err
		}
		if err := w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o755, Size: int64(len(data))}); err != nil {
			return "", err
		}
		if _, err := w.Write(data); err != nil {
			return "", err
		}
	}
	for name, text := range map[string]string{
		"etc/passwd": "root:x:0:0:root:/root:/bin/sh\nweb:x:1000:1000:web:/tmp:/bin/sh\n",
		"etc/group":  "root:x:0:\nweb:x:1000:\n",
	} {
		if err := w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(text))}); err != nil {
			return "", err
		}
		if _, err := io.WriteString(w, text); err != nil {
			return "", err
		}
	}
	applets, err := exec.Command(busybox, "--list").Output()
	if err != nil {
		return "", err
	}
	for _, a := range strings.Fields(string(applets)) {
		if a == "busybox" {
			continue
		}
		if err := w.WriteHeader(&tar.Header{Name: "bin/" + a, Typeflag: tar.TypeSymlink, Linkname: "/bin/busybox", Mode: 0o777}); err != nil {
			return "", err
		}
	}
	if err := w.Close(); err != nil {
		return "", err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(root.Bytes())), nil })
	if err != nil {
		return "", err
	}
	img, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		return "", err
	}
	img, err = mutate.Config(img, v1.Config{Entrypoint: nil, Cmd: []string{"/app"}, Env: []string{"PATH=/bin"}, WorkingDir: "/tmp"})
	if err != nil {
		return "", err
	}
	second, err := mutate.Config(img, v1.Config{Cmd: []string{"/app"}, Env: []string{"PATH=/bin", "V=2"}, WorkingDir: "/tmp"})
	if err != nil {
		return "", err
	}
	f, err := os.CreateTemp(scratch, "image-*.tar")
	if err != nil {
		return "", err
	}
	defer f.Close()
	return f.Name(), tarball.MultiWrite(map[name.Tag]v1.Image{tag("app:1"): img, tag("app:2"): second}, f)
})

func tag(s string) name.Tag {
	t, err := name.NewTag(s)
	if err != nil {
		panic(err)
	}
	return t
}

// loaded starts a daemon that has app:1 and app:2.
func loaded(t *testing.T, extra ...string) *daemon {
	t.Helper()
	d := newDaemon(t, extra...)
	archive, err := appImage()
	if err != nil {
		t.Fatal(err)
	}
	d.docker("load", "-q", "-i", archive)
	return d
}
