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
		m.setPaused(id, true)
		if err := m.probes.abort(ctx, id); err != nil {
			m.setPaused(id, false)
			return fmt.Errorf("pause container %s: %w", id, err)
		}
	}
	if err := run(ctx, argv); err != nil {
		m.setPaused(id, !pause)
		return fmt.Errorf("freeze or thaw container %s: %w", id, err)
	}
	m.setPaused(id, pause)
	return nil
}

func (m *Manager) setPaused(id string, paused bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if paused {
		m.paused[id] = true
	} else {
		delete(m.paused, id)
	}
}

func (m *Manager) isPaused(id string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.paused[id]
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
	init, live, err := m.live(id)
	if err != nil {
		return nil, err
	}
	if !live {
		return nil, notRunning(id)
	}
	pids, err := pidsOf(ctx, id, init.Pid)
	if err != nil {
		return nil, fmt.Errorf("list the processes of container %s: %w", id, err)
	}
	return pids, nil
}
