// SPDX-License-Identifier: BSD-2-Clause

package network

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// Repaired is one thing that somebody else had changed and that is right again.
type Repaired struct {
	What        string // "bridge satl0 of network satl0 was down"
	ContainerID string // whose link it was; "" for a bridge
}

// fault is one thing that is not as it was made; a network's or a container's.
type fault struct {
	What                   string
	NetworkID, ContainerID string
	gone                   bool // a container's link, to be made again
}

// Repair looks whether the bridges of all networks are there, up, and have
// their addresses, and whether the links of attached containers hang on them,
// and sets right what does not. It tells what it set right, also when an error
// kept it from the rest. When all is well it only lists links and addresses;
// it is meant to be called every few seconds. A link that somebody deleted is
// made again as it was, so that what goes on in the container hardly notices.
//
// What Sweep had to leave it removes as soon as the kernel lets go of it.
func (m *Manager) Repair(ctx context.Context) (done []Repaired, err error) {
	defer func() { err = errors.Join(err, m.sweepStrays(ctx)) }()
	nets := m.List()
	wires := m.leased()
	faults, err := m.links.faults(ctx, nets, wires)
	if err != nil {
		return nil, fmt.Errorf("audit networks: %w", err)
	}
	// What is being made or removed right now looks faulty as well: each is
	// looked at again when nobody else works on it. Bridges come first, as
	// links hang on them.
	networks, containers := make(map[string]bool), make(map[string]bool)
	for _, f := range faults {
		if f.ContainerID != "" {
			containers[f.ContainerID] = true
		} else {
			networks[f.NetworkID] = true
		}
	}
	var errs []error
	for _, id := range slices.Sorted(maps.Keys(networks)) {
		set, err := m.repairNetwork(ctx, id)
		done, errs = append(done, set...), append(errs, err)
	}
	if len(networks) > 0 { // links of which only the new bridge shows that they are loose
		if faults, err = m.links.faults(ctx, nil, wires); err != nil {
			return done, errors.Join(append(errs, fmt.Errorf("audit networks: %w", err))...)
		}
		for _, f := range faults {
			containers[f.ContainerID] = true
		}
	}
	for _, id := range slices.Sorted(maps.Keys(containers)) {
		set, err := m.repairContainer(ctx, id)
		done, errs = append(done, set...), append(errs, err)
	}
	return done, errors.Join(errs...)
}

// leased are the links that each container should have.
func (m *Manager) leased() map[string][]wire {
	m.mu.Lock()
	leases := maps.Clone(m.state.Leases)
	m.mu.Unlock()
	out := make(map[string][]wire, len(leases))
	for id, at := range leases {
		if wires, err := m.wires(at); err == nil { // else its network is going
			out[id] = wires
		}
	}
	return out
}

func (m *Manager) repairNetwork(ctx context.Context, id string) ([]Repaired, error) {
	defer m.byWork.lock(bridgesKey)()
	n, known := m.Get(id)
	if !known {
		return nil, nil
	}
	faults, err := m.links.faults(ctx, []Network{n}, nil)
	if err == nil && len(faults) > 0 {
		err = m.links.ensureBridge(ctx, n)
	}
	if err != nil {
		return nil, fmt.Errorf("repair bridge %s of network %s: %w", n.Bridge, n.Name, err)
	}
	return repaired(faults), nil
}

func (m *Manager) repairContainer(ctx context.Context, id string) ([]Repaired, error) {
	defer m.byWork.lock(id)()
	at := m.Attachments(id)
	if len(at) == 0 {
		return nil, nil
	}
	wires, err := m.wires(at)
	if err != nil {
		return nil, nil // its network is going
	}
	faults, err := m.links.faults(ctx, nil, map[string][]wire{id: wires})
	switch {
	case err != nil || len(faults) == 0:
	case slices.ContainsFunc(faults, func(f fault) bool { return f.gone }):
		_, err = m.links.attach(ctx, id, wires)
	default:
		err = m.links.join(ctx, id, wires)
	}
	if err != nil {
		return nil, fmt.Errorf("repair links of container %s: %w", id, err)
	}
	return repaired(faults), nil
}

func repaired(faults []fault) (out []Repaired) {
	for _, f := range faults {
		out = append(out, Repaired{What: f.What, ContainerID: f.ContainerID})
	}
	return out
}

// linkGone is the fault of a container's link that is not there.
func linkGone(name, containerID string) fault {
	return fault{What: fmt.Sprintf("link %s was gone", name), ContainerID: containerID, gone: true}
}

// bridgeIs words a fault of a bridge.
func bridgeIs(n Network, what string) fault {
	return fault{What: fmt.Sprintf("bridge %s of network %s %s", n.Bridge, n.Name, what), NetworkID: n.ID}
}
