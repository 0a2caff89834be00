// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"satld/internal/fakefreebsd/world"
)

// What the kernel does with prisons: jail_set(2), jail_remove(2), and death.

// rootOf is by what a jail's processes are known: they are chrooted there and
// cannot leave.
func rootOf(path string) (dev, ino uint64, err error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return 0, 0, err
	}
	return st.Dev, st.Ino, nil
}

// allProcesses are the pids of this machine, in order.
func allProcesses() (pids []int) {
	entries, _ := filepath.Glob("/proc/[0-9]*")
	for _, e := range entries {
		if pid, err := strconv.Atoi(filepath.Base(e)); err == nil {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return pids
}

// jailOf is the jail that a process is in, nil for the host.
func jailOf(w *world.World, pid int) *world.Jail {
	dev, ino, err := rootOf(fmt.Sprintf("/proc/%d/root", pid))
	if err != nil {
		return nil
	}
	for _, j := range w.Jails {
		if j.RootDev == dev && j.RootIno == ino {
			return j
		}
	}
	return nil
}

// processes of a jail; zombies are none.
func processes(j *world.Jail) (pids []int) {
	only := &world.World{Jails: []*world.Jail{j}}
	for _, pid := range allProcesses() {
		if jailOf(only, pid) != nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// killAll kills every process of a jail and waits until none is left: one that
// ends lets go of its root first, and of what it had open last.
func killAll(j *world.Jail) error {
	seen := make(map[int]bool)
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		pids := processes(j)
		for _, pid := range pids {
			seen[pid] = true
			_ = syscall.Kill(pid, syscall.SIGKILL) // ESRCH: it is gone
		}
		for pid := range seen {
			if zombie(pid) {
				delete(seen, pid)
			}
		}
		if len(seen) == 0 {
			return nil
		}
	}
	return fmt.Errorf("processes of jail %s do not end: %v", j.Name, processes(j))
}

// remove is jail_remove(2): it kills, and returns before the jail is gone.
func (c *call) remove(w *world.World, j *world.Jail) error {
	if err := killAll(j); err != nil {
		return err
	}
	wait := w.Knobs.Dying
	if msl, err := strconv.Atoi(j.Sysctls["net.inet.tcp.msl"]); err == nil && wait > 0 {
		wait = min(wait, 2*time.Duration(msl)*time.Millisecond)
	}
	switch {
	case wait == 0:
		return c.bury(w, j)
	case wait > 0:
		j.GoneAt = time.Now().Add(wait)
	}
	j.Dying = true
	return nil
}

// pass lets what was to happen by now happen: dying jails go.
func (c *call) pass(w *world.World) {
	for _, j := range slices.Clone(w.Jails) {
		if j.Dying && !j.GoneAt.IsZero() && time.Now().After(j.GoneAt) {
			if err := c.bury(w, j); err != nil {
				w.Wrong("bury jail %s: %v", j.Name, err)
			}
		}
	}
}

// bury ends a jail for good: the interfaces in its VNET return to the host
// under the names they have (if_vmove(9) asks nobody whether those are free).
func (c *call) bury(w *world.World, j *world.Jail) error {
	for _, l := range slices.Clone(w.Links) {
		if l.Jail != j.Name {
			continue
		}
		if l.Kind == "lo" {
			w.Links = slices.DeleteFunc(w.Links, func(o *world.Link) bool { return o == l })
			continue
		}
		if w.Link("", l.Name) != nil {
			w.Wrong("jail %s is gone and its interface %s returns to a host that has one of this name", j.Name, l.Name)
			other := fmt.Sprintf("twin%d", l.Index)
			if err := plumb(w).rename(w, l, other); err != nil {
				return err
			}
			l.Name = other
		}
		if err := plumb(w).home(w, l); err != nil {
			return err
		}
		l.Jail, l.Inet, l.Up = "", nil, false
	}
	w.Routes = slices.DeleteFunc(w.Routes, func(r world.Route) bool { return r.Jail == j.Name })
	w.Jails = slices.DeleteFunc(w.Jails, func(o *world.Jail) bool { return o == j })
	if j.NetNS == "" {
		return nil
	}
	// It was not pinned if create was killed in between.
	if err := unix.Unmount(j.NetNS, unix.MNT_DETACH); err != nil && err != unix.ENOENT && err != unix.EINVAL {
		return fmt.Errorf("let go of the VNET of jail %s: %w", j.Name, err)
	}
	return os.RemoveAll(j.NetNS)
}

// holds tells whether a dying jail still holds the file system that its root
// is on: what is mounted on path, as far as the root is below it.
func holds(w *world.World, path string) bool {
	return slices.ContainsFunc(w.Jails, func(j *world.Jail) bool {
		return j.Dying && on(w, j.Path) == path
	})
}

// on is the mount point that a path lies on, "" when none of ours is.
func on(w *world.World, path string) (best string) {
	for _, m := range w.Mounts {
		if (path == m.On || strings.HasPrefix(path, m.On+"/")) && len(m.On) > len(best) {
			best = m.On
		}
	}
	return best
}
