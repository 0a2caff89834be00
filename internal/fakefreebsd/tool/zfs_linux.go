// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"satld/internal/fakefreebsd/world"
)

// pool is zfs(8) on a world's datasets. The files of each lie in a tmpfs of its
// own, so that it has a device number of its own, and are mounted from there
// with a bind mount, so that what is busy is busy. Snapshots are copies.
type pool struct {
	*call
	w *world.World
}

// zfs(8): create, clone, snapshot, destroy, list, get, set, mount, unmount,
// rename.
func zfs(c *call) int {
	if len(c.args) == 0 {
		return c.fail(2, "missing command")
	}
	var err error
	c.update(func(w *world.World) {
		p := pool{c, w}
		verbs := map[string]func(zfsArgs) error{
			"create": p.create, "clone": p.clone, "snapshot": p.snapshot, "snap": p.snapshot, "destroy": p.destroy, "list": p.list,
			"get": p.get, "set": p.set, "mount": p.mount, "unmount": p.unmount, "umount": p.unmount, "rename": p.rename,
		}
		run := verbs[c.args[0]]
		if run == nil {
			err = fmt.Errorf("unrecognized command '%s'", c.args[0])
			return
		}
		err = run(readZFS(c.args[1:]))
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// zfsArgs are the options of a command: single letters, -o as properties or,
// for list and get, as columns; -t and -d with their value.
type zfsArgs struct {
	flags   map[byte]bool
	props   map[string]string
	columns []string
	kinds   string
	names   []string
}

func readZFS(args []string) zfsArgs {
	a := zfsArgs{flags: map[byte]bool{}, props: map[string]string{}, kinds: "filesystem"}
	for i := 0; i < len(args); i++ {
		switch arg := args[i]; {
		case arg == "-o" && i+1 < len(args):
			i++
			if k, v, ok := strings.Cut(args[i], "="); ok {
				a.props[k] = v
			} else {
				a.columns = strings.Split(args[i], ",")
			}
		case arg == "-t" && i+1 < len(args):
			i++
			a.kinds = args[i]
		case strings.HasPrefix(arg, "-"):
			for k := 1; k < len(arg); k++ {
				a.flags[arg[k]] = true
			}
		default:
			a.names = append(a.names, arg)
		}
	}
	return a
}

func cannot(what, name, why string, more ...string) error {
	text := fmt.Sprintf("cannot %s '%s': %s", what, name, why)
	for _, m := range more {
		text += "\n" + m
	}
	return errors.New(text)
}

const gone = "dataset does not exist"

func (p pool) create(a zfsArgs) error {
	if len(a.names) != 1 {
		return errors.New("missing filesystem argument")
	}
	name := a.names[0]
	if a.flags['p'] {
		if p.w.Dataset(name) != nil {
			return nil
		}
		if up := filepath.Dir(name); p.w.Dataset(up) == nil {
			if err := p.create(zfsArgs{flags: a.flags, names: []string{up}}); err != nil {
				return err
			}
		}
	}
	return p.make(name, "", a.props)
}

func (p pool) clone(a zfsArgs) error {
	if len(a.names) != 2 {
		return errors.New("missing target dataset argument")
	}
	if p.w.Dataset(a.names[0]) == nil {
		return cannot("open", a.names[0], gone)
	}
	return p.make(a.names[1], a.names[0], a.props)
}

// files is where a dataset's or snapshot's files lie, mounted or not.
func (p pool) files(d *world.Dataset) string {
	return filepath.Join(p.dir, "zfs", strconv.Itoa(d.Created), "files")
}

func (p pool) make(name, origin string, props map[string]string) error {
	switch {
	case p.w.Dataset(name) != nil:
		return cannot("create", name, "dataset already exists")
	case !strings.Contains(name, "/"):
		return cannot("create", name, "missing dataset name")
	case p.w.Dataset(filepath.Dir(name)) == nil:
		return cannot("create", name, "parent does not exist")
	case len(name) > 255 || strings.ContainsAny(name, "@ ,"):
		return cannot("create", name, "invalid character in name")
	}
	d := &world.Dataset{Name: name, Origin: origin, Props: map[string]string{}}
	for k, v := range props {
		d.Props[k] = v
	}
	p.number(d)
	home := filepath.Dir(p.files(d))
	if err := os.MkdirAll(home, 0o755); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", home, "tmpfs", 0, "mode=755"); err != nil {
		return cannot("create", name, words(err))
	}
	if err := os.Mkdir(p.files(d), 0o755); err != nil {
		return err
	}
	if origin != "" {
		if err := duplicate(p.files(p.w.Dataset(origin)), p.files(d)); err != nil {
			return err
		}
	}
	p.w.Datasets = append(p.w.Datasets, d)
	if p.property(d, "canmount") == "on" && strings.HasPrefix(p.property(d, "mountpoint"), "/") {
		return p.mountOne(d)
	}
	return nil
}

// number gives a dataset a number nobody had.
func (p pool) number(d *world.Dataset) {
	for _, o := range p.w.Datasets {
		d.Created = max(d.Created, o.Created)
	}
	d.Created++
	for exists(filepath.Join(p.dir, "zfs", strconv.Itoa(d.Created))) {
		d.Created++
	}
}

// duplicate copies a tree with all that it is.
func duplicate(from, to string) error {
	if out, err := exec.Command("/bin/cp", "-a", from+"/.", to).CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

func (p pool) snapshot(a zfsArgs) error {
	for _, name := range a.names {
		base, _, ok := strings.Cut(name, "@")
		of := p.w.Dataset(base)
		switch {
		case !ok:
			return cannot("create snapshot", name, "missing '@' delimiter in snapshot name")
		case of == nil:
			return cannot("open", base, gone)
		case p.w.Dataset(name) != nil:
			return cannot("create snapshot", name, "dataset already exists")
		}
		sets := []*world.Dataset{of}
		if a.flags['r'] {
			sets = append(sets, p.below(base)...)
		}
		for _, set := range sets {
			s := &world.Dataset{Name: set.Name + strings.TrimPrefix(name, base)}
			p.number(s)
			if err := os.MkdirAll(p.files(s), 0o755); err != nil {
				return err
			}
			if err := duplicate(p.files(set), p.files(s)); err != nil {
				return err
			}
			p.w.Datasets = append(p.w.Datasets, s)
		}
	}
	return nil
}

// below are the file systems below a name, and snapshotsOf a file system's.
func (p pool) below(name string) (out []*world.Dataset) {
	for _, d := range p.w.Datasets {
		if strings.HasPrefix(d.Name, name+"/") && !d.Snapshot() {
			out = append(out, d)
		}
	}
	return out
}

func (p pool) snapshotsOf(name string) (out []*world.Dataset) {
	for _, d := range p.w.Datasets {
		if strings.HasPrefix(d.Name, name+"@") {
			out = append(out, d)
		}
	}
	return out
}

func (p pool) clonesOf(snapshot string) (names []string) {
	for _, d := range p.w.Datasets {
		if d.Origin == snapshot {
			names = append(names, d.Name)
		}
	}
	return names
}

func (p pool) destroy(a zfsArgs) error {
	if len(a.names) != 1 {
		return errors.New("missing dataset argument")
	}
	name := a.names[0]
	if base, list, ok := strings.Cut(name, "@"); ok {
		if p.w.Dataset(base) == nil {
			return cannot("open", base, gone)
		}
		for snapshot := range strings.SplitSeq(list, ",") {
			if err := p.destroySnapshot(base+"@"+snapshot, a.flags['d']); err != nil {
				return err
			}
		}
		return nil
	}
	d := p.w.Dataset(name)
	if d == nil {
		return cannot("open", name, gone)
	}
	inside := append(p.snapshotsOf(name), p.below(name)...)
	if len(inside) > 0 && !a.flags['r'] && !a.flags['R'] {
		var names []string
		for _, i := range inside {
			names = append(names, i.Name)
		}
		return cannot("destroy", name, "filesystem has children", append([]string{"use '-r' to destroy the following datasets:"}, names...)...)
	}
	for _, i := range inside {
		if clones := p.clonesOf(i.Name); len(clones) > 0 {
			return cannot("destroy", name, "filesystem has dependent clones", append([]string{"use '-R' to destroy the following datasets:"}, clones...)...)
		}
	}
	for _, i := range slices.Backward(append([]*world.Dataset{d}, inside...)) {
		if err := p.destroyOne(i, a.flags['f']); err != nil {
			return err
		}
	}
	return nil
}

func (p pool) destroySnapshot(name string, deferred bool) error {
	s := p.w.Dataset(name)
	if s == nil {
		return fmt.Errorf("could not find any snapshots to destroy; check snapshot names.")
	}
	if clones := p.clonesOf(name); len(clones) > 0 {
		if deferred {
			s.Deferred = true
			return nil
		}
		return cannot("destroy", name, "snapshot has dependent clones", append([]string{"use '-R' to destroy the following datasets:"}, clones...)...)
	}
	return p.destroyOne(s, false)
}

func (p pool) destroyOne(d *world.Dataset, force bool) error {
	if d.Mounted != "" {
		if err := p.unmountOne(d, force); err != nil {
			return err
		}
	}
	home := filepath.Dir(p.files(d))
	if !d.Snapshot() {
		if err := unix.Unmount(home, unix.MNT_DETACH); err != nil {
			return cannot("destroy", d.Name, words(err))
		}
	}
	if err := os.RemoveAll(home); err != nil {
		return err
	}
	p.w.Datasets = slices.DeleteFunc(p.w.Datasets, func(o *world.Dataset) bool { return o == d })
	if origin := p.w.Dataset(d.Origin); origin != nil && origin.Deferred && len(p.clonesOf(origin.Name)) == 0 {
		return p.destroyOne(origin, false)
	}
	return nil
}

func (p pool) mount(a zfsArgs) error {
	for _, name := range a.names {
		d := p.w.Dataset(name)
		switch {
		case d == nil:
			return cannot("open", name, gone)
		case d.Mounted != "":
			return cannot("mount", name, "filesystem already mounted")
		case !strings.HasPrefix(p.property(d, "mountpoint"), "/"):
			return cannot("mount", name, "no mountpoint set")
		case p.property(d, "canmount") == "off":
			return cannot("mount", name, "'canmount' property is set to 'off'")
		}
		if err := p.mountOne(d); err != nil {
			return err
		}
	}
	return nil
}

func (p pool) mountOne(d *world.Dataset) error {
	point := p.property(d, "mountpoint")
	if err := os.MkdirAll(point, 0o755); err != nil {
		return cannot("mount", d.Name, words(err))
	}
	d.Mounted = point
	m := world.Mount{From: d.Name, On: point, Type: "zfs", Options: "rw,nfsv4acls", Real: true}
	if err := note(p.w, m, func() error { return unix.Mount(p.files(d), point, "", unix.MS_BIND, "") }); err != nil {
		d.Mounted = ""
		return cannot("mount", d.Name, words(err))
	}
	return nil
}

func (p pool) unmount(a zfsArgs) error {
	for _, name := range a.names {
		i := slices.IndexFunc(p.w.Datasets, func(d *world.Dataset) bool { return d.Name == name || d.Mounted == name })
		if i < 0 {
			return cannot("open", name, gone)
		}
		if p.w.Datasets[i].Mounted == "" {
			return cannot("unmount", name, "not currently mounted")
		}
		if err := p.unmountOne(p.w.Datasets[i], a.flags['f']); err != nil {
			return err
		}
	}
	return nil
}

func (p pool) unmountOne(d *world.Dataset, force bool) error {
	err := unmountOne(p.w, d.Mounted, force)
	if errors.Is(err, syscall.EBUSY) {
		return cannot("unmount", d.Mounted, "pool or dataset is busy")
	}
	if err != nil {
		return cannot("unmount", d.Mounted, words(err))
	}
	d.Mounted = ""
	return nil
}

func (p pool) rename(a zfsArgs) error {
	if len(a.names) != 2 {
		return errors.New("missing target dataset argument")
	}
	d := p.w.Dataset(a.names[0])
	if d == nil {
		return cannot("open", a.names[0], gone)
	}
	if p.w.Dataset(a.names[1]) != nil {
		return cannot("rename", a.names[0], "dataset already exists")
	}
	old := d.Name
	for _, o := range p.w.Datasets {
		if o == d || strings.HasPrefix(o.Name, old+"/") || strings.HasPrefix(o.Name, old+"@") {
			o.Name = a.names[1] + strings.TrimPrefix(o.Name, old)
		}
		if o.Origin == old || strings.HasPrefix(o.Origin, old+"@") {
			o.Origin = a.names[1] + strings.TrimPrefix(o.Origin, old)
		}
	}
	return nil
}
