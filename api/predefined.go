// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"context"

	"github.com/docker/docker/api/types/swarm"
	"github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/manager/state/store"
)

// resolveNetworks replaces the names of a spec's networks by IDs. What a
// service refers to must be in the store, so a predefined network gets its
// stand-in there when the first service names it.
func (s *Server) resolveNetworks(ctx context.Context, spec *swarm.ServiceSpec) error {
	t := &spec.TaskTemplate
	if len(t.Networks) == 0 {
		t.Networks = spec.Networks //nolint:staticcheck // deprecated, and what old clients send
	}
	spec.Networks = nil //nolint:staticcheck
	seen := make(map[string]bool)
	for i := range t.Networks {
		attachment := &t.Networks[i]
		if len(attachment.DriverOpts) > 0 {
			return errNotSupported("driver options of network attachments are not supported")
		}
		n, err := s.findNetwork(attachment.Target, "")
		if err != nil {
			return err
		}
		switch {
		case n.none():
			return errNotSupported("services without a network are not supported")
		case seen[n.ID]:
			return errInvalid("network %s is named twice", n.Name)
		case n.host() && len(t.Networks) > 1:
			return errInvalid("the host network cannot be combined with other networks")
		case n.host() && len(publishedPorts(spec)) > 0:
			return errInvalid("ports cannot be published by a service in the host network: its tasks listen on the host itself")
		}
		seen[n.ID] = true
		attachment.Target = n.ID
		if n.predefined {
			if err := s.ensureStandIn(ctx, standIn(n)); err != nil {
				return err
			}
		}
	}
	return nil
}

// standIn is a predefined network's object in the store.
func standIn(n *netInfo) *api.Network {
	return &api.Network{
		ID: n.ID,
		Spec: api.NetworkSpec{
			Annotations:  api.Annotations{Name: n.Name, Labels: map[string]string{predefinedLabel: "true"}},
			DriverConfig: &api.Driver{Name: n.Driver},
		},
		DriverState: &api.Driver{Name: n.Driver},
	}
}

// ensureStandIn creates n unless it is there.
func (s *Server) ensureStandIn(ctx context.Context, n *api.Network) error {
	if s.stored(n) {
		return nil
	}
	err := s.cfg.Cluster.CreateNetwork(ctx, n)
	if err != nil && !s.stored(n) { // another request may have been faster
		return err
	}
	return nil
}

func (s *Server) stored(n *api.Network) (found bool) {
	s.cfg.Cluster.Store().View(func(tx store.ReadTx) { found = store.GetNetwork(tx, n.ID) != nil })
	return found
}
