// SPDX-License-Identifier: BSD-2-Clause

package jail

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"satld/jail/reap"
)

// What a removed jail still holds is taken away in the background, when the
// kernel has let go of it: that may be a minute later, or never
// (facts/freebsd.md, "A dying jail"). Nothing waits for it.

const (
	sweepEvery = 5 * time.Second // while something is left
	idleEvery  = 5 * time.Minute // otherwise
	// slowDeath is when an operator is told: cases/jail.md, jail-1.
	slowDeath = 120 * time.Second
)

// work: see host.
func (j *jails) work(ctx context.Context) {
	due := time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	children := make(chan os.Signal, 1)
	signal.Notify(children, syscall.SIGCHLD)
	defer signal.Stop(children)
	for {
		select {
		case <-ctx.Done():
			return
		case <-children:
			reap.Orphans()
			continue
		case <-j.nudge: // it was tried a moment ago
			if soon := time.Now().Add(sweepEvery); soon.Before(due) {
				due = soon
			}
		case <-timer.C:
			if due = time.Now().Add(idleEvery); j.sweepAll(ctx) {
				due = time.Now().Add(sweepEvery)
			}
		}
		timer.Reset(time.Until(due))
	}
}

// wake tells the background that something is left.
func (j *jails) wake() {
	select {
	case j.nudge <- struct{}{}:
	default:
	}
}

// sweepAll sweeps every removed jail and tells whether something is left.
func (j *jails) sweepAll(ctx context.Context) (left bool) {
	records, err := j.records.all()
	if err != nil {
		j.log.Warn("jails that were removed cannot be swept", "error", err)
	}
	for _, name := range slices.Sorted(maps.Keys(records)) {
		if records[name].Deleted.IsZero() {
			continue
		}
		why, err := j.sweepOne(ctx, name)
		if ctx.Err() != nil {
			return true
		}
		if err != nil {
			j.complain(name, err)
		}
		left = left || why != "" || err != nil
	}
	return left
}

// complain logs what keeps a jail from being taken away, once a minute.
func (j *jails) complain(name string, err error) {
	j.sweeping.Lock()
	defer j.sweeping.Unlock()
	if time.Since(j.complained[name]) < time.Minute {
		return
	}
	j.complained[name] = time.Now()
	j.log.Warn("jail is not taken away yet; it is tried again", "jail", name, "error", err)
}

// sweepOne takes away what is left of a removed jail that is gone, and last
// its record. It says what holds it up, if anything does.
func (j *jails) sweepOne(ctx context.Context, name string) (left string, err error) {
	j.sweeping.Lock()
	defer j.sweeping.Unlock()
	defer func() {
		if left == "" && err == nil {
			delete(j.told, name)
			delete(j.complained, name)
		}
	}()
	rec, ok, err := j.records.read(name)
	if !ok || err != nil {
		return "", err
	}
	reap.Orphans() // one that ended and was not waited for holds its jail
	all, err := j.tool.prisons(ctx)
	if err != nil {
		return "", err
	}
	p, there := find(all, name)
	if there && !p.dying {
		if _, err := j.tool(ctx, j.ending(name)...); err != nil {
			return "", err
		}
	}
	// It unmounts by force, and so what it mounted does not wait for a jail
	// that is slow to die.
	stateErr := j.deleteState(ctx, name)
	if there {
		j.tellSlow(rec, p)
		return "the jail is dying", errors.Join(stateErr, j.unmountMemory(ctx, name))
	}
	if err := j.unmount(ctx, name, rec); err != nil {
		return "", err
	}
	if err := j.unmountMemory(ctx, name); err != nil {
		return "", err
	}
	if stateErr != nil {
		// What it was to do is done: nothing is mounted any more.
		if err := j.dropState(name); err != nil {
			return "", errors.Join(stateErr, err)
		}
		j.log.Warn("ocijail could not delete a container; its state was removed", "jail", name, "error", stateErr)
	}
	if rec.Limits {
		if err := j.tool.removeLimits(ctx, name); err != nil {
			return "", err
		}
	}
	return "", j.records.remove(name)
}

// tellSlow tells the operator, once, of a jail that does not finish dying.
func (j *jails) tellSlow(rec jailRecord, p prison) {
	if time.Since(rec.Deleted) > slowDeath && !j.told[p.name] {
		j.told[p.name] = true
		j.log.Warn("a jail does not finish dying and holds its root; a connection of it may be open, or this kernel does not let go of it",
			"jail", p.name, "jid", p.jid, "path", p.path, "since", rec.Deleted)
	}
}

// unmount undoes the mounts below a jail's root, deepest first. A root that a
// later run of the same container uses is that one's to clear.
func (j *jails) unmount(ctx context.Context, name string, rec jailRecord) error {
	mounts, err := j.tool.mounts(ctx)
	if err != nil {
		return err
	}
	records, err := j.records.all()
	if err != nil {
		return err
	}
	points := pointsBelow(mounts, filepath.Join(j.driver.root, name))
	if !inUse(records, name, rec.Rootfs) {
		points = append(points, pointsBelow(mounts, rec.Rootfs)...)
	}
	return j.unmountAll(ctx, points)
}

// inUse tells whether another jail than the named one has that root.
func inUse(records map[string]jailRecord, name, rootfs string) bool {
	for other, r := range records {
		if other != name && r.Rootfs == rootfs && r.Deleted.IsZero() {
			return true
		}
	}
	return false
}

// unmountAll unmounts without force, so that nobody loses a file that is open
// below: what is busy is named in the error, and the next try is later.
func (j *jails) unmountAll(ctx context.Context, points []string) error {
	var busy []string
	var errs []error
	for _, p := range points {
		if _, err := j.tool(ctx, "umount", p); err != nil {
			busy, errs = append(busy, p), append(errs, err)
		}
	}
	if len(busy) > 0 {
		return fmt.Errorf("still mounted: %s: %w", strings.Join(busy, ", "), errors.Join(errs...))
	}
	return nil
}

// lingers: see Manager.
func (j *jails) lingers(ctx context.Context, id string) (bool, error) {
	rec, known, err := j.records.read(id)
	if err != nil {
		return false, err
	}
	if !known || rec.Deleted.IsZero() {
		all, err := j.tool.prisons(ctx)
		if err != nil {
			return false, err
		}
		p, there := find(all, id)
		return there && (known || j.inside(p.path)), nil
	}
	left, err := j.sweepOne(ctx, id)
	if ctx.Err() != nil {
		return true, err
	}
	if err != nil { // something of it is there, and the log says what is wrong
		j.complain(id, err)
	}
	return left != "" || err != nil, nil
}

// dying: see Manager.
func (j *jails) dying(ctx context.Context) ([]DyingJail, error) {
	records, err := j.records.all()
	if err != nil {
		return nil, err
	}
	all, err := j.tool.prisons(ctx)
	if err != nil {
		return nil, err
	}
	var out []DyingJail
	for _, p := range all {
		if r, ok := records[p.name]; ok && p.dying {
			out = append(out, DyingJail{Name: p.name, Since: r.Deleted})
		}
	}
	return out, nil
}
