// SPDX-License-Identifier: BSD-2-Clause

package image

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// file is one entry of a test's archive.
type file struct {
	name string
	body string
	kind byte   // 0 is a regular file
	link string // target
	mode int64  // 0 is 0644, and 0755 for a directory
	uid  int
	pax  map[string]string
	dev  [2]int64
}

func tarOf(t testing.TB, files ...file) []byte {
	t.Helper()
	var buf bytes.Buffer
	tw := tar.NewWriter(&buf)
	for _, f := range files {
		h := &tar.Header{Name: f.name, Typeflag: f.kind, Linkname: f.link, Mode: f.mode, Uid: f.uid, Gid: f.uid,
			ModTime: time.Unix(1700000000, 0), PAXRecords: f.pax, Devmajor: f.dev[0], Devminor: f.dev[1]}
		if f.kind == 0 {
			h.Typeflag, h.Size = tar.TypeReg, int64(len(f.body))
		}
		if f.mode == 0 {
			h.Mode = 0o644
			if f.kind == tar.TypeDir {
				h.Mode = 0o755
			}
		}
		if f.pax != nil {
			h.Format = tar.FormatPAX
		}
		if err := tw.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(tw, f.body); err != nil {
			t.Fatal(err)
		}
	}
	if err := tw.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// saved is a `docker save` archive of one image with these layers.
func saved(t testing.TB, name string, settings v1.Config, layers ...[]byte) []byte {
	t.Helper()
	members, _ := savedMembers(t, name, settings, layers...)
	return tarOf(t, members...)
}

func savedMembers(t testing.TB, name string, settings v1.Config, layers ...[]byte) (members []file, id string) {
	t.Helper()
	c := v1.ConfigFile{OS: "linux", Architecture: "amd64", Config: settings, RootFS: v1.RootFS{Type: "layers"}}
	m := savedImage{}
	if name != "" {
		m.RepoTags = []string{name}
	}
	for _, l := range layers {
		h, err := v1.NewHash(digestOf(l))
		if err != nil {
			t.Fatal(err)
		}
		c.RootFS.DiffIDs = append(c.RootFS.DiffIDs, h)
		m.Layers = append(m.Layers, h.Hex+"/layer.tar")
		members = append(members, file{name: h.Hex + "/layer.tar", body: string(l)})
	}
	raw := mustJSON(t, c)
	id = digestOf(raw)
	m.Config = hexOf(id) + ".json"
	members = append(members, file{name: m.Config, body: string(raw)},
		file{name: "manifest.json", body: string(mustJSON(t, []savedImage{m}))})
	return members, id
}

func mustJSON(t testing.TB, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// needRoot skips what only root can do: owners, devices, mounts.
func needRoot(t testing.TB) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("SKIPPED: needs root (owners, device nodes, mounts)")
	}
}

// open opens a store that is closed, with its roots released, at the end.
func open(t testing.TB, c Config) *Store {
	t.Helper()
	needRoot(t)
	if c.StateDir == "" {
		c.StateDir = t.TempDir()
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.NewTextHandler(testWriter{t}, nil))
	}
	s, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Sweep(context.Background(), nil); err != nil {
			t.Errorf("sweeping: %v", err)
		}
		if err := s.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
			t.Error(err)
		}
	})
	return s
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Logf("%s", bytes.TrimSpace(p))
	return len(p), nil
}

func load(t testing.TB, s *Store, archive []byte) Image {
	t.Helper()
	images, err := s.Load(t.Context(), bytes.NewReader(archive), nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(images) != 1 {
		t.Fatalf("loaded %d images, want 1", len(images))
	}
	return images[0]
}

func mount(t testing.TB, s *Store, imageID, id string) string {
	t.Helper()
	root, err := s.Mount(t.Context(), imageID, id)
	if err != nil {
		t.Fatal(err)
	}
	return root
}

func content(t testing.TB, elem ...string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(elem...))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func write(t testing.TB, data string, elem ...string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(elem...), []byte(data), 0o644); err != nil {
		t.Fatal(err)
	}
}

func missing(t testing.TB, elem ...string) {
	t.Helper()
	if _, err := os.Lstat(filepath.Join(elem...)); !os.IsNotExist(err) {
		t.Errorf("%s is there (%v), want it gone", filepath.Join(elem...), err)
	}
}

// tidy fails unless the store's directory holds just what its index names.
func tidy(t testing.TB, s *Store) {
	t.Helper()
	names := func(dir string) []string {
		entries, err := os.ReadDir(s.path(dir))
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, e := range entries {
			out = append(out, e.Name())
		}
		return out
	}
	if got := names("tmp"); len(got) > 0 {
		t.Errorf("tmp holds %v, want nothing", got)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.holds) > 0 {
		t.Errorf("holds %v are left", s.holds)
	}
	wantLayers := map[string]bool{}
	for id := range s.index.Images {
		for _, l := range s.configs[id].layerIDs() {
			wantLayers[hexOf(l)] = true
		}
	}
	for _, c := range s.mounts {
		for _, l := range c.Layers {
			wantLayers[hexOf(l)] = true
		}
	}
	if got := names("layers"); len(got) != len(wantLayers) || len(s.layers) != len(wantLayers) {
		t.Errorf("layers on disk %v, in memory %d, want %v", got, len(s.layers), wantLayers)
	}
	if got := names("configs"); len(got) != len(s.index.Images) || len(s.configs) != len(s.index.Images) {
		t.Errorf("configs on disk %v, in memory %d, want %d", got, len(s.configs), len(s.index.Images))
	}
}
