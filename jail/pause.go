// SPDX-License-Identifier: BSD-2-Clause

package jail

import (
	"context"
	"fmt"
)

// Pause stops all processes of a container where they are. A probe in flight
// is killed first: a frozen one could not be.
func (m *Manager) Pause(ctx context.Context, id string) error {
	return m.freeze(ctx, id, true)
}

// Resume undoes Pause.
func (m *Manager) Resume(ctx context.Context, id string) error {
	return m.freeze(ctx, id, false)
}

func (m *Manager) freeze(ctx context.Context, id string, pause bool) error {
	if err := checkID(id); err != nil {
		return err
	}
	argv := m.driver.resume(id)
	if pause {
		argv = m.driver.pause(id)
	}
	if argv == nil {
		return unsupported("pausing a container is not supported here: jails have no freezer")
	}
	release, err := m.takeTurn(ctx, id)
	if err != nil {
		return err
	}
	defer release()
	if err := m.mustRun(ctx, id); err != nil {
		return err
	}
	if pause {
		// Kept only until the kernel says the same: no probe begins in between.
		defer m.pausing.add(id)()
		if err := m.attempts.abort(ctx, id); err != nil {
			return fmt.Errorf("pause container %s: %w", id, err)
		}
	}
	// The v1 freezer can miss a process that is being forked; runc gives up
	// after a short time, thaws and says so.
	for try := 1; ; try++ {
		if err = run(ctx, argv); err == nil {
			return nil
		}
		if try == freezeTries || ctx.Err() != nil || m.mustRun(ctx, id) != nil {
			return fmt.Errorf("freeze or thaw container %s: %w", id, err)
		}
	}
}

const freezeTries = 5

// mustNotPause is Docker's conflict for a paused container.
func (m *Manager) mustNotPause(id string) error {
	pausing := m.pausing.has(id)
	if !pausing {
		init, ok, err := m.dir.ReadInit(id)
		if err != nil || !ok {
			return err
		}
		pausing = m.host.frozen(init.Pid)
	}
	if pausing {
		return errPaused(id)
	}
	return nil
}

// mustRun is Docker's conflict for a container that does not run.
func (m *Manager) mustRun(ctx context.Context, id string) error {
	_, running, err := m.Running(ctx, id)
	if err != nil {
		return err
	}
	if !running {
		return notRunning(id)
	}
	return nil
}

// Pids: see Runtime.
func (m *Manager) Pids(ctx context.Context, id string) ([]int, error) {
	if err := checkID(id); err != nil {
		return nil, err
	}
	_, live, err := m.live(id)
	if err != nil {
		return nil, err
	}
	if !live {
		return nil, notRunning(id)
	}
	pids, err := m.host.pids(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("list the processes of container %s: %w", id, err)
	}
	return pids, nil
}
