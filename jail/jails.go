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
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/containerd/errdefs"

	"satld/jail/reap"
	"satld/jail/shim"
)

// jails is the host that FreeBSD is: it removes jails for good, takes away
// what they leave, and sets what their bundles cannot say. Everything it does
// is a command; that a jail dies slowly is dealt with in sweep.go.
type jails struct {
	layout  shim.Dir
	records jailRecords
	driver  ocijail
	roots   string // the directory of the containers' roots: ROOTS/ID/rootfs
	// memories is the directory of the file systems that hold containers' files.
	memories string
	tool     tool
	log      *slog.Logger
	counts   bool // rctl(4) works
	// closeSoon shortens in a jail how long its closed connections linger.
	closeSoon func(ctx context.Context, jid int) error

	sweeping   sync.Mutex           // one sweep at a time; guards:
	told       map[string]bool      // by jail: that it is slow to die
	complained map[string]time.Time // by jail: what keeps it from being taken away, when
	nudge      chan struct{}        // something is left
}

// newJails prepares the host. daemonDir is the daemon's state directory.
func newJails(ctx context.Context, cfg Config, layout shim.Dir, driver ocijail, daemonDir, memories string) (*jails, error) {
	j := &jails{
		layout: layout, records: jailRecords{dir: filepath.Join(string(layout), "jails")}, driver: driver,
		memories: memories, tool: runTool, log: cfg.Logger, told: make(map[string]bool), complained: make(map[string]time.Time), nudge: make(chan struct{}, 1),
	}
	j.closeSoon = func(ctx context.Context, jid int) error { return closeSoonIn(ctx, cfg, jid) }
	if err := os.MkdirAll(j.records.dir, 0o700); err != nil {
		return nil, fmt.Errorf("make state directory: %w", err)
	}
	// What the kernel tells of mounts and jails are real paths.
	real, err := filepath.EvalSymlinks(daemonDir)
	if err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	j.roots = filepath.Join(real, "containers")
	j.counts = j.tool.countsResources(ctx)
	return j, nil
}

func (j *jails) creating() (done func()) { return func() {} }

func (j *jails) warnings() []string {
	if j.counts {
		return nil
	}
	return []string{noLimits}
}

// begin: see host. A name is never used while the kernel has a jail of it: a
// dying one cannot be attached to, and is found in place of the new one by
// whoever asks by name.
func (j *jails) begin(ctx context.Context, spec Spec) error {
	if spec.OS == "linux" {
		if err := j.tool.runsLinux(ctx); err != nil {
			return err
		}
	}
	all, err := j.tool.prisons(ctx)
	if err != nil {
		return fmt.Errorf("look for a jail named %s: %w", spec.ID, err)
	}
	if p, ok := find(all, spec.ID); ok {
		state := "alive"
		if p.dying {
			state = "dying"
		}
		return errdefs.ErrConflict.WithMessage(fmt.Sprintf("jail %s is still there, %s: the name of a jail is not used twice", spec.ID, state))
	}
	if err := makeCwd(spec.Rootfs, spec.Cwd); err != nil {
		return err
	}
	for _, f := range spec.Files {
		// For all to look into; ocijail makes what is missing with its own umask.
		if err := makeCwd(spec.Rootfs, filepath.Dir(f.Target)); err != nil {
			return err
		}
	}
	rootfs, err := filepath.EvalSymlinks(spec.Rootfs)
	if err != nil {
		return fmt.Errorf("root of container %s: %w", spec.ID, err)
	}
	limits := j.counts && len(limitRules(spec.ID, spec)) > 0
	return j.records.write(spec.ID, jailRecord{Rootfs: rootfs, Limits: limits})
}

// makeCwd makes the working directory in a root where it is missing, as Docker
// does. It never leaves the root.
func makeCwd(rootfs, cwd string) error {
	rel := strings.TrimPrefix(filepath.Clean("/"+cwd), "/")
	if rel == "" {
		return nil
	}
	root, err := os.OpenRoot(rootfs)
	if err != nil {
		return fmt.Errorf("make the working directory: %w", err)
	}
	defer root.Close()
	// Through an absolute link it cannot be seen from here; then it is for the
	// command to find.
	if _, err := root.Stat(rel); !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := root.MkdirAll(rel, 0o755); err != nil {
		return fmt.Errorf("make the working directory %s: %w", cwd, err)
	}
	return nil
}

// made: see host.
func (j *jails) made(ctx context.Context, spec Spec) error {
	if j.counts {
		if err := j.tool.addLimits(ctx, limitRules(spec.ID, spec)); err != nil {
			return fmt.Errorf("container %s: %w", spec.ID, err)
		}
	}
	if err := j.filesMounted(ctx, spec); err != nil {
		return err
	}
	if spec.HostNetwork {
		return nil
	}
	all, err := j.tool.prisons(ctx)
	if err != nil {
		return fmt.Errorf("look for the jail %s: %w", spec.ID, err)
	}
	p, ok := find(all, spec.ID)
	if !ok || p.dying {
		return fmt.Errorf("jail %s was made and is not there", spec.ID)
	}
	if err := j.closeSoon(ctx, p.jid); err != nil {
		j.log.Warn("the jail will take a minute to die while it has connections", "task_id", spec.TaskID, "jail", spec.ID, "error", err)
	}
	return nil
}

// ending: see host. Without a configuration file there is no other way to say
// "now" (jail(8)): -r gives the processes stop.timeout seconds.
func (j *jails) ending(id string) []string { return []string{"jail", "-R", id} }

// end: see host.
func (j *jails) end(ctx context.Context, id string) error {
	rec, known, err := j.records.read(id)
	if err != nil {
		return err
	}
	if !known { // it was lost; ocijail may know
		if rec.Rootfs, known = j.stateOf(id).root(); known {
			rec.Limits = j.counts
		}
	}
	if known && rec.Deleted.IsZero() {
		j.records.delete(id, rec, j.log)
	}
	if err := j.endUnheld(id); err != nil {
		return err
	}
	if err := j.endProcesses(ctx, id, known); err != nil {
		return err
	}
	if !known {
		return j.dropState(id)
	}
	left, err := j.sweepOne(ctx, id)
	if err != nil {
		j.complain(id, err)
	}
	if err != nil || left != "" {
		j.wake()
	}
	return nil
}

// endUnheld kills a first process that the shim never came to hold: one forked
// by a create that was killed itself, which waits for that and is not in the
// jail yet. Its pid was written down; by its name and age it is told from
// another process that has its number now.
func (j *jails) endUnheld(id string) error {
	if _, held, err := j.layout.ReadInit(id); held || err != nil && !errors.Is(err, shim.ErrDamaged) {
		return err
	}
	path := filepath.Join(j.layout.Container(id), pidFile)
	st, err := os.Stat(path)
	if err != nil {
		return nil // nothing was forked
	}
	pid, err := shim.ReadPid(path)
	if err != nil {
		return nil // nor was this finished, so that the runtime was still at work
	}
	began, err := shim.StartTime(pid)
	if err != nil || shim.Comm(pid) != commOf(j.driver.path) || began.After(st.ModTime().Add(time.Second)) {
		return nil
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("kill the process %d that was to be container %s's first: %w", pid, id, err)
	}
	return nil
}

// commOf is what shim.Comm tells of a process that runs the program at path.
func commOf(path string) string {
	name := filepath.Base(path)
	return name[:min(len(name), shim.CommMax)]
}

// endProcesses removes the jail and returns when no process of it is left. The
// kernel kills them all at once and counts a jail alive as long as there is one.
func (j *jails) endProcesses(ctx context.Context, id string, ours bool) error {
	var removal error
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, 250*time.Millisecond) {
		reap.Orphans()
		all, err := j.tool.prisons(ctx)
		if err != nil {
			return fmt.Errorf("delete container %s: %w", id, err)
		}
		p, there := find(all, id)
		if !there || !ours && !j.inside(p.path) {
			return nil
		}
		if !p.dying {
			if _, removal = j.tool(ctx, j.ending(id)...); removal == nil {
				continue
			}
		}
		pids, err := j.tool.processes(ctx, p.jid)
		if err != nil {
			return fmt.Errorf("delete container %s: %w", id, err)
		}
		if p.dying && len(pids) == 0 {
			return nil
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return fmt.Errorf("remove jail %s, with processes %v: %w", id, pids, errors.Join(ctx.Err(), removal))
		}
	}
}

// inside tells whether a jail's path is one of ours: a container's root, or
// the read-only view of one that ocijail makes.
func (j *jails) inside(path string) bool {
	return strings.HasPrefix(path, j.roots+"/") || strings.HasPrefix(path, j.driver.root+"/")
}

// pids: see host.
func (j *jails) pids(ctx context.Context, id string) ([]int, error) {
	all, err := j.tool.prisons(ctx)
	if err != nil {
		return nil, err
	}
	p, ok := find(all, id)
	if !ok {
		return nil, fmt.Errorf("there is no jail %s", id)
	}
	return j.tool.processes(ctx, p.jid)
}

func (j *jails) frozen(int) bool { return false } // there is no freezer
func (j *jails) thaw(int) error  { return nil }
func (j *jails) close()          {}
