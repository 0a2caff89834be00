// SPDX-License-Identifier: BSD-2-Clause

package jail

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"satld/jail/cgroup"
)

// groups is the host that Linux is: what a container needs besides the runtime
// is its control groups.
type groups struct {
	driver   runc
	memories string // the directory of the file systems that hold containers' files
	log      *slog.Logger
}

func (groups) begin(context.Context, Spec) error             { return nil }
func (groups) made(context.Context, Spec) error              { return nil }
func (groups) ending(string) []string                        { return nil } // the kernel ends a PID namespace with its first process
func (groups) lingers(context.Context, string) (bool, error) { return false, nil }
func (groups) dying(context.Context) ([]DyingJail, error)    { return nil, nil }
func (groups) work(context.Context)                          {}
func (groups) close()                                        { removeParents(cgroupParent) }

// warnings tells that there are no control groups, without which nothing starts.
func (groups) warnings() []string {
	if missing := cgroup.Missing(); missing != "" {
		return []string{missing}
	}
	return nil
}

// end: see host.
func (g groups) end(ctx context.Context, id string) error {
	state := filepath.Join(g.driver.root, id)
	var refused error
	if _, err := os.Lstat(state); err == nil {
		if refused = run(ctx, g.driver.remove(id)); refused != nil && ctx.Err() != nil {
			return fmt.Errorf("delete container %s: %w", id, refused)
		}
	}
	if err := sweep(ctx, id); err != nil {
		return fmt.Errorf("delete container %s: %w", id, errors.Join(err, refused))
	}
	if refused != nil {
		// No process is left and no group, and with them went its mounts: what
		// the runtime wrote down, which may be damaged, is of no more use.
		if err := os.RemoveAll(state); err != nil {
			return fmt.Errorf("delete container %s: %w", id, errors.Join(err, refused))
		}
		g.log.Warn("runc could not delete a container; it was ended without it, and its state removed", "container", id, "error", refused)
	}
	if err := g.unmountMemory(filepath.Join(g.memories, id)); err != nil {
		return fmt.Errorf("delete container %s: %w", id, err)
	}
	return nil
}

// freezers are the files that say whether a process's groups are frozen, with
// the words for yes and no.
func freezers(pid int) (files [][3]string) {
	groups, err := cgroup.Of(pid)
	if err != nil {
		return nil // gone
	}
	for _, g := range groups {
		switch {
		case g.Has("freezer"):
			files = append(files, [3]string{filepath.Join(g.Dir, "freezer.state"), "FROZEN", "THAWED"})
		case g.V2():
			files = append(files, [3]string{filepath.Join(g.Dir, "cgroup.freeze"), "1", "0"})
		}
	}
	return files
}

// frozen tells whether the container whose first process is pid is paused, or
// on the way there.
func (groups) frozen(pid int) bool {
	for _, f := range freezers(pid) {
		if b, err := os.ReadFile(f[0]); err == nil && (strings.HasPrefix(string(b), f[1]) || strings.HasPrefix(string(b), "FREEZING")) {
			return true
		}
	}
	return false
}

// thaw lets a paused container's processes run, so that they can die.
func (groups) thaw(pid int) error {
	for _, f := range freezers(pid) {
		if b, err := os.ReadFile(f[0]); err != nil || strings.HasPrefix(string(b), f[2]) {
			continue
		}
		if err := os.WriteFile(f[0], []byte(f[2]), 0); err != nil {
			return err
		}
	}
	return nil
}

// pids lists the processes of the container. It goes by the groups' names,
// not by those that the kernel tells for the first process: an ended one is
// told to be in the root group of v1, which is the whole machine.
func (groups) pids(_ context.Context, id string) ([]int, error) {
	dirs, err := cgroup.At(cgroupParent + "/" + id)
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, dir := range dirs {
		more, err := cgroup.Procs(dir)
		if err != nil {
			return nil, err
		}
		pids = append(pids, more...)
	}
	slices.Sort(pids)
	return slices.Compact(pids), nil
}

// sweep removes what the runtime left of a container's control groups: there
// is nothing, except after a crash inside the runtime's create or delete.
func sweep(ctx context.Context, id string) error {
	dirs, err := cgroup.At(cgroupParent + "/" + id)
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		for wait := time.Millisecond; ; wait = min(2*wait, 100*time.Millisecond) {
			if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
				break
			}
			pids, err := cgroup.Procs(dir)
			if err != nil {
				return err
			}
			for _, pid := range pids {
				syscall.Kill(pid, syscall.SIGKILL)
			}
			if err := removeGroups(dir); err == nil {
				break
			}
			select {
			case <-time.After(wait):
			case <-ctx.Done():
				return fmt.Errorf("remove cgroup %s, with processes %v: %w", dir, pids, ctx.Err())
			}
		}
	}
	return nil
}

// removeGroups removes a group and those below it, the lowest first.
func removeGroups(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeGroups(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	if err := unix.Rmdir(dir); err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	return nil
}

// creating: see host. The runtime makes a container's groups in two steps, the
// parents first, and no daemon may take these away in between. Where they
// cannot be kept there are no groups, and the runtime says so.
func (groups) creating() (done func()) {
	keep, err := lockParents(unix.LOCK_SH)
	if err != nil {
		return func() {}
	}
	return func() { keep.Close() }
}

// lockParents takes the lock on the parents of containers' groups, which all
// daemons of the machine know: on the mount point of a hierarchy. Closing the
// file gives it back.
func lockParents(how int) (*os.File, error) {
	roots, err := cgroup.At("/")
	if err != nil {
		return nil, err
	}
	if len(roots) == 0 {
		return nil, fs.ErrNotExist
	}
	f, err := os.Open(slices.Min(roots))
	if err != nil {
		return nil, err
	}
	for err = unix.EINTR; errors.Is(err, unix.EINTR); {
		err = unix.Flock(int(f.Fd()), how)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// removeParents removes the groups that held the containers', unless a daemon
// still uses them or is about to.
func removeParents(parent string) {
	dirs, err := cgroup.At(parent)
	if err != nil {
		return
	}
	lock, err := lockParents(unix.LOCK_EX | unix.LOCK_NB)
	if err != nil {
		return
	}
	defer lock.Close()
	for _, dir := range dirs {
		unix.Rmdir(dir) // fails when not empty
	}
}
