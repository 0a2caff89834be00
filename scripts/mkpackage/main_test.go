// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
)

// build makes a package of this tree and of programs that are none.
func build(t *testing.T) pkg {
	t.Helper()
	binaries := t.TempDir()
	for _, name := range []string{"satld", "satl"} {
		if err := os.WriteFile(filepath.Join(binaries, name), []byte("program "+name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	p := pkg{source: "../..", binaries: binaries, out: t.TempDir(), version: "1.2.3", arch: "amd64",
		www: "https://satld.example.org/", maintainer: "root@localhost", time: time.Unix(1700000000, 0).UTC()}
	if err := p.make(); err != nil {
		t.Fatal(err)
	}
	return p
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// manifestKeys are those that libpkg knows, of which it insists on the ones
// that are true (libpkg/pkg_manifest.c, pkg_is_valid in libpkg/pkg.c).
var manifestKeys = map[string]bool{
	"name": true, "origin": true, "version": true, "comment": true, "desc": true, "maintainer": true, "www": true, "prefix": true,
	"abi": false, "flatsize": false, "licenselogic": false, "licenses": false, "categories": false, "deps": false,
	"files": false, "directories": false, "scripts": false, "messages": false,
}

// TestManifest: the manifest says what pkg needs to know, and of the files just
// what is staged.
func TestManifest(t *testing.T) {
	p := build(t)
	raw := map[string]any{}
	if err := json.Unmarshal([]byte(read(t, filepath.Join(p.out, "+MANIFEST"))), &raw); err != nil {
		t.Fatal(err)
	}
	for key := range raw {
		if _, ok := manifestKeys[key]; !ok {
			t.Errorf("pkg knows no key %q", key)
		}
	}
	for key, must := range manifestKeys {
		if v, ok := raw[key]; must && (!ok || v == "") {
			t.Errorf("key %q is missing", key)
		}
	}
	var m manifest
	if err := json.Unmarshal([]byte(read(t, filepath.Join(p.out, "+MANIFEST"))), &m); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(m.Desc, "%") { // pkg decodes it as a URL
		t.Errorf("description: %s", m.Desc)
	}
	if m.ABI != "FreeBSD:*:amd64" || m.Prefix != "/usr/local" || m.Version != "1.2.3" {
		t.Errorf("abi %q, prefix %q, version %q", m.ABI, m.Prefix, m.Version)
	}
	var size int64
	var found []string
	err := filepath.WalkDir(p.stage(), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		st, err := d.Info()
		if err != nil {
			return err
		}
		at := strings.TrimPrefix(path, p.stage())
		found = append(found, at)
		size += st.Size()
		entry, ok := m.Files[at]
		if !ok {
			t.Errorf("%s is staged and not in the manifest", at)
		}
		want := fileEntry{Sum: "1$" + (staged{data: []byte(read(t, path))}).sum(), Uname: "root", Gname: "wheel", Perm: permission(st.Mode())}
		if entry != want {
			t.Errorf("%s: %+v, want %+v", at, entry, want)
		}
		if !st.ModTime().Equal(p.time) {
			t.Errorf("%s is from %s", at, st.ModTime())
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(found) != len(m.Files) || m.FlatSize != size {
		t.Errorf("%d files of %d bytes staged, %d of %d in the manifest", len(found), size, len(m.Files), m.FlatSize)
	}
	for path, perm := range map[string]string{
		"/usr/local/sbin/satld": "0555", "/usr/local/bin/satl": "0555", "/usr/local/etc/rc.d/satld": "0555",
		"/usr/local/etc/satl/satld.toml.sample": "0644", "/usr/local/share/doc/satld/freebsd.md": "0644",
	} {
		if got := m.Files[path].Perm; got != perm {
			t.Errorf("%s has mode %q, want %s", path, got, perm)
		}
	}
	if _, ok := m.Files["/usr/local/etc/satl/satld.toml"]; ok {
		t.Error("the operator's configuration would be overwritten")
	}
}

// TestMessage: who installs is told what of pf.conf is needed, in its order,
// as in the sample, and in ASCII.
func TestMessage(t *testing.T) {
	p := build(t)
	var m manifest
	if err := json.Unmarshal([]byte(read(t, filepath.Join(p.out, "+COMPACT_MANIFEST"))), &m); err != nil {
		t.Fatal(err)
	}
	if len(m.Files) > 0 || len(m.Messages) != 1 || m.Messages[0].Type != "install" {
		t.Fatalf("compact manifest: %+v", m)
	}
	for name, text := range map[string]string{"pkg-message": m.Messages[0].Message, "pf.conf": read(t, filepath.Join(p.stage(), prefix, "share/examples/satld/pf.conf"))} {
		last := -1
		for _, line := range []string{`nat-anchor "satl/*"`, `rdr-anchor "satl/*"`, `anchor "satl/*"`} {
			i := strings.Index(text, "\n"+line)
			if i < 0 {
				i = strings.Index(text, "    "+line)
			}
			if i <= last {
				t.Errorf("%s: %s is missing or out of order", name, line)
			}
			last = i
		}
	}
	for _, f := range p.contents() {
		if strings.HasPrefix(f.from, p.binaries) {
			continue
		}
		for i, b := range []byte(read(t, f.from)) {
			if (b < ' ' || b > '~') && b != '\n' && b != '\t' {
				t.Errorf("%s: byte %#x at %d is no ASCII", f.from, b, i)
				break
			}
		}
	}
}

// TestArchive: the package holds the manifests first, then what is staged, and
// is the same when it is made again.
func TestArchive(t *testing.T) {
	p := build(t)
	data := read(t, p.file())
	unzip, err := zstd.NewReader(strings.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	defer unzip.Close()
	var names []string
	for r := tar.NewReader(unzip); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, h.Name)
		body, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		at := filepath.Join(p.stage(), h.Name)
		if strings.HasPrefix(h.Name, "+") {
			at = filepath.Join(p.out, h.Name)
		}
		if !bytes.Equal(body, []byte(read(t, at))) || h.Uname != "root" || h.Gname != "wheel" || h.Uid != 0 {
			t.Errorf("%s is not what is staged, or not root's: %+v", h.Name, h)
		}
	}
	if !slices.Equal(names[:2], []string{"+COMPACT_MANIFEST", "+MANIFEST"}) || len(names) != 2+len(p.contents()) {
		t.Errorf("members %q", names)
	}
	if err := p.make(); err != nil {
		t.Fatal(err)
	}
	if read(t, p.file()) != data {
		t.Error("the same input makes another package")
	}
}

func TestPkgVersion(t *testing.T) {
	allowed := regexp.MustCompile(`^[0-9][a-z0-9.]*$`) // pkg-version(8): no dash, underscore or comma
	for describe, want := range map[string]string{
		"v1.2": "1.2", "1.2.3": "1.2.3", "v1.2-5-gabc1234": "1.2.5.gabc1234", "v1.2-5-gabc1234-dirty": "1.2.5.gabc1234.dirty",
		"69cf430": "0.g69cf430", "69cf430-dirty": "0.g69cf430.dirty", "dev": "0.gdev", "": "0.g",
	} {
		if got := pkgVersion(describe); got != want || !allowed.MatchString(got) {
			t.Errorf("%q is version %q, want %q", describe, got, want)
		}
	}
}

func TestNothingToPack(t *testing.T) {
	for _, p := range []pkg{{}, {source: "../..", out: t.TempDir(), binaries: t.TempDir()}} {
		if err := p.make(); err == nil {
			t.Errorf("%+v is made", p)
		}
	}
}
