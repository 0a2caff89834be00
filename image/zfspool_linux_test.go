// SPDX-License-Identifier: BSD-2-Clause

package image

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"satld/platform/command"
)

// zfsPool stands in for zfs(8), mount(8) and umount(8) of a FreeBSD host. All
// its state is on disk, so that it outlives a process that is killed: a dataset
// is the directory dir/<name with , for />, holding data/, snap/<name>/ and
// props.json, and is mounted by a bind mount, so that what is busy is busy.
// Each command is as one step, as those of ZFS are.
type zfsPool struct {
	dir string

	mu    sync.Mutex
	calls []string
	// fault is asked before a command runs, and again after it did; an error is
	// what the caller gets.
	fault func(argv []string, done bool) error
}

// poolProps are a dataset's own properties; "origin" is one of them here.
type poolProps map[string]string

// newPool is a pool with the dataset tank/satl.
func newPool(t testing.TB) *zfsPool {
	t.Helper()
	needRoot(t)
	p := &zfsPool{dir: t.TempDir()}
	for _, name := range []string{"tank", "tank/satl"} {
		if _, err := p.run(context.Background(), command.Of("zfs", "create", "-o", "mountpoint=none", name)); err != nil {
			t.Fatal(err)
		}
	}
	p.calls = nil
	return p
}

func init() {
	kinds["zfs"] = func(t testing.TB) Config { return newPool(t).config() }
}

func (p *zfsPool) config() Config { return Config{ZFSRoot: "tank/satl", tools: p.run} }

func (p *zfsPool) path(name string, elem ...string) string {
	return filepath.Join(append([]string{p.dir, strings.ReplaceAll(name, "/", ",")}, elem...)...)
}

func (p *zfsPool) run(ctx context.Context, c command.Command) (string, error) {
	argv := c.Argv
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls = append(p.calls, strings.Join(argv, " "))
	if err := ctx.Err(); err != nil {
		return "", &command.Error{Command: c, Err: err}
	}
	if p.fault != nil {
		if err := p.fault(argv, false); err != nil {
			return "", err
		}
	}
	out, err := p.command(argv)
	if err != nil {
		return "", &command.Error{Command: c, Status: 1, Err: errors.New("exit status 1"), Stderr: err.Error()}
	}
	if p.fault != nil {
		if err := p.fault(argv, true); err != nil {
			return "", err
		}
	}
	return out, nil
}

func (p *zfsPool) command(argv []string) (string, error) {
	options, names := splitArgs(argv[1:])
	switch what := argv[0] + " " + argv[1]; {
	case what == "mount -p":
		return p.table()
	case argv[0] == "umount":
		return "", unix.Unmount(argv[len(argv)-1], unix.MNT_DETACH)
	case what == "zfs list":
		return p.list(names[1], slices.Contains(argv, "-r"), slices.Contains(argv, "filesystem,snapshot"))
	case what == "zfs create":
		return "", p.make(names[1], "", options)
	case what == "zfs clone":
		return "", p.make(names[2], names[1], options)
	case what == "zfs snapshot":
		return "", p.snapshot(names[1])
	case what == "zfs mount":
		return "", p.mount(names[1])
	case what == "zfs unmount":
		return "", p.unmount(names[1])
	case what == "zfs destroy" && slices.Contains(argv, "-d"):
		return "", p.destroySnapshots(names[1])
	case what == "zfs destroy":
		return "", p.destroy(names[1], slices.Contains(argv, "-r"))
	}
	return "", fmt.Errorf("the pool does not know %q", argv)
}

// splitArgs takes -o name=value and flags out of a command line.
func splitArgs(args []string) (options poolProps, names []string) {
	options = poolProps{}
	for i := 0; i < len(args); i++ {
		switch {
		case args[i] == "-o":
			k, v, _ := strings.Cut(args[i+1], "=")
			options[k] = v
			i++
		case args[i] == "-t":
			i++
		case !strings.HasPrefix(args[i], "-"):
			names = append(names, args[i])
		}
	}
	return options, names
}

// all are the file systems, parents first.
func (p *zfsPool) all() []string {
	entries, _ := os.ReadDir(p.dir)
	var names []string
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") {
			names = append(names, strings.ReplaceAll(e.Name(), ",", "/"))
		}
	}
	slices.Sort(names)
	return names
}

func (p *zfsPool) exists(name string) bool {
	if set, snapshot, ok := strings.Cut(name, "@"); ok {
		_, err := os.Stat(p.path(set, "snap", snapshot))
		return err == nil
	}
	_, err := os.Stat(p.path(name))
	return err == nil
}

func (p *zfsPool) props(name string) poolProps {
	data, err := os.ReadFile(p.path(name, "props.json"))
	if err != nil {
		panic(err)
	}
	props := poolProps{}
	if err := json.Unmarshal(data, &props); err != nil {
		panic(err)
	}
	return props
}

// inherited is a user property of the dataset or of the nearest above it.
func (p *zfsPool) inherited(name, property string) string {
	for ; name != "."; name = filepath.Dir(name) {
		if v, ok := p.props(name)[property]; ok {
			return v
		}
	}
	return "-"
}

func (p *zfsPool) snapshots(name string) []string {
	entries, _ := os.ReadDir(p.path(name, "snap"))
	var names []string
	for _, e := range entries {
		names = append(names, name+"@"+e.Name())
	}
	return names
}

func (p *zfsPool) clones(snapshot string) []string {
	return slices.DeleteFunc(p.all(), func(name string) bool { return p.props(name)["origin"] != snapshot })
}

func (p *zfsPool) isMounted(name string) bool {
	point := p.props(name)["mountpoint"]
	mounts, err := mountsBelow(point)
	return err == nil && slices.Contains(mounts, point)
}

func errDataset(what, name, why string) error {
	return fmt.Errorf("cannot %s '%s': %s", what, name, why)
}

func (p *zfsPool) table() (string, error) {
	table := "zroot/ROOT/default\t/\t\t\tzfs\trw,nfsv4acls \t0 0\n"
	for _, name := range p.all() {
		if p.isMounted(name) {
			table += name + "\t\t" + p.props(name)["mountpoint"] + " zfs\trw,nfsv4acls \t0 0\n"
		}
	}
	return table, nil
}

func (p *zfsPool) list(name string, deep, withSnapshots bool) (string, error) {
	if !p.exists(name) {
		return "", errDataset("open", name, "dataset does not exist")
	}
	var out strings.Builder
	for _, set := range p.all() {
		if set != name && !(deep && strings.HasPrefix(set, name+"/")) {
			continue
		}
		props, mounted := p.props(set), "no"
		if p.isMounted(set) {
			mounted = "yes"
		}
		origin := props["origin"]
		var like []tree
		if origin == "" {
			origin = "-"
		} else {
			like = []tree{{dir: p.data(origin)}}
		}
		used, err := differing(p.path(set, "data"), like)
		if err != nil {
			return "", err
		}
		state := p.inherited(set, stateProperty)
		fmt.Fprintf(&out, "%s\t%s\t%s\t%d\t%s\n", set, origin, mounted, used, state)
		for _, snapshot := range p.snapshots(set) {
			if withSnapshots {
				fmt.Fprintf(&out, "%s\t-\t-\t0\t%s\n", snapshot, state)
			}
		}
	}
	return out.String(), nil
}

func differing(dir string, like []tree) (int64, error) {
	return treeSize(dir, func(path string, st *unix.Stat_t) bool {
		for _, l := range like {
			var was unix.Stat_t
			if unix.Lstat(filepath.Join(l.dir, strings.TrimPrefix(path, dir)), &was) == nil && was.Size == st.Size && was.Mtim == st.Mtim {
				return false
			}
		}
		return true
	})
}

// data is the directory with the files of a dataset or snapshot.
func (p *zfsPool) data(name string) string {
	if set, snapshot, ok := strings.Cut(name, "@"); ok {
		return p.path(set, "snap", snapshot)
	}
	return p.path(name, "data")
}

// make makes a dataset whole, and only then gives it its name.
func (p *zfsPool) make(name, origin string, props poolProps) error {
	switch {
	case p.exists(name):
		return errDataset("create", name, "dataset already exists")
	case name != "tank" && !p.exists(filepath.Dir(name)):
		return errDataset("create", name, "parent does not exist")
	case origin != "" && !p.exists(origin):
		return errDataset("open", origin, "dataset does not exist")
	}
	fresh, err := os.MkdirTemp(p.dir, ".new-")
	if err != nil {
		return err
	}
	data := filepath.Join(fresh, "data")
	err = errors.Join(os.Mkdir(data, 0o755), os.Chmod(data, 0o755), os.Mkdir(filepath.Join(fresh, "snap"), 0o755))
	if origin != "" {
		props["origin"] = origin
		err = errors.Join(err, copyLayer(context.Background(), p.data(origin), data))
	}
	raw, jsonErr := json.Marshal(props)
	return errors.Join(err, jsonErr, os.WriteFile(filepath.Join(fresh, "props.json"), raw, 0o600), os.Rename(fresh, p.path(name)))
}

func (p *zfsPool) snapshot(name string) error {
	set, snapshot, _ := strings.Cut(name, "@")
	if !p.exists(set) {
		return errDataset("open", set, "dataset does not exist")
	}
	if p.exists(name) {
		return errDataset("create snapshot", name, "dataset already exists")
	}
	fresh, err := os.MkdirTemp(p.dir, ".snap-")
	if err != nil {
		return err
	}
	return errors.Join(copyLayer(context.Background(), p.path(set, "data"), fresh), os.Chmod(fresh, 0o755), os.Rename(fresh, p.path(set, "snap", snapshot)))
}

func (p *zfsPool) mount(name string) error {
	point := p.props(name)["mountpoint"]
	if p.isMounted(name) {
		return errDataset("mount", name, "filesystem already mounted")
	}
	if err := unix.Mount(p.path(name, "data"), point, "", unix.MS_BIND, ""); err != nil {
		return errDataset("mount", name, err.Error())
	}
	return nil
}

func (p *zfsPool) unmount(name string) error {
	point := p.props(name)["mountpoint"]
	if !p.isMounted(name) {
		return errDataset("unmount", name, "not currently mounted")
	}
	if err := unix.Unmount(point, 0); errors.Is(err, unix.EBUSY) {
		return errDataset("unmount", point, "pool or dataset is busy")
	} else if err != nil {
		return errDataset("unmount", point, err.Error())
	}
	return nil
}

// destroySnapshots is `destroy -d`: what has clones is destroyed with the last.
func (p *zfsPool) destroySnapshots(names string) error {
	set, list, _ := strings.Cut(names, "@")
	if !p.exists(set) {
		return errDataset("open", set, "dataset does not exist")
	}
	found := false
	for _, snapshot := range strings.Split(list, ",") {
		name := set + "@" + snapshot
		if !p.exists(name) {
			continue
		}
		found = true
		if len(p.clones(name)) > 0 {
			if err := os.WriteFile(p.path(set, "deferred-"+snapshot), nil, 0o600); err != nil {
				return err
			}
		} else if err := p.discard(p.path(set, "snap", snapshot)); err != nil {
			return err
		}
	}
	if !found {
		return errors.New("could not find any snapshots to destroy; check snapshot names.")
	}
	return nil
}

func (p *zfsPool) destroy(name string, deep bool) error {
	if !p.exists(name) {
		return errDataset("open", name, "dataset does not exist")
	}
	var within []string
	for _, set := range p.all() {
		if strings.HasPrefix(set, name+"/") {
			within = append(within, set)
		}
	}
	snapshots := p.snapshots(name)
	if within = append(snapshots, within...); len(within) > 0 && !deep {
		return errDataset("destroy", name, "filesystem has children\nuse '-r' to destroy the following datasets:\n"+strings.Join(within, "\n"))
	}
	for _, s := range snapshots {
		if c := p.clones(s); len(c) > 0 {
			return errDataset("destroy", name, "filesystem has dependent clones\nuse '-R' to destroy the following datasets:\n"+strings.Join(c, "\n"))
		}
	}
	if p.isMounted(name) {
		if err := p.unmount(name); err != nil {
			return err
		}
	}
	origin := p.props(name)["origin"]
	if err := p.discard(p.path(name)); err != nil {
		return err
	}
	set, snapshot, _ := strings.Cut(origin, "@")
	if origin == "" || len(p.clones(origin)) > 0 {
		return nil
	}
	if _, err := os.Stat(p.path(set, "deferred-"+snapshot)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return errors.Join(p.discard(p.path(set, "snap", snapshot)), os.Remove(p.path(set, "deferred-"+snapshot)))
}

// discard takes a directory's name in one step, and then the directory.
func (p *zfsPool) discard(dir string) error {
	away, err := os.MkdirTemp(p.dir, ".gone-")
	if err != nil {
		return err
	}
	return errors.Join(os.Rename(dir, filepath.Join(away, "x")), RemoveTree(away))
}
