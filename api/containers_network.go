// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/network"
	"github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/manager/state/store"

	"satld/executor"
	satlnetwork "satld/network"
)

// networkNames gives a lookup of network names by ID, for rendering: from this
// node's bridges first, then from the store, else the ID itself.
func (s *Server) networkNames() func(id string) string {
	// The node's own network is Docker's "bridge" everywhere in the API.
	known := map[string]string{satlnetwork.DefaultID: network.NetworkBridge}
	return func(id string) string {
		if name, ok := known[id]; ok {
			return name
		}
		name := id
		if n, ok := s.cfg.Networks.Get(id); ok && n.Name != "" {
			name = n.Name
		} else {
			s.cfg.Cluster.Store().View(func(tx store.ReadTx) {
				if n := store.GetNetwork(tx, id); n != nil && n.Spec.Annotations.Name != "" {
					name = n.Spec.Annotations.Name
				}
			})
		}
		known[id] = name
		return name
	}
}

// createNetworks resolves the networks of a new container: the one of its
// network mode and those of its endpoints. No ID is the node's own network,
// or the host's.
func (s *Server) createNetworks(ctx context.Context, mode container.NetworkMode, config *network.NetworkingConfig) (ids []string, aliases map[string][]string, err error) {
	wanted := map[string]*network.EndpointSettings{}
	if config != nil {
		for name, ep := range config.EndpointsConfig {
			if name == network.NetworkDefault {
				name = string(mode)
			}
			if err := admitEndpoint(name, ep); err != nil {
				return nil, nil, err
			}
			wanted[name] = ep
		}
	}
	if mode.IsHost() {
		delete(wanted, network.NetworkHost)
		if len(wanted) > 0 {
			return nil, nil, errInvalid("conflicting options: host network and other networks")
		}
		return nil, nil, nil
	}
	if _, ok := wanted[string(mode)]; !ok {
		wanted[string(mode)] = nil
	}
	aliases = map[string][]string{}
	// The network of the mode is the first: it receives published traffic.
	names := slices.SortedFunc(maps.Keys(wanted), func(a, b string) int {
		if (a == string(mode)) != (b == string(mode)) {
			if a == string(mode) {
				return -1
			}
			return 1
		}
		return strings.Compare(a, b)
	})
	for _, name := range names {
		n, err := s.joinable(ctx, name)
		if err != nil {
			return nil, nil, err
		}
		if !slices.Contains(ids, n.ID) {
			ids = append(ids, n.ID)
		}
		if ep := wanted[name]; ep != nil {
			aliases[n.ID] = append(aliases[n.ID], ep.Aliases...)
		}
	}
	return ids, aliases, nil
}

// admitEndpoint refuses what an endpoint cannot be given.
func admitEndpoint(name string, ep *network.EndpointSettings) error {
	if ep == nil {
		return nil
	}
	ipam := ep.IPAMConfig
	switch {
	case ipam != nil && (ipam.IPv4Address != "" || ipam.IPv6Address != "" || len(ipam.LinkLocalIPs) > 0):
		return errNotSupported("not supported: an address of one's own in network %s", name)
	case ep.MacAddress != "":
		return errNotSupported("not supported: a MAC address of one's own in network %s", name)
	case len(ep.Links) > 0:
		return errNotSupported("not supported: links between containers in network %s", name)
	case len(ep.DriverOpts) > 0:
		return errNotSupported("not supported: driver options in network %s", name)
	case ep.GwPriority != 0:
		return errNotSupported("not supported: gateway priorities in network %s", name)
	}
	return nil
}

// joinable finds a network that a container of this node can join, by name,
// ID or unique prefix of an ID, and makes its bridge where it is missing.
func (s *Server) joinable(ctx context.Context, name string) (satlnetwork.Network, error) {
	if name == network.NetworkBridge || name == network.NetworkDefault || name == s.cfg.NetworkName || name == satlnetwork.DefaultID {
		return satlnetwork.Network{ID: satlnetwork.DefaultID, Name: s.cfg.NetworkName}, nil
	}
	if err := s.pass(ctx, loaded); err != nil {
		return satlnetwork.Network{}, err
	}
	return s.storeBridge(ctx, name)
}

// storeBridge finds a network of the store and makes its bridge on this node.
func (s *Server) storeBridge(ctx context.Context, name string) (satlnetwork.Network, error) {
	var found *api.Network
	var byPrefix []*api.Network
	var viewErr error
	s.cfg.Cluster.Store().View(func(tx store.ReadTx) {
		all, err := store.FindNetworks(tx, store.All)
		if err != nil {
			viewErr = err
			return
		}
		for _, n := range all {
			switch {
			case n.Spec.Annotations.Name == name || n.ID == name:
				found = n
			case strings.HasPrefix(n.ID, name):
				byPrefix = append(byPrefix, n)
			}
		}
	})
	switch {
	case viewErr != nil:
		return satlnetwork.Network{}, fmt.Errorf("look network %s up: %w", name, viewErr)
	case found == nil && len(byPrefix) == 1:
		found = byPrefix[0]
	case found == nil && len(byPrefix) > 1:
		return satlnetwork.Network{}, errInvalid("network %s is ambiguous: %d IDs begin with it", name, len(byPrefix))
	case found == nil:
		for _, n := range s.cfg.Networks.List() { // a worker has no store, and is in every overlay network
			if n.VNI != 0 && (n.Name == name || n.ID == name) {
				return n, nil
			}
		}
		// Not a 404: to a create the CLI takes that for a missing image and pulls it.
		return satlnetwork.Network{}, errInvalid("network %s not found", name)
	}
	if d := found.Spec.DriverConfig; found.Spec.Ingress || d != nil && (d.Name == network.NetworkHost || d.Name == network.NetworkNone) {
		return satlnetwork.Network{}, errInvalid("network %s cannot be joined by a container", name)
	}
	if driverOf(found) == "overlay" && !found.Spec.Attachable {
		return satlnetwork.Network{}, errForbidden("could not attach to network %s: network %s not manually attachable", name, name)
	}
	n := satlnetwork.Network{ID: found.ID, Name: found.Spec.Annotations.Name, Internal: found.Spec.Internal}
	if executor.IsOverlay(found) {
		return n, nil // the node joins it when it is told of its address there
	}
	ipam := found.IPAM
	if ipam == nil {
		ipam = found.Spec.IPAM
	}
	if ipam != nil && len(ipam.Configs) > 0 {
		var err error
		if n.Subnet, err = netip.ParsePrefix(ipam.Configs[0].Subnet); err != nil {
			return n, fmt.Errorf("subnet of network %s: %w", n.Name, err)
		}
	}
	return s.cfg.Networks.Ensure(ctx, n)
}
