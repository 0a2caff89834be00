// SPDX-License-Identifier: BSD-2-Clause

package network

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
)

// carrier is the interface that the tunnels of overlay networks go out by, as
// far as its MTU goes.
type carrier struct {
	mu sync.Mutex
	// room is the MTU that it leaves for overlay networks; 0 is not known.
	room int
	// done: all there is has that MTU. A new daemon looks for itself.
	done bool
}

// mtu is what a new overlay network begins with.
func (c *carrier) mtu() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.room
}

// set notes what the carrier leaves, and tells whether there is anything to do.
func (c *carrier) set(room int) (todo bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.room != room {
		c.room, c.done = room, false
	}
	return !c.done
}

func (c *carrier) finish() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.done = true
}

// roomOf is the MTU that is left of a carrier's.
func roomOf(carrier int) int { return min(max(carrier-vxlanHeaders, leastMTU), mostMTU) }

// followCarrier brings the overlay networks, and what is in them, to the MTU
// that the interface with the local address leaves. Where there is no such
// interface, or it leads nowhere, they stay as they are. The caller has the
// turn on bridges.
func (m *Manager) followCarrier(ctx context.Context, local netip.Addr) error {
	mtu, err := m.links.carrierMTU(ctx, local)
	if err != nil {
		return fmt.Errorf("MTU of the interface with %s: %w", local, err)
	}
	if mtu == 0 || !m.carrying.set(roomOf(mtu)) {
		return nil
	}
	room := roomOf(mtu)
	var errs []error
	for _, n := range m.List() {
		if n.VNI == 0 {
			continue
		}
		if err := m.resize(ctx, n, room); err != nil {
			errs = append(errs, fmt.Errorf("set the MTU of network %s to %d: %w", n.Name, room, err))
		}
	}
	if len(errs) == 0 {
		m.carrying.finish()
	}
	return errors.Join(errs...)
}

// resize gives a network, and each container in it, an MTU. It is written down
// and the bridge has it first, so that whatever is attached from here on does.
func (m *Manager) resize(ctx context.Context, n Network, mtu int) error {
	if n.mtu() != mtu {
		m.log.Info("the MTU of an overlay network follows the interface that carries it", "network", n.Name, "mtu", mtu, "before", n.mtu())
	}
	if n.MTU != mtu {
		n.MTU = mtu
		m.mu.Lock()
		old, known := m.state.Networks[n.ID]
		m.mu.Unlock()
		if !known {
			return nil
		}
		if err := m.keep(n, old, true); err != nil {
			return err
		}
	}
	if err := m.links.ensureBridge(ctx, n); err != nil {
		return err
	}
	var errs []error
	for _, id := range m.attachedTo(n.ID) {
		errs = append(errs, m.resizeContainer(ctx, id, n.ID))
	}
	return errors.Join(errs...)
}

// attachedTo are the containers with an address in a network.
func (m *Manager) attachedTo(networkID string) (ids []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, at := range m.state.Leases {
		if slices.ContainsFunc(at, func(a Attachment) bool { return a.NetworkID == networkID }) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

func (m *Manager) resizeContainer(ctx context.Context, id, networkID string) error {
	defer m.byWork.lock(id)()
	wires, err := m.wires(m.Attachments(id))
	if err != nil {
		return nil // its network is going
	}
	wires = slices.DeleteFunc(wires, func(w wire) bool { return w.NetworkID != networkID })
	if err := m.links.resize(ctx, id, wires); err != nil {
		return fmt.Errorf("container %s: %w", id, err)
	}
	return nil
}
