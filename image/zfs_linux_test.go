// SPDX-License-Identifier: BSD-2-Clause

package image

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/containerd/errdefs"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"satld/platform/command"
)

// openPool opens a store whose roots are clones in the pool.
func openPool(t testing.TB, p *zfsPool, state string) *Store {
	t.Helper()
	c := p.config()
	c.StateDir = state
	return open(t, c)
}

// sets are the datasets below the root's layers and containers.
func (p *zfsPool) sets(part string) (names []string) {
	for _, name := range p.all() {
		if last, ok := strings.CutPrefix(name, "tank/satl/"+part+"/"); ok {
			names = append(names, last)
		}
	}
	return names
}

// TestZFSCommands is a container's whole life in commands.
func TestZFSCommands(t *testing.T) {
	p := newPool(t)
	s := openPool(t, p, "")
	img := load(t, s, twoLayers(t))
	p.calls = append(p.calls, "# start")
	root := mount(t, s, img.ID, "c1")
	checkRoot(t, root)
	p.calls = append(p.calls, "# stop, start again")
	if err := s.Unmount(t.Context(), "c1"); err != nil {
		t.Fatal(err)
	}
	mount(t, s, img.ID, "c1")
	p.calls = append(p.calls, "# another of the same image")
	mount(t, s, img.ID, "c2")
	p.calls = append(p.calls, "# remove both, and the image")
	if err := errors.Join(s.Release(t.Context(), "c1"), s.Release(t.Context(), "c2")); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Remove(t.Context(), "web:1", false); err != nil {
		t.Fatal(err)
	}
	names := strings.NewReplacer(filepath.Dir(s.dir), "STATE")
	for i, chain := range chainsOf(s.diffs([]string{digestOf(baseLayer(t)), digestOf(topLayer(t))})) {
		names = strings.NewReplacer(filepath.Dir(s.dir), "STATE", chain, fmt.Sprintf("CHAIN%d", i), "chain-"+chain[:16], fmt.Sprintf("chain-%d", i))
		for j := range p.calls {
			p.calls[j] = names.Replace(p.calls[j])
		}
	}
	golden(t, "testdata/zfs/commands.golden", strings.Join(p.calls, "\n")+"\n")
	if left := append(p.sets(layersSet), p.sets(containersSet)...); len(left) > 0 {
		t.Errorf("datasets are left: %v", left)
	}
}

// golden compares got with a file, or writes it with -update.
func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		write(t, got, path)
	}
	if want := content(t, path); got != want {
		t.Errorf("%s differs:\n%s", path, got)
	}
}

// TestZFSFound: the dataset is the one that is mounted at the state directory.
func TestZFSFound(t *testing.T) {
	for name, tc := range map[string]struct {
		zfsRoot string
		table   string // STATE is the state directory
		kind    string
	}{
		"dataset at the directory": {table: "tank/satl\t\tSTATE zfs\trw\t0 0\n", kind: "zfs"},
		"dataset above":            {table: "tank\t\tPARENT zfs\trw\t0 0\n", kind: "copy"},
		"dataset below":            {table: "tank/satl\t\tSTATE/images zfs\trw\t0 0\n", kind: "copy"},
		"covered":                  {table: "tank/satl\t\tSTATE zfs\trw\t0 0\n/dev/md0\t\tSTATE ufs\trw\t0 0\n", kind: "copy"},
		"off":                      {zfsRoot: "off", table: "tank/satl\t\tSTATE zfs\trw\t0 0\n", kind: "copy"},
		"named":                    {zfsRoot: "tank/satl", kind: "zfs"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPool(t)
			state := t.TempDir()
			table := strings.NewReplacer("STATE", state, "PARENT", filepath.Dir(state)).Replace(tc.table)
			s := open(t, Config{StateDir: state, ZFSRoot: tc.zfsRoot, tools: func(ctx context.Context, c command.Command) (string, error) {
				if c.Argv[0] == "mount" {
					return table, nil
				}
				return p.run(ctx, c)
			}})
			if got := s.roots.kind(); got != tc.kind {
				t.Errorf("roots are of kind %s, want %s", got, tc.kind)
			}
		})
	}
}

// TestZFSRefuses: datasets of others, and such that are not there.
func TestZFSRefuses(t *testing.T) {
	p := newPool(t)
	refuses := func(what, root, text string) {
		t.Helper()
		c := p.config()
		c.StateDir, c.ZFSRoot = t.TempDir(), root
		s, err := Open(c)
		if err == nil {
			s.Close()
		}
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v, want %q", what, err, text)
		}
	}
	refuses("no such dataset", "tank/none", "zfs create -o mountpoint=none tank/none")
	refuses("no name", "tank/satl@x", "no name of a dataset")
	refuses("option", "-r", "no name of a dataset")
	refuses("long", "tank/"+strings.Repeat("a", 100), "no name of a dataset")
	openPool(t, p, "")
	refuses("another daemon's", "tank/satl", "is of the state directory")
	for _, name := range []string{"tank/other", "tank/other/containers"} {
		if _, err := p.run(t.Context(), command.Of("zfs", "create", name)); err != nil {
			t.Fatal(err)
		}
	}
	refuses("the operator's", "tank/other", "no property satl:state")
	broken := func(_ context.Context, c command.Command) (string, error) {
		return "", &command.Error{Command: c, Status: -1, Err: os.ErrNotExist}
	}
	if _, err := Open(Config{StateDir: t.TempDir(), ZFSRoot: "tank/satl", tools: broken}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no zfs(8): %v", err)
	}
}

// TestDatasetsStayBelowRoot: no command changes what is not a layer or a
// container of ours.
func TestDatasetsStayBelowRoot(t *testing.T) {
	d := datasets{root: "tank/satl", state: "/state", run: func(_ context.Context, c command.Command) (string, error) {
		t.Errorf("%q was run", c.Argv)
		return "", nil
	}}
	for _, name := range []string{"", "tank", "tank/satl", "tank/satl/", "tank/satl/layers", "tank/satl/layers/", "tank/satl/layersx/a",
		"tank/satl/layers/a/b", "tank/satl/layers/a@final", "tank/satl/containers/../a", "tank/satl/volumes/a", "tank/satlx/layers/a",
		"other/satl/layers/a", "tank/satl/containers/-r", "tank/satl/containers/a b", "tank/satl/containers/a,b"} {
		for what, err := range map[string]error{
			"destroy":  d.destroy(t.Context(), name),
			"create":   d.create(t.Context(), name, "", "/x"),
			"snapshot": d.snapshot(t.Context(), name),
		} {
			if !errdefs.IsInvalidArgument(err) {
				t.Errorf("%s %q: %v, want it refused", what, name, err)
			}
		}
	}
}

// TestZFSBusyRoot: somebody holds the root, as a dying jail does.
func TestZFSBusyRoot(t *testing.T) {
	p := newPool(t)
	s := openPool(t, p, "")
	img := load(t, s, twoLayers(t))
	root := mount(t, s, img.ID, "c")
	write(t, "kept", root, "kept")
	held, err := os.Open(filepath.Join(root, "etc/motd"))
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	for what, f := range map[string]func() error{
		"unmount": func() error { return s.Unmount(t.Context(), "c") },
		"release": func() error { return s.Release(t.Context(), "c") },
		"sweep":   func() error { return s.Sweep(t.Context(), nil) },
	} {
		if err := f(); !IsBusy(err) || !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), "tank/satl/containers/c is in use") {
			t.Errorf("%s: %v, want it busy", what, err)
		}
	}
	if got := content(t, root, "kept"); got != "kept" {
		t.Fatalf("kept is %q", got)
	}
	// Unmounted, and its dataset held still.
	held.Close()
	if err := s.Unmount(t.Context(), "c"); err != nil {
		t.Fatal(err)
	}
	holds := true
	p.fault = func(argv []string, done bool) error {
		if holds && !done && argv[1] == "destroy" {
			return &command.Error{Command: command.Of(argv...), Err: errors.New("exit status 1"), Stderr: "cannot destroy 'tank/satl/containers/c': dataset is busy"}
		}
		return nil
	}
	if err := s.Release(t.Context(), "c"); !IsBusy(err) {
		t.Errorf("release of a held dataset: %v, want it busy", err)
	}
	if _, ok := s.container("c"); !ok {
		t.Error("the record is gone before the root")
	}
	holds = false
	if err := s.Release(t.Context(), "c"); err != nil {
		t.Errorf("after it was let go: %v", err)
	}
	missing(t, s.containerDir("c"))
	tidy(t, s)
}

// TestZFSSharedLayers: what images share is kept once, and goes with the last.
func TestZFSSharedLayers(t *testing.T) {
	p := newPool(t)
	s := openPool(t, p, "")
	other := tarOf(t, file{name: "other", body: "other"})
	web := load(t, s, twoLayers(t))
	web2 := load(t, s, saved(t, "web:2", v1.Config{}, baseLayer(t), other))
	if n := len(p.sets(layersSet)); n != 0 {
		t.Errorf("%d datasets of layers before any container", n)
	}
	before := s.LayersSize()
	checkRoot(t, mount(t, s, web.ID, "a"))
	if got := content(t, mount(t, s, web2.ID, "b"), "other"); got != "other" {
		t.Errorf("other is %q", got)
	}
	if n := len(p.sets(layersSet)); n != 3 {
		t.Errorf("%d datasets of layers, want 3: %v", n, p.sets(layersSet))
	}
	if s.LayersSize() < before {
		t.Errorf("layers take %d bytes, and %d without datasets", s.LayersSize(), before)
	}
	write(t, string(make([]byte, 1000)), s.containerDir("a"), rootName, "new")
	if n, err := s.Usage(t.Context(), "a"); err != nil || n != 1000 {
		t.Errorf("usage %d %v, want 1000", n, err)
	}
	// A container's layers stay without its image.
	if _, _, err := s.Remove(t.Context(), "web:1", true); err != nil {
		t.Fatal(err)
	}
	checkRoot(t, filepath.Join(s.containerDir("a"), rootName))
	if err := s.Release(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if n := len(p.sets(layersSet)); n != 3 { // the image is there still: only its name went
		t.Errorf("%d datasets of layers, want 3", n)
	}
	if _, _, err := s.Remove(t.Context(), web.ID, true); err != nil {
		t.Fatal(err)
	}
	if n := len(p.sets(layersSet)); n != 2 {
		t.Errorf("%d datasets of layers, want 2", n)
	}
	if err := s.Release(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Remove(t.Context(), "web:2", false); err != nil {
		t.Fatal(err)
	}
	if left := append(p.sets(layersSet), p.sets(containersSet)...); len(left) > 0 {
		t.Errorf("datasets are left: %v", left)
	}
	tidy(t, s)
}

// TestZFSOthersWithin: snapshots of a backup go with what they are of; a clone
// that the operator made, or a dataset he made below ours, is left to him.
func TestZFSOthersWithin(t *testing.T) {
	p := newPool(t)
	s := openPool(t, p, "")
	img := load(t, s, twoLayers(t))
	mount(t, s, img.ID, "c")
	mount(t, s, img.ID, "d")
	zfs := func(args ...string) {
		t.Helper()
		if _, err := p.run(t.Context(), command.Of(append([]string{"zfs"}, args...)...)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range p.all() {
		if strings.HasPrefix(name, "tank/satl/") {
			zfs("snapshot", name+"@daily")
		}
	}
	layers := p.sets(layersSet)
	for _, l := range layers {
		zfs("clone", "tank/satl/layers/"+l+"@final", "tank/mine-"+l[:8])
	}
	zfs("create", "tank/satl/containers/d/data")
	if err := s.Release(t.Context(), "c"); err != nil {
		t.Errorf("a container with snapshots: %v", err)
	}
	if err := s.Release(t.Context(), "d"); !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), "tank/satl/containers/d/data") {
		t.Errorf("a container with a dataset below: %v", err)
	}
	if !p.exists("tank/satl/containers/d/data") {
		t.Fatal("a dataset of somebody is gone")
	}
	zfs("destroy", "tank/satl/containers/d/data")
	if err := s.Release(t.Context(), "d"); err != nil {
		t.Error(err)
	}
	if _, _, err := s.Remove(t.Context(), "web:1", false); err != nil {
		t.Fatal(err)
	}
	if got := p.sets(layersSet); !slices.Equal(got, layers) {
		t.Errorf("layers %v, want those that have clones", got)
	}
	for _, l := range layers {
		if !p.exists("tank/mine-" + l[:8]) {
			t.Errorf("the operator's clone of %s is gone", l)
		}
		zfs("destroy", "tank/mine-"+l[:8])
	}
	s.collect()
	if got := p.sets(layersSet); len(got) > 0 {
		t.Errorf("layers %v are left", got)
	}
}

// TestZFSReopen: another store finds the roots, mounted or not, and sweeps
// what has no record and what is half-made.
func TestZFSReopen(t *testing.T) {
	p := newPool(t)
	state := t.TempDir()
	s := openPool(t, p, state)
	img := load(t, s, twoLayers(t))
	root := mount(t, s, img.ID, "on")
	mount(t, s, img.ID, "off")
	write(t, "kept", s.containerDir("off"), rootName, "kept")
	if err := s.Unmount(t.Context(), "off"); err != nil {
		t.Fatal(err)
	}
	s.Close()
	for _, name := range []string{"tank/satl/containers/stray", "tank/satl/layers/" + strings.Repeat("ab", 32)} {
		if err := p.make(name, "", poolProps{"mountpoint": "/none"}); err != nil {
			t.Fatal(err)
		}
	}
	s = openPool(t, p, state)
	if !s.mounts["on"].mounted || s.mounts["off"].mounted {
		t.Errorf("mounted: on %v, off %v", s.mounts["on"].mounted, s.mounts["off"].mounted)
	}
	checkRoot(t, root)
	if got := content(t, mount(t, s, img.ID, "off"), "kept"); got != "kept" {
		t.Errorf("kept is %q", got)
	}
	if got := p.sets(containersSet); !slices.Equal(got, []string{"off", "on"}) {
		t.Errorf("containers %v", got)
	}
	if got := p.sets(layersSet); len(got) != 2 {
		t.Errorf("layers %v, want 2", got)
	}
}

// TestZFSMountsAtOnce: several callers need the same layers.
func TestZFSMountsAtOnce(t *testing.T) {
	p := newPool(t)
	s := openPool(t, p, "")
	img := load(t, s, twoLayers(t))
	var group sync.WaitGroup
	for i := range 16 {
		group.Go(func() {
			id := fmt.Sprintf("c%d", i%8)
			root, err := s.Mount(t.Context(), img.ID, id)
			if err != nil {
				t.Error(err)
				return
			}
			checkRoot(t, root)
			if i < 8 && i%2 == 0 {
				s.collect()
			}
		})
	}
	group.Wait()
	if n := len(p.sets(layersSet)); n != 2 {
		t.Errorf("%d datasets of layers, want 2", n)
	}
	if n := len(p.sets(containersSet)); n != 8 {
		t.Errorf("%d datasets of containers, want 8", n)
	}
}

// TestZFSNoLayers is an image of nothing, and a root that was a copy before
// the host had its dataset.
func TestZFSNoLayers(t *testing.T) {
	p := newPool(t)
	state := t.TempDir()
	s := open(t, Config{StateDir: state, Copy: true})
	img := load(t, s, twoLayers(t))
	mount(t, s, img.ID, "copied")
	s.Close()
	s = openPool(t, p, state)
	if _, err := s.Mount(t.Context(), img.ID, "copied"); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("a root of another kind: %v", err)
	}
	if err := s.Release(t.Context(), "copied"); err != nil {
		t.Error(err)
	}
	missing(t, s.containerDir("copied"))
	none := load(t, s, saved(t, "none:1", v1.Config{}))
	write(t, "x", mount(t, s, none.ID, "d"), "x")
}
