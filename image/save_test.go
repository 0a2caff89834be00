// SPDX-License-Identifier: BSD-2-Clause

package image

import (
	"archive/tar"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// TestSave: what is saved loads elsewhere as the same image, and reads with
// the library that reads Docker's archives.
func TestSave(t *testing.T) {
	s := open(t, Config{})
	// Odd padding at the end, which has to come back too.
	padded := append(topLayer(t), make([]byte, 3<<10)...)
	img := load(t, s, saved(t, "web:1", v1.Config{User: "7"}, baseLayer(t), padded))
	if err := s.Tag("web:1", "registry.example.com/web:2"); err != nil {
		t.Fatal(err)
	}
	other := load(t, s, saved(t, "other:1", v1.Config{}, baseLayer(t)))

	var out bytes.Buffer
	if err := s.Save(t.Context(), []string{"web:1", other.ID, "registry.example.com/web:2"}, &out); err != nil {
		t.Fatal(err)
	}
	tag, _ := name.NewTag("web:1")
	read, err := tarball.Image(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(out.Bytes())), nil }, &tag)
	if err != nil {
		t.Fatal(err)
	}
	if id, err := read.ConfigName(); err != nil || id.String() != img.ID {
		t.Errorf("saved as %s, want %s (%v)", id, img.ID, err)
	}
	s2 := open(t, Config{})
	images, err := s2.Load(t.Context(), bytes.NewReader(out.Bytes()), nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(images) != 2 || images[0].ID != img.ID || images[1].ID != other.ID ||
		!slices.Equal(images[0].RepoTags, []string{"web:1", "registry.example.com/web:2"}) || len(images[1].RepoTags) != 0 {
		t.Errorf("loaded %+v", images)
	}
	checkRoot(t, mount(t, s2, img.ID, "c"))
	tidy(t, s2)

	if err := s.Save(t.Context(), []string{"web:1", "none"}, &out); !errdefs.IsNotFound(err) {
		t.Errorf("saving an unknown image: %v", err)
	}
	if err := s.Save(t.Context(), nil, &out); !errdefs.IsInvalidArgument(err) {
		t.Errorf("saving nothing: %v", err)
	}
	// Files that somebody changed are not passed off as the image's.
	write(t, "jello", s.layerDir(img.Config.RootFS.DiffIDs[0].String()), layerDiff, "etc/motd")
	if err := s.Save(t.Context(), []string{"web:1"}, &out); err == nil {
		t.Error("a changed layer was saved")
	}
	tidy(t, s)
}

// TestLoadOCI: an OCI image layout, with an index of platforms in it.
func TestLoadOCI(t *testing.T) {
	dir := t.TempDir()
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	img := imageOf(t, here, baseLayer(t), topLayer(t))
	index := mutate.AppendManifests(empty.Index,
		mutate.IndexAddendum{Add: imageOf(t, v1.Platform{OS: "linux", Architecture: "s390x"}, baseLayer(t)),
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "s390x"}}},
		mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: &here}})
	if err := path.AppendIndex(index, layout.WithAnnotations(map[string]string{annotationName: "docker.io/library/oci:1"})); err != nil {
		t.Fatal(err)
	}
	if err := path.AppendImage(imageOf(t, here, topLayer(t)), layout.WithAnnotations(map[string]string{annotationRef: "latest"})); err != nil {
		t.Fatal(err)
	}
	archive := tarOfDir(t, dir)
	s := open(t, Config{})
	images, err := s.Load(t.Context(), bytes.NewReader(gzipped(archive)), nil)
	if err != nil {
		t.Fatal(err)
	}
	want, _ := img.ConfigName()
	if len(images) != 2 || images[0].ID != want.String() || !slices.Equal(images[0].RepoTags, []string{"oci:1"}) || len(images[1].RepoTags) != 0 {
		t.Errorf("loaded %+v", images)
	}
	checkRoot(t, mount(t, s, images[0].ID, "c"))

	// A blob that is not what its name says.
	manifest, _ := img.Digest()
	blob := filepath.Join(dir, "blobs/sha256", manifest.Hex)
	write(t, strings.ReplaceAll(content(t, blob), "application", "Application"), blob)
	if _, err := s.Load(t.Context(), bytes.NewReader(tarOfDir(t, dir)), nil); !errdefs.IsInvalidArgument(err) {
		t.Errorf("a changed manifest: %v", err)
	}
	tidy(t, s)
}

func tarOfDir(t *testing.T, dir string) []byte {
	t.Helper()
	var buf bytes.Buffer
	tw := tar.NewWriter(&buf)
	if err := tw.AddFS(os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	if err := tw.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func TestLoadRefuses(t *testing.T) {
	s := open(t, Config{})
	members, id := savedMembers(t, "web:1", v1.Config{}, baseLayer(t), topLayer(t))
	change := func(f func([]file) []file) []byte { return tarOf(t, f(slices.Clone(members))...) }
	manifest := len(members) - 1
	for what, archive := range map[string][]byte{
		"nothing":        nil,
		"garbage":        bytes.Repeat([]byte("garbage"), 1000),
		"cut off":        change(func(f []file) []file { return f })[:2000],
		"not an image":   tarOf(t, file{name: "etc/passwd", body: "root"}),
		"broken JSON":    tarOf(t, file{name: "manifest.json", body: "[{"}),
		"no images":      tarOf(t, file{name: "manifest.json", body: "[]"}),
		"name climbs":    tarOf(t, file{name: "../manifest.json", body: "[]"}),
		"link climbs":    tarOf(t, file{name: "manifest.json", kind: tar.TypeSymlink, link: "../../../../../etc/passwd"}),
		"link in circle": tarOf(t, file{name: "manifest.json", kind: tar.TypeSymlink, link: "manifest.json"}),
		"config missing": change(func(f []file) []file { return slices.Delete(f, manifest-1, manifest) }),
		"config is a path": tarOf(t, file{name: "manifest.json",
			body: `[{"Config":"/etc/hostname","RepoTags":null,"Layers":[]}]`}),
		"layer missing":   change(func(f []file) []file { return f[1:] }),
		"layers swapped":  change(func(f []file) []file { f[0].body, f[1].body = f[1].body, f[0].body; return f }),
		"one layer short": change(func(f []file) []file { f[manifest].body = strings.Replace(f[manifest].body, `","`, "", 1); return f }),
		"bad tag": change(func(f []file) []file {
			f[manifest].body = strings.Replace(f[manifest].body, "web:1", "Web:1:2", 1)
			return f
		}),
		"tag is an ID": change(func(f []file) []file {
			f[manifest].body = strings.Replace(f[manifest].body, "web:1", hexOf(id), 1)
			return f
		}),
		"other system": tarOf(t, file{name: "c", body: `{"os":"windows","architecture":"amd64","rootfs":{"type":"layers","diff_ids":[]}}`},
			file{name: "manifest.json", body: `[{"Config":"c","Layers":[]}]`}),
		"diff ID climbs": tarOf(t, file{name: "c", body: `{"os":"linux","rootfs":{"type":"layers","diff_ids":["sha256:../../../../../../../../../../../../../../../../../../../../../../x"]}}`},
			file{name: "l", body: "x"}, file{name: "manifest.json", body: `[{"Config":"c","Layers":["l"]}]`}),
	} {
		if _, err := s.Load(t.Context(), bytes.NewReader(archive), nil); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%s: %v, want an invalid argument", what, err)
		} else {
			t.Logf("%s: %v", what, err)
		}
		tidy(t, s)
	}
	// One bad image among good ones: none is kept.
	good, _ := savedMembers(t, "good:1", v1.Config{}, baseLayer(t))
	both := append(good[:len(good)-1], file{name: "manifest.json", body: strings.Replace(good[len(good)-1].body, "]}]", `]},{"Config":"none","Layers":[]}]`, 1)})
	if _, err := s.Load(t.Context(), bytes.NewReader(tarOf(t, both...)), nil); !errdefs.IsInvalidArgument(err) || len(s.List()) != 0 {
		t.Errorf("a bad image after a good one: %v, images %v", err, s.List())
	}
	tidy(t, s)
}

// TestLoadLinkedLayers is how Docker 20.10 saves a layer that two images have.
func TestLoadLinkedLayers(t *testing.T) {
	s := open(t, Config{})
	members, _ := savedMembers(t, "web:1", v1.Config{}, baseLayer(t))
	real := members[0]
	real.name = "elsewhere/layer.tar"
	members[0] = file{name: members[0].name, kind: tar.TypeSymlink, link: "../elsewhere/layer.tar"}
	img := load(t, s, tarOf(t, append(members, real)...))
	if got := content(t, mount(t, s, img.ID, "c"), "etc/motd"); got != "hello" {
		t.Errorf("etc/motd is %q", got)
	}
}
