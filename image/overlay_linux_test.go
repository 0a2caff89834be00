// SPDX-License-Identifier: BSD-2-Clause

package image

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sys/unix"
)

// TestManyLayers has more layers than a page of mount options could name by
// their full paths, and one with none.
func TestManyLayers(t *testing.T) {
	s := open(t, Config{})
	var layers [][]byte
	for i := range 200 {
		layers = append(layers, tarOf(t, file{name: fmt.Sprintf("f%d", i), body: "x"}, file{name: "last", body: fmt.Sprint(i)}))
	}
	img := load(t, s, saved(t, "many:1", v1.Config{}, layers...))
	root := mount(t, s, img.ID, "c")
	if got := content(t, root, "last"); got != "199" {
		t.Errorf("last is %q", got)
	}
	for i := range 200 {
		if got := content(t, root, fmt.Sprintf("f%d", i)); got != "x" {
			t.Errorf("f%d is %q", i, got)
		}
	}
	none := load(t, s, saved(t, "none:1", v1.Config{}))
	write(t, "x", mount(t, s, none.ID, "d"), "x")
}

// TestBusyRoot is a process of the host that sits in a root.
func TestBusyRoot(t *testing.T) {
	s := open(t, Config{})
	img := load(t, s, twoLayers(t))
	root := mount(t, s, img.ID, "c")
	held, err := os.Open(filepath.Join(root, "etc/motd"))
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.roots.unmount(ctx, s.containerDir("c")); !errors.Is(err, context.Canceled) || !errors.Is(err, unix.EBUSY) {
		t.Errorf("no time to wait: %v", err)
	}
	checkRoot(t, root)

	// Let go in time.
	first := held
	time.AfterFunc(busyWait/4, func() { first.Close() })
	start := time.Now()
	if err := s.Unmount(t.Context(), "c"); err != nil {
		t.Fatal(err)
	}
	t.Logf("unmounted after %s", time.Since(start))
	missing(t, root, "etc")

	// Not let go.
	mount(t, s, img.ID, "c")
	held, err = os.Open(filepath.Join(root, "etc/motd"))
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if err := s.Release(t.Context(), "c"); err != nil {
		t.Fatal(err)
	}
	missing(t, s.containerDir("c"))
	data := make([]byte, 5)
	if _, err := held.Read(data); err != nil || string(data) != "hello" {
		t.Errorf("the holder reads %q %v", data, err)
	}
}

// TestMountInRoot is cases/jail.md, jail-3: a bind mount of the host's data in a
// root that is to be deleted, with a process that has a file open there.
func TestMountInRoot(t *testing.T) {
	eachKind(t, func(t *testing.T, c Config) {
		s := open(t, c)
		img := load(t, s, twoLayers(t))
		root := mount(t, s, img.ID, "c")
		data := t.TempDir()
		write(t, "precious", data, "file")
		point := filepath.Join(root, "var")
		if err := unix.Mount(data, point, "", unix.MS_BIND, ""); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Unmount(point, unix.MNT_DETACH) })
		for name, f := range map[string]func() error{
			"release": func() error { return s.Release(t.Context(), "c") },
			"sweep":   func() error { return s.Sweep(t.Context(), nil) },
		} {
			if err := f(); !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), point) {
				t.Errorf("%s: %v, want it refused with the mount named", name, err)
			}
		}
		if content(t, data, "file") != "precious" || content(t, point, "file") != "precious" {
			t.Fatal("data is gone")
		}
		if err := unix.Unmount(point, 0); err != nil {
			t.Fatal(err)
		}
		if err := s.Release(t.Context(), "c"); err != nil {
			t.Errorf("after the unmount: %v", err)
		}
		missing(t, s.containerDir("c"))
		if content(t, data, "file") != "precious" {
			t.Fatal("data is gone")
		}
	})
}

// TestRootOutlivesImage: the layers stay while a container uses them.
func TestRootOutlivesImage(t *testing.T) {
	s := open(t, Config{})
	img := load(t, s, twoLayers(t))
	root := mount(t, s, img.ID, "c1")
	if _, _, err := s.Remove(t.Context(), "web:1", false); !errdefs.IsConflict(err) {
		t.Errorf("removing what is in use: %v", err)
	}
	untagged, deleted, err := s.Remove(t.Context(), "web:1", true)
	if err != nil || !slices.Equal(untagged, []string{"web:1"}) || len(deleted) != 0 {
		t.Errorf("untagging what is in use: %v %v %v", untagged, deleted, err)
	}
	if err := s.Unmount(t.Context(), "c1"); err != nil {
		t.Fatal(err)
	}
	if _, deleted, err := s.Remove(t.Context(), img.ID, true); err != nil || !slices.Equal(deleted, []string{img.ID}) {
		t.Errorf("deleting what a stopped container uses: %v %v", deleted, err)
	}
	if _, err := s.Get(img.ID); !errdefs.IsNotFound(err) {
		t.Errorf("the image is there: %v", err)
	}
	s.Close()
	s = open(t, Config{StateDir: filepath.Dir(s.dir)})
	mount(t, s, img.ID, "c1")
	checkRoot(t, root)
	if _, err := s.Mount(t.Context(), img.ID, "c2"); !errdefs.IsNotFound(err) {
		t.Errorf("a new root of a deleted image: %v", err)
	}
	missing(t, s.containerDir("c2"))
	if err := s.Release(t.Context(), "c1"); err != nil {
		t.Fatal(err)
	}
	if n := s.LayersSize(); n != 0 {
		t.Errorf("%d bytes of layers are left", n)
	}
	tidy(t, s)
}

func TestMountRefuses(t *testing.T) {
	s := open(t, Config{})
	img := load(t, s, twoLayers(t))
	other := load(t, s, saved(t, "other:1", v1.Config{}, baseLayer(t)))
	mount(t, s, img.ID, "c")
	for _, id := range []string{"", ".", "..", "../c", "a/b", "a b", strings.Repeat("a", 200)} {
		if _, err := s.Mount(t.Context(), img.ID, id); !errdefs.IsInvalidArgument(err) {
			t.Errorf("container %q: %v", id, err)
		}
	}
	if _, err := s.Mount(t.Context(), other.ID, "c"); !errdefs.IsConflict(err) {
		t.Errorf("another image for a container: %v", err)
	}
	if _, err := s.Mount(t.Context(), testID('f'), "d"); !errdefs.IsNotFound(err) {
		t.Errorf("no such image: %v", err)
	}
	if _, err := s.Usage(t.Context(), "d"); !errdefs.IsNotFound(err) {
		t.Errorf("usage of no container: %v", err)
	}
	if err := errors.Join(s.Unmount(t.Context(), "d"), s.Release(t.Context(), "d")); err != nil {
		t.Errorf("no such container: %v", err)
	}
	// What others keep in the container's directory stays, and so does it.
	write(t, "x", s.containerDir("c"), "theirs")
	if err := s.Release(t.Context(), "c"); err != nil {
		t.Fatal(err)
	}
	if entries, _ := os.ReadDir(s.containerDir("c")); len(entries) != 1 {
		t.Errorf("left: %v", entries)
	}
}

// TestMountsAtOnce: several callers, several containers, one state.
func TestMountsAtOnce(t *testing.T) {
	s := open(t, Config{})
	img := load(t, s, twoLayers(t))
	var group sync.WaitGroup
	for i := range 40 {
		group.Go(func() {
			id := fmt.Sprintf("c%d", i%10)
			if _, err := s.Mount(t.Context(), img.ID, id); err != nil {
				t.Error(err)
			}
			if i%10 == 9 {
				if err := s.Release(t.Context(), id); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	for i := range 9 {
		checkRoot(t, filepath.Join(s.containerDir(fmt.Sprintf("c%d", i)), rootName))
	}
	mounts, err := mountsBelow(s.containers)
	if err != nil || len(mounts) < 9 || len(mounts) > 10 {
		t.Errorf("%d mounts, want one for each container: %v", len(mounts), err)
	}
}

// TestFullDisk has the state on a disk of 3 MiB.
func TestFullDisk(t *testing.T) {
	needRoot(t)
	disk := t.TempDir()
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=3m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(disk, 0); err != nil {
			t.Errorf("something holds the disk: %v", err)
			unix.Unmount(disk, unix.MNT_DETACH)
		}
	})
	s := open(t, Config{StateDir: filepath.Join(disk, "state")})
	big := tarOf(t, file{name: "a", body: string(noise(1 << 20))}, file{name: "b", body: string(noise(4 << 20))})
	full := func(what string, err error) {
		t.Helper()
		if !isFull(err) || !strings.Contains(err.Error(), "no space left on device") {
			t.Errorf("%s: %v, want no space", what, err)
		} else {
			t.Logf("%s: %v", what, err)
		}
		tidy(t, s)
	}
	_, err := s.Import(t.Context(), bytes.NewReader(big), "big:1", "", nil)
	full("import", err)
	_, err = s.Load(t.Context(), bytes.NewReader(saved(t, "big:1", v1.Config{}, big)), nil)
	full("load of a large archive", err)
	half := tarOf(t, file{name: "a", body: string(noise(1800 << 10))})
	_, err = s.Load(t.Context(), bytes.NewReader(saved(t, "half:1", v1.Config{}, half)), nil)
	full("load whose layer does not fit beside the archive", err)
	reg := newRegistry(t)
	_, err = s.Pull(t.Context(), reg.push(t, "big:1", imageOf(t, here, big)), Auth{}, nil)
	full("pull", err)
	if errdefs.IsUnavailable(err) {
		t.Errorf("the registry is blamed: %v", err)
	}
	if len(s.List()) != 0 {
		t.Fatalf("images: %+v", s.List())
	}

	img := load(t, s, twoLayers(t))
	mount(t, s, img.ID, "before")
	filler := filepath.Join(disk, "filler")
	if err := os.WriteFile(filler, noise(4<<20), 0o600); !isFull(err) {
		t.Fatal(err)
	}
	before := s.List()
	_, err = s.Mount(t.Context(), img.ID, "c")
	full("mount", err)
	missing(t, s.containerDir("c"))
	full("tag", s.Tag("web:1", "more:1"))
	if got := s.List(); len(got) != 1 || !slices.Equal(got[0].RepoTags, before[0].RepoTags) {
		t.Errorf("images: %+v", got)
	}
	// What frees space works.
	if err := s.Release(t.Context(), "before"); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(filler, noise(4<<20), 0o600); !isFull(err) {
		t.Fatal(err)
	}
	if _, _, err := s.Remove(t.Context(), "web:1", false); err != nil {
		t.Errorf("remove: %v", err)
	}
	tidy(t, s)
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	checkRoot(t, mount(t, s, load(t, s, twoLayers(t)).ID, "c"))
	tidy(t, s)
}

// BenchmarkMount is a root of a loaded image, and its deletion.
func BenchmarkMount(b *testing.B) {
	for _, c := range []Config{{}, {Copy: true}} {
		b.Run(map[bool]string{false: "overlay", true: "copy"}[c.Copy], func(b *testing.B) {
			s := open(b, c)
			var files []file
			for i := range 500 {
				files = append(files, file{name: fmt.Sprintf("usr/lib/d%d/f%d", i%20, i), body: string(noise(20 << 10))})
			}
			img := load(b, s, saved(b, "web:1", v1.Config{}, baseLayer(b), topLayer(b), tarOf(b, files...)))
			b.ResetTimer()
			var mounting time.Duration
			for i := range b.N {
				id := fmt.Sprintf("c%d", i)
				start := time.Now()
				mount(b, s, img.ID, id)
				mounting += time.Since(start)
				if err := s.Release(b.Context(), id); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(mounting.Microseconds())/float64(b.N)/1000, "ms/mount")
		})
	}
}
