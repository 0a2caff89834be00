// SPDX-License-Identifier: BSD-2-Clause

package executor

import (
	"strings"

	cerrdefs "github.com/containerd/errdefs"
)

// find finds a container by ID, name, a task's other names (web.1, and web
// where one task of it runs here), or unique prefix of an ID. As in Docker a
// name goes before a prefix: a service may be called "cafe".
func (n *Node) find(ref string) (*Container, error) {
	ref = strings.TrimPrefix(ref, "/")
	n.mu.Lock()
	defer n.mu.Unlock()
	if c, ok := n.containers[ref]; ok {
		return c, nil
	}
	var byPrefix, bySlot, byService []*Container
	for _, c := range n.containers {
		rec := c.record()
		switch {
		case rec.Name == ref:
			return c, nil
		case rec.TaskID != "" && rec.slotName() == ref:
			bySlot = append(bySlot, c)
		case rec.TaskID != "" && rec.ServiceName == ref && rec.State.Live():
			byService = append(byService, c)
		case ref != "" && strings.HasPrefix(c.id, ref):
			byPrefix = append(byPrefix, c)
		}
	}
	switch {
	case len(bySlot) > 0:
		return newest(bySlot), nil
	case len(byService) == 1:
		return byService[0], nil
	case len(byPrefix) == 1:
		return byPrefix[0], nil
	case len(byPrefix) > 1:
		return nil, invalid("multiple IDs found with provided prefix: %s", ref)
	}
	return nil, cerrdefs.ErrNotFound.WithMessage("No such container: " + ref)
}

// newest picks the living container of a slot, or else the latest.
func newest(list []*Container) *Container {
	best := list[0]
	for _, c := range list[1:] {
		a, b := c.record(), best.record()
		if a.State.Live() != b.State.Live() {
			if a.State.Live() {
				best = c
			}
			continue
		}
		if a.Created.After(b.Created) {
			best = c
		}
	}
	return best
}

// nameTaken tells whether a container other than except has the name.
func (n *Node) nameTaken(name, except string) (id string, taken bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range n.containers {
		if c.id != except && c.record().Name == name {
			return c.id, true
		}
	}
	return "", false
}
