// SPDX-License-Identifier: BSD-2-Clause

package network

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/containerd/errdefs"
)

// Sweep implements Networks. Besides leases it finds links and namespaces that
// bear our mark and that no lease names. It is for the start of the daemon: a
// container that is being attached meanwhile and that keep does not name goes.
// What the kernel does not let go of yet is left to Repair.
func (m *Manager) Sweep(ctx context.Context, keep map[string]bool) error {
	gone := make(map[string]bool)
	m.mu.Lock()
	for id := range m.state.Leases {
		gone[id] = !keep[id]
	}
	m.mu.Unlock()
	found, err := m.links.owned(ctx)
	if err != nil {
		return fmt.Errorf("sweep networks: %w", err)
	}
	for _, l := range found {
		switch l.Kind {
		case "c":
			gone[l.ID] = !keep[l.ID]
		case "":
			err = errors.Join(err, m.links.deleteLink(ctx, l.Name))
		}
	}
	for id, sweep := range gone {
		if sweep {
			err = errors.Join(err, m.sweep(ctx, id))
		}
	}
	if err != nil {
		return fmt.Errorf("sweep networks: %w", err)
	}
	return nil
}

// sweep detaches a container that nobody owns, or remembers to.
func (m *Manager) sweep(ctx context.Context, containerID string) error {
	defer m.byWork.lock(containerID)()
	err := m.detach(ctx, containerID, shortPatience)
	m.stray(containerID, err != nil)
	return err
}

func (m *Manager) stray(containerID string, is bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if is {
		m.strays[containerID] = true
	} else {
		delete(m.strays, containerID)
	}
}

// sweepStrays tries again what Sweep left. That a link is still held is no
// error: it may be so for a minute, and on some kernels for good.
func (m *Manager) sweepStrays(ctx context.Context) error {
	m.mu.Lock()
	ids := slices.Sorted(maps.Keys(m.strays))
	m.mu.Unlock()
	var errs []error
	for _, id := range ids {
		unlock := m.byWork.lock(id)
		err := m.detach(ctx, id, 0)
		m.stray(id, err != nil)
		unlock()
		if err != nil && !errdefs.IsUnavailable(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
