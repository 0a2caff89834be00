// SPDX-License-Identifier: BSD-2-Clause

package network

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/containerd/errdefs"
)

// Attach implements Networks. When every free address of a subnet was given
// back less than ReuseDelay ago it waits for the first one, or for ctx.
func (m *Manager) Attach(ctx context.Context, containerID string, places []Place) (netns string, at []Attachment, err error) {
	if err := checkID("container", containerID); err != nil {
		return "", nil, err
	}
	defer m.byWork.lock(containerID)()
	m.stray(containerID, false)
	at, fresh, err := m.lease(ctx, containerID, places)
	if err != nil {
		return "", nil, fmt.Errorf("attach container %s: %w", containerID, err)
	}
	wires, err := m.wires(at)
	if err == nil {
		netns, err = m.links.attach(ctx, containerID, wires)
	}
	if err != nil {
		err = fmt.Errorf("attach container %s: %w", containerID, err)
		if fresh {
			// The context may be why it failed; undoing has its own time.
			undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
			defer cancel()
			err = errors.Join(err, m.detach(undo, containerID, shortPatience))
		}
		return "", nil, err
	}
	return netns, slices.Clone(at), nil
}

// Lease gives the container the addresses that Attach will use, and makes
// nothing yet: what a container is told of its network (resolv.conf, hosts) is
// written before a jail exists that could be attached. Idempotent; Detach
// gives them back.
func (m *Manager) Lease(ctx context.Context, containerID string, places []Place) ([]Attachment, error) {
	if err := checkID("container", containerID); err != nil {
		return nil, err
	}
	defer m.byWork.lock(containerID)()
	at, _, err := m.lease(ctx, containerID, places)
	if err != nil {
		return nil, fmt.Errorf("lease addresses for container %s: %w", containerID, err)
	}
	return slices.Clone(at), nil
}

// lease gives the container its addresses and writes them down, or finds those
// that it has. fresh tells that it had none.
func (m *Manager) lease(ctx context.Context, containerID string, places []Place) (at []Attachment, fresh bool, err error) {
	for {
		at, fresh, wait, err := m.tryLease(containerID, places)
		if err != nil || wait == 0 {
			return at, fresh, err
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, false, fmt.Errorf("wait for an address to be free again: %w", ctx.Err())
		}
	}
}

func (m *Manager) tryLease(containerID string, places []Place) (at []Attachment, fresh bool, wait time.Duration, err error) {
	defer m.change()()
	if at, has := m.state.Leases[containerID]; has {
		same := slices.EqualFunc(at, places, func(a Attachment, p Place) bool {
			return a.NetworkID == p.NetworkID && (!p.Addr.IsValid() || p.Addr == a.Addr.Addr())
		})
		if !same {
			return nil, false, 0, fmt.Errorf("it is attached to other networks already: %w", errdefs.ErrConflict)
		}
		return at, false, 0, nil
	}
	now := m.now()
	m.state.forget(now, m.cfg.ReuseDelay)
	taken := m.state.taken()
	cursors := make(map[string]netip.Addr)
	for i, place := range places {
		id := place.NetworkID
		n, known := m.state.Networks[id]
		if !known {
			return nil, false, 0, fmt.Errorf("network %s: %w", id, errdefs.ErrNotFound)
		}
		if _, twice := cursors[id]; twice {
			return nil, false, 0, fmt.Errorf("network %s is named twice: %w", n.Name, errdefs.ErrInvalidArgument)
		}
		addr, wait, err := m.choose(n, place, taken, now)
		if err != nil || wait > 0 {
			return nil, false, wait, err
		}
		cursors[id] = addr
		at = append(at, Attachment{
			NetworkID: id, Addr: netip.PrefixFrom(addr, n.Subnet.Bits()), Gateway: n.Gateway,
			MAC: macOf(addr), Interface: fmt.Sprintf("eth%d", i),
		})
	}
	old := make(map[string]networkRecord)
	for id, addr := range cursors {
		n := m.state.Networks[id]
		old[id] = n
		n.Cursor = addr
		m.state.Networks[id] = n
	}
	m.state.Leases[containerID] = at
	if err := m.save(); err != nil {
		delete(m.state.Leases, containerID)
		for id, n := range old {
			m.state.Networks[id] = n
		}
		return nil, false, 0, err
	}
	return at, true, 0, nil
}

// choose is the address in a network: the one that the place names, or the
// next one free.
func (m *Manager) choose(n networkRecord, place Place, taken map[netip.Addr]bool, now time.Time) (addr netip.Addr, wait time.Duration, err error) {
	switch {
	case !place.Addr.IsValid() && n.VNI == 0:
		return pick(n.Subnet, n.Cursor, taken, m.state.Released, now, m.cfg.ReuseDelay)
	case !place.Addr.IsValid():
		return netip.Addr{}, 0, fmt.Errorf("network %s is an overlay, and no address in it was given: %w", n.Name, errdefs.ErrInvalidArgument)
	case !n.Subnet.Contains(place.Addr) || place.Addr == n.Gateway:
		return netip.Addr{}, 0, fmt.Errorf("network %s: %s is no address for a container in %s: %w", n.Name, place.Addr, n.Subnet, errdefs.ErrInvalidArgument)
	case taken[place.Addr]:
		return netip.Addr{}, 0, fmt.Errorf("network %s: address %s is in use: %w", n.Name, place.Addr, errdefs.ErrConflict)
	}
	return place.Addr, 0, nil
}

// wires adds to attachments what the system needs to make them.
func (m *Manager) wires(at []Attachment) ([]wire, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []wire
	routed := false
	for _, a := range at {
		n, known := m.state.Networks[a.NetworkID]
		if !known {
			return nil, fmt.Errorf("network %s: %w", a.NetworkID, errdefs.ErrNotFound)
		}
		w := wire{Attachment: a, Bridge: n.Bridge, MTU: n.mtu(), Isolated: n.Isolated}
		if !n.Internal && !routed {
			w.Default, routed = true, true
		}
		out = append(out, w)
	}
	return out, nil
}

// Attachments implements Networks.
func (m *Manager) Attachments(containerID string) []Attachment {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.state.Leases[containerID])
}

// How long detaching waits for the kernel to let go of a link: a jail that is
// dying holds its end (facts/freebsd.md, "A dying jail"). The address stays
// taken until then, as the jail still answers to it.
const (
	patience      = 10 * time.Second // of Detach, which is called again when it failed
	shortPatience = time.Second      // where somebody waits: a failed start, the start of the daemon
)

// Detach implements Networks.
func (m *Manager) Detach(ctx context.Context, containerID string) error {
	if err := checkID("container", containerID); err != nil {
		return err
	}
	defer m.byWork.lock(containerID)()
	return m.detach(ctx, containerID, patience)
}

func (m *Manager) detach(ctx context.Context, containerID string, patience time.Duration) error {
	at := m.Attachments(containerID)
	wires := make([]wire, 0, len(at))
	for _, a := range at {
		wires = append(wires, wire{Attachment: a})
	}
	if err := m.links.detach(ctx, containerID, wires, patience); err != nil {
		return fmt.Errorf("detach container %s: %w", containerID, err)
	}
	if len(at) == 0 {
		return nil
	}
	defer m.change()()
	now := m.now()
	delete(m.state.Leases, containerID)
	for _, a := range at {
		m.state.Released[a.Addr.Addr()] = now
	}
	if err := m.save(); err != nil {
		m.state.Leases[containerID] = at
		return fmt.Errorf("detach container %s: %w", containerID, err)
	}
	return nil
}
