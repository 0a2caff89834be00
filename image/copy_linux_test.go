// SPDX-License-Identifier: BSD-2-Clause

package image

import (
	"archive/tar"
	"bytes"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// TestPlainLayers is FreeBSD's way, run here: layers that keep the archive's
// own .wh. files, copied over one another.
func TestPlainLayers(t *testing.T) {
	needRoot(t)
	tmp, root := t.TempDir(), t.TempDir()
	third := tarOf(t,
		file{name: "bin", body: "a file where a directory was"},
		file{name: "etc/motd/", kind: tar.TypeDir}, // a directory where a file was
		file{name: "lib/", kind: tar.TypeDir},      // a directory where a link was
		file{name: "lib/x", body: "x"},
		file{name: ".wh.var"},
		file{name: "var/new", body: "new"}, // deleted and made again
	)
	for i, archive := range [][]byte{baseLayer(t), topLayer(t), third} {
		dir, _, err := unpackLayer(t.Context(), tmp, digestOf(archive), plainFormat, bytes.NewReader(archive))
		if err != nil {
			t.Fatal(err)
		}
		if err := copyLayer(t.Context(), filepath.Join(dir, layerDiff), root); err != nil {
			t.Fatal(err)
		}
		if i == 1 {
			checkRoot(t, root)
		}
		var again bytes.Buffer
		if err := writeLayer(dir, &again); err != nil || !bytes.Equal(again.Bytes(), archive) {
			t.Errorf("layer %d is not written as it came: %v", i, err)
		}
	}
	if got := content(t, root, "bin"); got != "a file where a directory was" {
		t.Errorf("bin is %q", got)
	}
	if got := content(t, root, "lib/x"); got != "x" {
		t.Errorf("lib/x is %q", got)
	}
	missing(t, root, "usr/lib/x") // where the link led
	missing(t, root, "var/cache")
	if got := content(t, root, "var/new"); got != "new" {
		t.Errorf("var/new is %q", got)
	}
}

func TestCompressions(t *testing.T) {
	s := open(t, Config{})
	plain := baseLayer(t)
	encoder, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	archives := map[string][]byte{"none": plain, "gzip": gzipped(plain), "zstd": encoder.EncodeAll(plain, nil)}
	for _, program := range []string{"xz", "bzip2"} {
		cmd := exec.Command(program, "-c")
		cmd.Stdin = bytes.NewReader(plain)
		if archives[program], err = cmd.Output(); err != nil {
			t.Logf("SKIPPED: %s: %v", program, err)
			delete(archives, program)
		}
	}
	for name, archive := range archives {
		img, err := s.Import(t.Context(), bytes.NewReader(archive), "", "", nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := img.Config.RootFS.DiffIDs[0].String(); got != digestOf(plain) {
			t.Errorf("%s: layer %s, want %s", name, got, digestOf(plain))
		}
	}
	if want := int64(len("#!suidhelloold") + len("ab")); s.LayersSize() != want {
		t.Errorf("the layers have %d bytes, want one of %d", s.LayersSize(), want)
	}
	tidy(t, s)
}
