// SPDX-License-Identifier: BSD-2-Clause

package image

import (
	"archive/tar"
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sys/unix"
)

// hostile are layers that try to write outside of their root. %OUT% is an
// absolute path outside.
var hostile = map[string][]file{
	"name climbs":                      {{name: "../evil", body: "x"}},
	"name climbs from below":           {{name: "a/b/../../../evil", body: "x"}},
	"directory climbs":                 {{name: "../../evil/", kind: tar.TypeDir}},
	"through an absolute link":         {{name: "l", kind: tar.TypeSymlink, link: "%OUT%"}, {name: "l/evil", body: "x"}},
	"through a link to the root":       {{name: "l", kind: tar.TypeSymlink, link: "/"}, {name: "l/%OUT%/evil", body: "x"}},
	"through a climbing link":          {{name: "a/l", kind: tar.TypeSymlink, link: "../../out"}, {name: "a/l/evil", body: "x"}},
	"through a chain of links":         {{name: "d/", kind: tar.TypeDir}, {name: "l", kind: tar.TypeSymlink, link: "d"}, {name: "l/m", kind: tar.TypeSymlink, link: "%OUT%"}, {name: "d/m/evil", body: "x"}},
	"link moved by a link":             {{name: "s/", kind: tar.TypeDir}, {name: "p/q", kind: tar.TypeSymlink, link: "../s"}, {name: "p/q/r", kind: tar.TypeSymlink, link: "../../out"}, {name: "s/r/evil", body: "x"}},
	"symbolic link points out":         {{name: "etc/l", kind: tar.TypeSymlink, link: "../../../../etc/passwd"}},
	"hard link climbs":                 {{name: "h", kind: tar.TypeLink, link: "../out/secret"}},
	"hard link through a link":         {{name: "l", kind: tar.TypeSymlink, link: "%OUT%"}, {name: "h", kind: tar.TypeLink, link: "l/secret"}},
	"hard link to nothing":             {{name: "h", kind: tar.TypeLink, link: "%OUT%/secret"}},
	"hard link to a directory":         {{name: "d/", kind: tar.TypeDir}, {name: "h", kind: tar.TypeLink, link: "d"}},
	"whiteout climbs":                  {{name: "../.wh.out"}},
	"whiteout of the parent":           {{name: "a/.wh..."}, {name: "a/.wh..", body: ""}},
	"whiteout through a link":          {{name: "l", kind: tar.TypeSymlink, link: "%OUT%"}, {name: "l/.wh.secret"}},
	"opaque through a link":            {{name: "l", kind: tar.TypeSymlink, link: "%OUT%"}, {name: "l/.wh..wh..opq"}},
	"directory through a link":         {{name: "l", kind: tar.TypeSymlink, link: "%OUT%"}, {name: "l/evil/", kind: tar.TypeDir}},
	"device through a link":            {{name: "l", kind: tar.TypeSymlink, link: "%OUT%"}, {name: "l/evil", kind: tar.TypeChar, dev: [2]int64{1, 3}}},
	"implied directories behind links": {{name: "l", kind: tar.TypeSymlink, link: "%OUT%"}, {name: "l/evil/a/b/c", body: "x"}},
	"root is a file":                   {{name: ".", body: "x"}},
	"file under a file":                {{name: "f", body: "x"}, {name: "f/g", body: "x"}},
	"links in a circle":                {{name: "a", kind: tar.TypeSymlink, link: "b"}, {name: "b", kind: tar.TypeSymlink, link: "a"}, {name: "a/x", body: "x"}},
	"unknown type":                     {{name: "x", kind: 'Z'}},
}

func TestHostileArchives(t *testing.T) {
	state := t.TempDir()
	outside := filepath.Join(state, "out") // where climbing from a layer's directory could end too
	if err := os.Mkdir(outside, 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, "secret", outside, "secret")
	s := open(t, Config{StateDir: filepath.Join(state, "state")})
	before := listing(t, outside)
	for name, files := range hostile {
		var entries []file
		for _, f := range files {
			f.name = strings.ReplaceAll(f.name, "%OUT%", outside)
			f.link = strings.ReplaceAll(f.link, "%OUT%", outside)
			entries = append(entries, f)
		}
		layer := tarOf(t, append([]file{{name: "first", body: "x"}}, entries...)...)
		for how, err := range map[string]error{
			"load": func() error {
				_, err := s.Load(t.Context(), bytes.NewReader(saved(t, "evil:1", v1.Config{}, layer)), nil)
				return err
			}(),
			"import": func() error {
				_, err := s.Import(t.Context(), bytes.NewReader(layer), "evil:1", "", nil)
				return err
			}(),
		} {
			if !errdefs.IsInvalidArgument(err) {
				t.Errorf("%s: %s: %v, want an invalid argument", name, how, err)
			}
		}
		if n := len(s.List()); n != 0 {
			t.Fatalf("%s: there are %d images", name, n)
		}
		tidy(t, s)
		if after := listing(t, outside); after != before {
			t.Fatalf("%s: outside was\n%s\nand is\n%s", name, before, after)
		}
		for _, p := range []string{filepath.Join(state, "evil"), filepath.Join(s.dir, "evil"), s.path("tmp", "evil")} {
			missing(t, p)
		}
	}
}

// listing is all that is at and below dir, with modes, owners, times and attributes.
func listing(t testing.TB, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		n, _ := unix.Llistxattr(path, nil)
		b.WriteString(strings.Join([]string{path, info.Mode().String(), info.ModTime().String(), string(rune('0' + n))}, " ") + "\n")
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestOddArchives are layers that look odd and are in order.
func TestOddArchives(t *testing.T) {
	eachKind(t, func(t *testing.T, c Config) {
		s := open(t, c)
		first := tarOf(t,
			file{name: "gone/x", body: "x"},
			file{name: "dir/below", body: "x"},
			file{name: "again/below", body: "x"},
		)
		second := tarOf(t,
			file{name: "/abs/file", body: "absolute names count from the root"},
			file{name: "usr/lib/", kind: tar.TypeDir, mode: 0o1777},
			file{name: "lib", kind: tar.TypeSymlink, link: "usr/lib"},
			file{name: "lib/libc", body: "through a relative link"},
			file{name: "s", kind: tar.TypeSymlink, link: "/etc/passwd"},
			file{name: "hard", kind: tar.TypeLink, link: "s"}, // of the link itself
			file{name: "null", kind: tar.TypeChar, dev: [2]int64{1, 3}, mode: 0o666},
			file{name: "pipe", kind: tar.TypeFifo},
			file{name: "cap", body: "x", pax: map[string]string{
				"SCHILY.xattr.user.note":              "hello",
				"SCHILY.xattr.security.capability":    "\x01\x00\x00\x02\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00",
				"SCHILY.xattr.trusted.overlay.opaque": "y",
			}},
			file{name: ".wh.gone"},
			file{name: ".wh.dir"}, // deleted and made again
			file{name: "dir/new", body: "x"},
			file{name: "again/", kind: tar.TypeDir},
			file{name: ".wh.again"}, // the other order
			file{name: ".wh..wh.plnk", body: ""},
		)
		img := load(t, s, saved(t, "odd:1", v1.Config{}, first, second, second))
		root := mount(t, s, img.ID, "c")
		for path, want := range map[string]string{
			"abs/file":     "absolute names count from the root",
			"usr/lib/libc": "through a relative link",
			"dir/new":      "x",
		} {
			if got := content(t, root, path); got != want {
				t.Errorf("%s is %q", path, got)
			}
		}
		for _, gone := range []string{"gone", "dir/below", "again/below", ".wh.gone", ".wh..wh.plnk"} {
			missing(t, root, gone)
		}
		if st, err := os.Stat(filepath.Join(root, "usr/lib")); err != nil || st.Mode()&os.ModeSticky == 0 || st.Mode().Perm() != 0o777 {
			t.Errorf("usr/lib: %v %v", st, err)
		}
		for _, link := range []string{"s", "hard"} {
			if got, _ := os.Readlink(filepath.Join(root, link)); got != "/etc/passwd" {
				t.Errorf("%s -> %q", link, got)
			}
		}
		var null unix.Stat_t
		if unix.Lstat(filepath.Join(root, "null"), &null); null.Mode != unix.S_IFCHR|0o666 || null.Rdev != unix.Mkdev(1, 3) {
			t.Errorf("null: mode %o dev %x", null.Mode, null.Rdev)
		}
		note := make([]byte, 64)
		if n, err := unix.Lgetxattr(filepath.Join(root, "cap"), "user.note", note); err != nil || string(note[:n]) != "hello" {
			t.Errorf("user.note: %q %v", note[:n], err)
		}
		if n, err := unix.Lgetxattr(filepath.Join(root, "cap"), "security.capability", note); err != nil || n != 20 {
			t.Errorf("security.capability: %d bytes, %v", n, err)
		}
		if _, err := unix.Lgetxattr(filepath.Join(root, "cap"), "trusted.overlay.opaque", note); err != unix.ENODATA {
			t.Errorf("an overlay attribute came from the archive: %v", err)
		}
	})
}
