// SPDX-License-Identifier: BSD-2-Clause

package jail

import (
	"context"
	"time"
)

// host is what a system has to be done for a container besides the runtime's
// commands: control groups on Linux, jails on FreeBSD.
type host interface {
	// begin is called before the runtime makes the container: it refuses what
	// cannot be made, and notes what end will need.
	begin(ctx context.Context, spec Spec) error
	// creating is called before the runtime makes the container, and what it
	// returns when that is over, whatever came of it.
	creating() (done func())
	// made is called when the container exists and its first process waits.
	made(ctx context.Context, spec Spec) error
	// mountMemory mounts at dir an empty file system that is in memory, for
	// files of size bytes, which only we can look into.
	mountMemory(ctx context.Context, dir string, size int64) error
	// sealMemory is called when its files are written and the container has
	// mounts of them, so that it need not stay mounted where these keep it.
	// What stays is taken away by end.
	sealMemory(ctx context.Context, dir string) error
	// ending is the command that ends what the first process leaves behind,
	// nil where the kernel does that.
	ending(id string) []string
	// end is called when the first process is gone: it returns when no other
	// process of the container is left, and takes away what the runtime made.
	// It can be called again after a failure or crash at any step.
	end(ctx context.Context, id string) error
	// pids lists the container's processes.
	pids(ctx context.Context, id string) ([]int, error)
	frozen(pid int) bool
	thaw(pid int) error
	// lingers, dying, warnings: see Manager.
	lingers(ctx context.Context, id string) (bool, error)
	dying(ctx context.Context) ([]DyingJail, error)
	warnings() []string
	// reconcile is called once, before anything else, and removes what a crash
	// left that no container accounts for.
	reconcile(ctx context.Context)
	// work does what is to be done in the background until ctx is done.
	work(ctx context.Context)
	close()
}

// DyingJail is a jail that was removed and is not gone: an open connection, a
// process or a reference in the kernel holds it, and it holds its root.
type DyingJail struct {
	Name  string
	Since time.Time // when its removal began
}

// Lingers tells whether there still is a jail of that name, alive or dying, or
// a mount below its root that its run made: as long as there is, the root can
// neither be unmounted nor destroyed. It may be asked for a container that was
// forgotten, and does again what is left to be done. On Linux nothing lingers.
func (m *Manager) Lingers(ctx context.Context, id string) (bool, error) {
	if err := checkID(id); err != nil {
		return false, err
	}
	return m.host.lingers(ctx, id)
}

// Dying lists the jails of containers that were deleted and are not gone.
func (m *Manager) Dying(ctx context.Context) ([]DyingJail, error) { return m.host.dying(ctx) }

// Warnings says, in words for `docker info`, what this system accepts and does
// not do.
func (m *Manager) Warnings() []string { return m.host.warnings() }

// JailName is the name of a container's jail, for the tools that configure it
// from outside; "" where containers are no jails.
func (m *Manager) JailName(id string) string {
	if _, ok := m.host.(*jails); ok {
		return id
	}
	return ""
}
