// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"satld/internal/fakefreebsd/world"
)

// File systems of FreeBSD are real mounts here, of the nearest kind that this
// kernel has, so that what crosses a mount point in error destroys something
// that a test can look at: nullfs is a bind mount, devfs and fdescfs are tmpfs,
// linprocfs is procfs.

// devices are what devfs shows with ruleset 4.
var devices = map[string]uint64{
	"null": unix.Mkdev(1, 3), "zero": unix.Mkdev(1, 5), "full": unix.Mkdev(1, 7),
	"random": unix.Mkdev(1, 8), "urandom": unix.Mkdev(1, 9),
}

// flags are options that are no key of a file system. The others are
// fstype's own; what it does not know is EINVAL.
var mountFlags = map[string]uintptr{
	"ro": unix.MS_RDONLY, "rdonly": unix.MS_RDONLY, "nosuid": unix.MS_NOSUID, "noexec": unix.MS_NOEXEC, "noatime": unix.MS_NOATIME,
	"rw": 0, "suid": 0, "exec": 0, "atime": 0, "async": 0, "sync": 0, "nosymfollow": 0, "union": 0, "cover": 0, "emptydir": 0,
	"private": 0, "rprivate": 0, "rbind": 0, "bind": 0, "nodev": 0, "acls": 0, "nfsv4acls": 0, "tmpcopyup": 0, "nocover": 0,
}

var mountKeys = map[string][]string{
	"devfs": {"ruleset", "rule"}, "fdescfs": {"linrdlnk", "nodup", "rdlnk"}, "nullfs": {"cache", "nocache"}, "linprocfs": {}, "linsysfs": {},
	"tmpfs": {"size", "mode", "uid", "gid", "inodes", "maxfilesize", "nonc", "export"}, "procfs": {"linux"},
}

// mountOne is nmount(2), and notes it.
func mountOne(w *world.World, kind, from, onto string, options []string) error {
	keys, ok := mountKeys[kind]
	if !ok {
		return syscall.ENODEV
	}
	var flags uintptr
	var data []string
	for _, opt := range options {
		key, _, _ := strings.Cut(opt, "=")
		if f, ok := mountFlags[key]; ok {
			flags |= f
		} else if slices.Contains(keys, key) {
			data = append(data, opt)
		} else {
			return syscall.EINVAL
		}
	}
	if kind == "devfs" && !slices.ContainsFunc(data, func(o string) bool { return strings.HasPrefix(o, "ruleset=") }) {
		w.Wrong("devfs on %s without a ruleset shows every device of the host", onto)
	}
	shown := "rw"
	if flags&unix.MS_RDONLY != 0 {
		shown = "ro"
	}
	if flags&unix.MS_NOSUID != 0 {
		shown += ",nosuid"
	}
	if flags&unix.MS_NOEXEC != 0 {
		shown += ",noexec"
	}
	shownFrom := kind
	if kind == "nullfs" {
		shownFrom = from
	}
	return note(w, world.Mount{From: shownFrom, On: onto, Type: kind, Options: shown, Real: true}, func() error {
		return mountReal(kind, from, onto, flags, data)
	})
}

// note adds to the table what is mounted next; it goes again when that fails.
func note(w *world.World, m world.Mount, mount func() error) error {
	w.Mounts = append(w.Mounts, m)
	err := w.Save()
	if err == nil {
		err = mount()
	}
	if err != nil {
		w.DropMount(m.On)
	}
	return err
}

func mountReal(kind, from, onto string, flags uintptr, data []string) error {
	switch kind {
	case "nullfs":
		if err := unix.Mount(from, onto, "", unix.MS_BIND, ""); err != nil {
			return err
		}
		if flags == 0 {
			return nil
		}
		return unix.Mount("", onto, "", unix.MS_BIND|unix.MS_REMOUNT|flags, "")
	case "linprocfs", "procfs":
		return unix.Mount("proc", onto, "proc", flags, "")
	case "tmpfs":
		data = slices.DeleteFunc(data, func(o string) bool {
			key, _, _ := strings.Cut(o, "=")
			return !slices.Contains([]string{"size", "mode", "uid", "gid"}, key)
		})
		return unix.Mount("tmpfs", onto, "tmpfs", flags, strings.Join(data, ","))
	}
	if err := unix.Mount(kind, onto, "tmpfs", flags&^unix.MS_RDONLY, "mode=755"); err != nil {
		return err
	}
	if kind != "devfs" {
		return nil
	}
	for name, number := range devices {
		file := filepath.Join(onto, name)
		if err := unix.Mknod(file, unix.S_IFCHR|0o666, int(number)); err != nil {
			return err
		}
		if err := os.Chmod(file, 0o666); err != nil {
			return err
		}
	}
	if slices.Contains(data, "rule=path shm unhide") { // linux(4) makes it
		if err := os.Mkdir(filepath.Join(onto, "shm"), 0o755); err != nil {
			return err
		}
	}
	return os.Mkdir(filepath.Join(onto, "fd"), 0o755)
}

// unmountOne is unmount(2): EBUSY while somebody uses it, a dying jail too.
func unmountOne(w *world.World, onto string, force bool) error {
	m := w.MountOn(onto)
	if m == nil {
		return syscall.EINVAL
	}
	if holds(w, onto) || !force && shownElsewhere(w, onto) {
		return syscall.EBUSY
	}
	if m.Real {
		how := 0
		if force {
			how = unix.MNT_DETACH
		}
		if err := unmountReal(onto, how); err != nil && err != unix.EINVAL { // EINVAL: somebody else did
			return err
		}
	}
	w.DropMount(onto)
	return nil
}

// lettingGo is how long Linux may hold on to a mount whose last user has
// ended: it closes the files of the dead later, and whoever reads of them in
// /proc holds them too. FreeBSD does neither.
const lettingGo = time.Second

func unmountReal(onto string, how int) (err error) {
	for end := time.Now().Add(lettingGo); ; time.Sleep(2 * time.Millisecond) {
		if err = unix.Unmount(onto, how); err != unix.EBUSY || time.Now().After(end) {
			return err
		}
	}
}

// shownElsewhere tells that a nullfs shows something of what is mounted there.
func shownElsewhere(w *world.World, onto string) bool {
	return slices.ContainsFunc(w.Mounts, func(m world.Mount) bool {
		return m.Type == "nullfs" && strings.HasPrefix(m.From, onto+"/")
	})
}

// destination resolves a path inside a root, symbolic links included, so that
// none leads out.
func destination(root, path string) string {
	at := root
	rest := strings.Split(path, "/")
	for links := 0; len(rest) > 0; {
		part := rest[0]
		rest = rest[1:]
		switch part {
		case "", ".":
			continue
		case "..":
			if at != root {
				at = filepath.Dir(at)
			}
			continue
		}
		next := filepath.Join(at, part)
		target, err := os.Readlink(next)
		if err != nil || links > 32 {
			at = next
			continue
		}
		links++
		if filepath.IsAbs(target) {
			at = root
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return at
}

// mountAll does the mounts of a bundle, over a read-only alias of the root if
// that is asked for; the jail's path becomes that.
func (o *oci) mountAll(id string, k *container, j *world.Jail) (err error) {
	o.update(func(w *world.World) {
		for _, m := range k.Config.Mounts {
			if err = makePoint(k, m); err != nil {
				return
			}
		}
		if k.Config.Root != nil && k.Config.Root.Readonly {
			alias := filepath.Join(o.dirOf(id), "readonly_root")
			if err = os.Mkdir(alias, 0o700); err != nil {
				return
			}
			if err = mountOne(w, "nullfs", k.Root, alias, []string{"ro"}); err != nil {
				err = say("mounting "+alias, err)
				return
			}
			k.Root, j.Path = alias, alias
			k.Mounted = append(k.Mounted, alias)
		}
		for _, m := range k.Config.Mounts {
			onto := destination(k.Root, m.Destination)
			if err = mountOne(w, kindOf(m), m.Source, onto, m.Options); err != nil {
				err = say(fmt.Sprintf("mounting %s", m.Destination), err)
				break
			}
			k.Mounted = append(k.Mounted, onto)
		}
		if err != nil { // as far as it went, it is taken back
			err = errors.Join(err, o.unmountAll(w, *k))
		}
	})
	return err
}

func kindOf(m specs.Mount) string {
	if m.Type == "" || m.Type == "bind" {
		return "nullfs"
	}
	return m.Type
}

func makePoint(k *container, m specs.Mount) error {
	onto := destination(k.Root, m.Destination)
	file := false
	if kindOf(m) == "nullfs" {
		st, err := os.Stat(m.Source)
		if err != nil {
			return say("mounting "+m.Destination, err)
		}
		file = !st.IsDir()
	}
	if st, err := os.Stat(onto); err == nil {
		switch {
		case file && !st.Mode().IsRegular():
			return errors.New("destination for file mount exists and is not a file")
		case !file && !st.IsDir():
			return errors.New("destination for non-file mount exists and is not a directory")
		}
		return nil
	}
	dir := onto
	if file {
		dir = filepath.Dir(onto)
		k.Made = append(k.Made, onto)
	}
	for d := dir; d != k.Root && !exists(d); d = filepath.Dir(d) {
		k.Made = append(k.Made, d)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if file {
		return os.WriteFile(onto, nil, 0o644)
	}
	return nil
}

// unmountAll undoes mountAll: all that can be, with the first error.
func (o *oci) unmountAll(w *world.World, k container) (first error) {
	for _, onto := range slices.Backward(k.Mounted) {
		if err := unmountOne(w, onto, false); err != nil && !errors.Is(err, syscall.EINVAL) && first == nil {
			first = say("unmounting "+onto, err)
		}
	}
	if first != nil {
		return first
	}
	slices.Sort(k.Made)
	for _, path := range slices.Backward(k.Made) {
		_ = os.Remove(path) // a directory that got content since stays
	}
	return nil
}

// mount(8): -p lists, `-t TYPE [-o OPTIONS] FROM ON` mounts. Lists without -p
// leave out what ocijail mounted (MNT_IGNORE).
func mount(c *call) int {
	var kind string
	var options, rest []string
	list := false
	for i := 0; i < len(c.args); i++ {
		switch a := c.args[i]; {
		case a == "-p":
			list = true
		case (a == "-t" || a == "-o") && i+1 < len(c.args):
			i++
			if a == "-t" {
				kind = c.args[i]
			} else {
				options = append(options, strings.Split(c.args[i], ",")...)
			}
		case strings.HasPrefix(a, "-"):
			return c.fail(1, "illegal option -- %s", strings.TrimPrefix(a, "-"))
		default:
			rest = append(rest, a)
		}
	}
	exit := 0
	c.update(func(w *world.World) {
		switch {
		case list:
			for _, m := range w.Mounts {
				if kind == "" || slices.Contains(strings.Split(kind, ","), m.Type) {
					c.printf("%s%s%s%s", column(m.From, 24), column(m.On, 24), m.Type+"\t", column(m.Options, 8)+"\t0 0\n")
				}
			}
		case len(rest) == 2:
			onto, err := filepath.EvalSymlinks(rest[1])
			if err == nil {
				err = mountOne(w, kind, rest[0], onto, options)
			}
			if err != nil {
				exit = c.fail(1, "%s: %s", rest[1], words(err))
			}
		case len(rest) == 0:
			for _, m := range w.Mounts {
				if m.Type == "zfs" || m.Type == "ufs" {
					c.printf("%s on %s (%s)\n", m.From, m.On, m.Type)
				}
			}
		default:
			exit = c.fail(1, "usage: mount [-t fstype] [-o options] special node")
		}
	})
	return exit
}

// column pads as getfsent(3)'s writer does: tabs up to a width, a space where
// the text is as wide already.
func column(s string, width int) string {
	if len(s) >= width {
		return s + " "
	}
	return s + strings.Repeat("\t", (width-len(s)+7)/8)
}

// umount(8): paths or what is mounted there, -f by force.
func umount(c *call) int {
	force, exit := false, 0
	for _, a := range c.args {
		switch {
		case a == "-f":
			force = true
		case strings.HasPrefix(a, "-"):
			return c.fail(1, "illegal option -- %s", strings.TrimPrefix(a, "-"))
		default:
			c.update(func(w *world.World) {
				path := a
				if real, err := filepath.EvalSymlinks(a); err == nil {
					path = real
				}
				if w.MountOn(path) == nil {
					exit = c.fail(1, "%s: not a file system root directory", a)
				} else if err := unmountOne(w, path, force); err != nil {
					exit = c.fail(1, "unmount of %s failed: %s", a, words(err))
				}
			})
		}
	}
	return exit
}

// devfs(8): `rule -s 4 show`; rules are accepted and do nothing.
func devfs(c *call) int {
	if slices.Contains(c.args, "show") {
		if i := slices.Index(c.args, "-s"); i >= 0 && i+1 < len(c.args) && c.args[i+1] == "4" {
			c.printf("100 include 1\n200 include 2\n300 include 3\n400 path fuse unhide\n500 path zfs unhide\n")
		}
	}
	return 0
}
