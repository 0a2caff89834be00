// SPDX-License-Identifier: BSD-2-Clause

package traffic

import (
	"context"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// tasksPrefix heads the name that lists the tasks of a service one by one,
// as Docker's swarm has it.
const tasksPrefix = "tasks."

// shortID is how many characters of a container's ID name it.
const shortID = 12

// Lookup implements dns.Names. Names and who answers to them:
//
//	SERVICE, an alias         the members that serve, or what it fails open to
//	tasks.SERVICE or .ALIAS   the same; with NotReadyNames the starting ones too
//	CONTAINER, SERVICE.SLOT,
//	the ID's first 12         that container while its process runs
//
// A service's name goes before an alias and that before a container's. An
// asker that is no member, as the host, sees every network.
func (t *Table) Lookup(asker netip.Addr, name string) (addrs []netip.Addr, known bool) {
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	addrs, seen, known := t.lookup(asker, name)
	if known || t.cfg.Known == nil {
		return addrs, known
	}
	networks, exists := t.cfg.Known(strings.TrimPrefix(name, tasksPrefix))
	return nil, exists && (seen == nil || slices.ContainsFunc(networks, func(id string) bool { return seen[id] }))
}

// Await implements dns.Names: it waits for the first SetRemote after a start.
func (t *Table) Await(ctx context.Context, name string) (settled bool) {
	if name = strings.TrimPrefix(strings.TrimSuffix(name, "."), tasksPrefix); strings.Contains(name, ".") {
		return true // no service is called so
	}
	select {
	case <-t.complete:
		return true
	default:
	}
	select {
	case <-t.complete:
		return true
	case <-ctx.Done():
		return false
	}
}

// lookup finds a name among the members. seen are the networks that the asker
// sees; nil is all.
func (t *Table) lookup(asker netip.Addr, name string) (addrs []netip.Addr, seen map[string]bool, known bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	seen, member := t.networksOf(asker)
	if !member {
		seen = nil
	}
	open := sync.OnceValue(t.failsOpen)
	var best match
	for r := range t.everyone() {
		for _, e := range r.Endpoints {
			if e.Nameless || seen != nil && !seen[e.NetworkID] {
				continue
			}
			kind := r.answersTo(e, name)
			if kind == noMatch || best != noMatch && kind > best {
				continue
			}
			if kind < best || best == noMatch {
				best, addrs = kind, nil
			}
			if r.listed(kind, open) {
				addrs = append(addrs, e.Addr)
			}
		}
	}
	slices.SortFunc(addrs, netip.Addr.Compare)
	return slices.Compact(addrs), seen, best != noMatch
}

// match says as what a member answers to a name; the smaller one wins.
type match int

const (
	noMatch match = iota
	byService
	byTasks
	byAlias
	byTasksAlias
	byContainer
)

func (r *record) answersTo(e Endpoint, name string) match {
	if r.ServiceName != "" {
		service := strings.ToLower(r.ServiceName)
		if name == service {
			return byService
		}
		if rest, ok := strings.CutPrefix(name, tasksPrefix); ok && rest == service {
			return byTasks
		}
	}
	for _, a := range e.Aliases {
		if strings.EqualFold(a, name) {
			return byAlias
		}
	}
	if rest, ok := strings.CutPrefix(name, tasksPrefix); ok && r.ServiceName != "" {
		// In a stack a service's own name is an alias of SERVICE, "STACK_NAME".
		if slices.ContainsFunc(e.Aliases, func(a string) bool { return strings.EqualFold(a, rest) }) {
			return byTasksAlias
		}
	}
	switch {
	case strings.EqualFold(r.Name, name),
		len(r.ContainerID) >= shortID && r.ContainerID[:shortID] == name,
		r.ServiceName != "" && r.Slot > 0 && name == strings.ToLower(r.ServiceName)+"."+strconv.FormatUint(r.Slot, 10):
		return byContainer
	}
	return noMatch
}

// listed tells whether the member's address is in the answer; open gives the
// services that fail open.
func (r *record) listed(kind match, open func() map[string]bool) bool {
	if kind == byContainer {
		return r.Process
	}
	return r.serves() || r.fallback() && open()[r.group()] || (kind == byTasks || kind == byTasksAlias) && r.NotReadyNames && r.starting()
}

// failsOpen are the services that fail open now; the caller holds the lock.
func (t *Table) failsOpen() map[string]bool {
	return failsOpen(func(yield func(Member) bool) {
		for r := range t.everyone() {
			if !yield(r.Member) {
				return
			}
		}
	})
}

// networksOf tells the networks of the member with the address.
func (t *Table) networksOf(asker netip.Addr) (networks map[string]bool, member bool) {
	networks = make(map[string]bool)
	for r := range t.everyone() {
		if !r.has(asker) {
			continue
		}
		member = true
		for _, e := range r.Endpoints {
			networks[e.NetworkID] = !e.Nameless
		}
	}
	return networks, member
}

func (r *record) has(addr netip.Addr) bool {
	return slices.ContainsFunc(r.Endpoints, func(e Endpoint) bool { return e.Addr == addr })
}

// Reverse implements dns.Names.
func (t *Table) Reverse(addr netip.Addr) (name string, known bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for r := range t.everyone() {
		if r.Process && r.has(addr) {
			return r.Name, true
		}
	}
	return "", false
}
