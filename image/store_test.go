// SPDX-License-Identifier: BSD-2-Clause

package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/containerd/errdefs"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sys/unix"
)

func baseLayer(t testing.TB) []byte {
	return tarOf(t,
		file{name: "./", kind: tar.TypeDir},
		file{name: "bin/", kind: tar.TypeDir},
		file{name: "bin/sh", body: "#!", mode: 0o755},
		file{name: "bin/su", body: "suid", mode: 0o4755, uid: 7},
		file{name: "etc/motd", body: "hello"},
		file{name: "etc/old", body: "old"},
		file{name: "var/cache/a", body: "a"},
		file{name: "var/cache/b", body: "b"},
		file{name: "lib", kind: tar.TypeSymlink, link: "usr/lib"},
		file{name: "etc/alternatives", kind: tar.TypeSymlink, link: "/usr/share/alternatives"},
		file{name: "bin/ash", kind: tar.TypeLink, link: "bin/sh"},
	)
}

func topLayer(t testing.TB) []byte {
	return tarOf(t,
		file{name: "etc/", kind: tar.TypeDir},
		file{name: "etc/motd", body: "hello, world"},
		file{name: "etc/.wh.old"},
		file{name: "var/cache/.wh..wh..opq"},
		file{name: "var/cache/c", body: "c"},
	)
}

func twoLayers(t testing.TB) []byte {
	return saved(t, "web:1", v1.Config{Cmd: []string{"/bin/sh"}}, baseLayer(t), topLayer(t))
}

// checkRoot looks at what twoLayers make together.
func checkRoot(t *testing.T, root string) {
	t.Helper()
	if got := content(t, root, "etc/motd"); got != "hello, world" {
		t.Errorf("etc/motd is %q", got)
	}
	missing(t, root, "etc/old")
	missing(t, root, "var/cache/a")
	missing(t, root, "var/cache/b")
	if got := content(t, root, "var/cache/c"); got != "c" {
		t.Errorf("var/cache/c is %q", got)
	}
	var st, sh, ash unix.Stat_t
	if err := unix.Lstat(filepath.Join(root, "bin/su"), &st); err != nil || st.Mode&0o7777 != 0o4755 || st.Uid != 7 || st.Mtim.Sec != 1700000000 {
		t.Errorf("bin/su: %v mode %o uid %d time %d", err, st.Mode, st.Uid, st.Mtim.Sec)
	}
	unix.Lstat(filepath.Join(root, "bin/sh"), &sh)
	unix.Lstat(filepath.Join(root, "bin/ash"), &ash)
	if sh.Ino != ash.Ino || sh.Nlink != 2 {
		t.Errorf("bin/ash is not the same file as bin/sh")
	}
	if got, _ := os.Readlink(filepath.Join(root, "etc/alternatives")); got != "/usr/share/alternatives" {
		t.Errorf("etc/alternatives points to %q", got)
	}
	if st, err := os.Stat(root); err != nil || st.Mode().Perm() != 0o755 {
		t.Errorf("root: %v %v", st.Mode(), err)
	}
}

// kinds are the ways to make a root that can be tried here.
var kinds = map[string]func(testing.TB) Config{
	"default": func(testing.TB) Config { return Config{} },
	"copy":    func(testing.TB) Config { return Config{Copy: true} },
}

// eachKind runs a test with each of them.
func eachKind(t *testing.T, f func(t *testing.T, c Config)) {
	for name, config := range kinds {
		t.Run(name, func(t *testing.T) { f(t, config(t)) })
	}
}

func TestLoadAndMount(t *testing.T) {
	eachKind(t, func(t *testing.T, c Config) {
		s := open(t, c)
		img := load(t, s, twoLayers(t))
		if !slices.Equal(img.RepoTags, []string{"web:1"}) || !slices.Equal(img.Config.Config.Cmd, []string{"/bin/sh"}) {
			t.Errorf("loaded %+v", img)
		}
		if want := int64(len("#!suidhelloold") + len("ab") + len("hello, worldc")); img.Size != want || s.LayersSize() != want {
			t.Errorf("size %d, layers %d, want %d", img.Size, s.LayersSize(), want)
		}
		root := mount(t, s, img.ID, "c1")
		checkRoot(t, root)
		if again := mount(t, s, img.ID, "c1"); again != root {
			t.Errorf("second mount at %s, want %s", again, root)
		}
		write(t, string(make([]byte, 100)), root, "new")
		if n, err := s.Usage(t.Context(), "c1"); err != nil || n != 100 {
			t.Errorf("usage %d %v, want 100", n, err)
		}
		missing(t, mount(t, s, img.ID, "c2"), "new")
		for range 2 {
			if err := s.Unmount(t.Context(), "c1"); err != nil {
				t.Fatal(err)
			}
		}
		if s.roots.kind() != (copier{}).kind() {
			missing(t, root, "new")
		}
		mount(t, s, img.ID, "c1")
		if got := content(t, root, "new"); len(got) != 100 {
			t.Errorf("the change is gone after a new mount")
		}
		if err := s.Sweep(t.Context(), map[string]bool{"c1": true}); err != nil {
			t.Fatal(err)
		}
		missing(t, s.containerDir("c2"))
		for range 2 {
			if err := s.Release(t.Context(), "c1"); err != nil {
				t.Fatal(err)
			}
		}
		missing(t, s.containerDir("c1"))
		tidy(t, s)
	})
}

func TestReopen(t *testing.T) {
	s := open(t, Config{})
	var zipped bytes.Buffer
	zw := gzip.NewWriter(&zipped)
	zw.Write(twoLayers(t))
	zw.Close()
	img := load(t, s, zipped.Bytes())
	root := mount(t, s, img.ID, "c1")
	write(t, "kept", root, "kept")
	before := s.List()
	if _, err := Open(Config{StateDir: filepath.Dir(s.dir)}); !errdefs.IsConflict(err) {
		t.Errorf("a second store on the directory: %v, want a conflict", err)
	}
	s.Close()

	// The mount is there still, as after a restart of the daemon.
	s2 := open(t, Config{StateDir: filepath.Dir(s.dir)})
	if got := s2.List(); len(got) != 1 || got[0].ID != before[0].ID || got[0].Size != before[0].Size {
		t.Errorf("after reopening: %+v, want %+v", got, before)
	}
	if _, _, err := s2.Remove(t.Context(), img.ID, true); !errdefs.IsConflict(err) {
		t.Errorf("removing the image of a mounted container: %v, want a conflict", err)
	}
	mount(t, s2, img.ID, "c1")
	if got := content(t, root, "kept"); got != "kept" {
		t.Errorf("kept is %q", got)
	}
	// And is not, as after a reboot.
	if s2.roots.kind() == "overlay" {
		if err := unix.Unmount(root, 0); err != nil {
			t.Fatal(err)
		}
	}
	mount(t, s2, img.ID, "c1")
	checkRoot(t, root)
	if got := content(t, root, "kept"); got != "kept" {
		t.Errorf("kept is %q", got)
	}
	tidy(t, s2)
}

func TestImport(t *testing.T) {
	s := open(t, Config{})
	img, err := s.Import(t.Context(), bytes.NewReader(baseLayer(t)), "bb:1", "Imported from -",
		[]string{`CMD ["/bin/sh","-c","sleep 1"]`, "ENV PATH=/bin X=$PATH:/y", "EXPOSE 80"})
	if err != nil {
		t.Fatal(err)
	}
	c := img.Config.Config
	if !slices.Equal(img.RepoTags, []string{"bb:1"}) || !slices.Equal(c.Cmd, []string{"/bin/sh", "-c", "sleep 1"}) ||
		!slices.Equal(c.Env, []string{"PATH=/bin", "X=:/y"}) || len(c.ExposedPorts) != 1 {
		t.Errorf("imported %+v", img)
	}
	if got := content(t, mount(t, s, img.ID, "c"), "etc/motd"); got != "hello" {
		t.Errorf("etc/motd is %q", got)
	}
	for name, archive := range map[string][]byte{
		"garbage":         bytes.Repeat([]byte("this is no archive "), 100),
		"cut off":         baseLayer(t)[:1500],
		"cut off in gzip": gzipped(baseLayer(t))[:100],
		"broken gzip":     append(gzipped(baseLayer(t))[:100], make([]byte, 1000)...),
		"entries twice":   tarOf(t, file{name: "a"}, file{name: "./a"}),
	} {
		if _, err := s.Import(t.Context(), bytes.NewReader(archive), "", "", nil); err == nil {
			t.Errorf("%s is accepted", name)
		} else if !errdefs.IsInvalidArgument(err) {
			t.Errorf("%s: %v, want an invalid argument", name, err)
		}
	}
	if _, err := s.Import(t.Context(), bytes.NewReader(baseLayer(t)), "", "", []string{"RUN rm -rf /"}); !errdefs.IsInvalidArgument(err) {
		t.Errorf("RUN: %v", err)
	}
	if _, err := s.Import(t.Context(), bytes.NewReader(baseLayer(t)), "Bad:Name", "", nil); !errdefs.IsInvalidArgument(err) {
		t.Errorf("a bad name: %v", err)
	}
	tidy(t, s)
}

func gzipped(data []byte) []byte {
	var b bytes.Buffer
	zw := gzip.NewWriter(&b)
	zw.Write(data)
	zw.Close()
	return b.Bytes()
}
