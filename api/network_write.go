// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"regexp"
	"time"

	"github.com/containerd/errdefs"
	dockernet "github.com/docker/docker/api/types/network"
	"github.com/docker/docker/daemon/cluster/convert"
	"github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/identity"
	"github.com/moby/swarmkit/v2/manager/state/store"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"satld/executor"
	"satld/network"
)

// networkNames is what a network may be called.
var networkNames = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,62}$`)

func (s *Server) networkCreate(w http.ResponseWriter, r *http.Request) error {
	var req dockernet.CreateRequest
	if err := decodeJSON(w, r, &req); err != nil {
		return err
	}
	wanted, err := s.admitNetwork(&req)
	if err != nil {
		return err
	}
	s.networkMu.Lock()
	defer s.networkMu.Unlock()
	for _, n := range s.networkInfos() {
		if n.named(req.Name) {
			return errConflict("network with name %s already exists", req.Name)
		}
	}
	wanted.ID = identity.NewID()
	spec := convert.BasicNetworkCreateToGRPC(req)
	spec.DriverConfig.Name = req.Driver
	stored := &api.Network{ID: wanted.ID, Spec: spec, DriverState: &api.Driver{Name: req.Driver}}
	if executor.IsOverlay(stored) {
		// The cluster gives it a subnet; nodes make it when they are told of
		// their address in it.
		stored.DriverState = nil
		if err := s.storeNetwork(r.Context(), stored); err != nil {
			return err
		}
		return writeJSON(w, http.StatusCreated, &dockernet.CreateResponse{ID: stored.ID})
	}
	made, err := s.cfg.Networks.Ensure(r.Context(), wanted)
	if err != nil {
		return err
	}
	stored.IPAM = &api.IPAMOptions{Driver: &api.Driver{Name: "default"},
		Configs: []*api.IPAMConfig{{Subnet: made.Subnet.String(), Gateway: made.Gateway.String()}}}
	if err := s.storeNetwork(r.Context(), stored); err != nil {
		if undo := s.cfg.Networks.Remove(context.WithoutCancel(r.Context()), made.ID); undo != nil {
			s.log.Error("bridge of a network that was not created stays", "network", req.Name, "error", undo)
		}
		return err
	}
	return writeJSON(w, http.StatusCreated, &dockernet.CreateResponse{ID: made.ID})
}

// storeNetwork writes a new network; a name that is taken is Docker's conflict.
func (s *Server) storeNetwork(ctx context.Context, n *api.Network) error {
	err := s.cfg.Cluster.CreateNetwork(ctx, n)
	if nameTaken(err) {
		return errConflict("network with name %s already exists", n.Spec.Annotations.Name)
	}
	return err
}

func nameTaken(err error) bool {
	return errors.Is(err, store.ErrNameConflict) || status.Code(err) == codes.AlreadyExists
}

// admitNetwork checks a request and fills its defaults in. An overlay is one
// network on all nodes; a bridge is one of its own on each.
func (s *Server) admitNetwork(req *dockernet.CreateRequest) (network.Network, error) {
	n := network.Network{Name: req.Name, Internal: req.Internal}
	if !networkNames.MatchString(req.Name) {
		return n, errInvalid("invalid network name %q: only [a-zA-Z0-9][a-zA-Z0-9_.-] are allowed, at most 63 characters", req.Name)
	}
	switch req.Name {
	case "bridge", "host", "none", "default", "ingress", s.cfg.NetworkName:
		return n, errForbidden("%s is a pre-defined network and cannot be created", req.Name)
	}
	scope := map[string]string{"": scopeLocal, "bridge": scopeLocal, "overlay": scopeSwarm}[req.Driver]
	switch {
	case scope == "":
		return n, errNotSupported("network driver %q is not supported: use bridge or overlay", req.Driver)
	case req.Scope != "" && req.Scope != scope:
		return n, errInvalid("invalid scope %q: networks of driver %s have scope %s", req.Scope, req.Driver, scope)
	case req.Ingress:
		return n, errNotSupported("ingress networks are not supported: published ports need none")
	case req.ConfigOnly || req.ConfigFrom != nil && req.ConfigFrom.Network != "":
		return n, errNotSupported("configuration-only networks are not supported")
	case req.EnableIPv6 != nil && *req.EnableIPv6:
		return n, errNotSupported("IPv6 is not supported in networks")
	case req.EnableIPv4 != nil && !*req.EnableIPv4:
		return n, errNotSupported("networks without IPv4 are not supported")
	}
	if _, encrypted := req.Options["encrypted"]; encrypted {
		return n, errNotSupported("encrypted networks are not supported")
	}
	for name := range req.Options {
		return n, errNotSupported("network option %q is not supported", name)
	}
	if req.Driver == "" {
		req.Driver = "bridge"
	}
	req.ConfigFrom = nil
	return n, admitIPAM(req.IPAM, &n)
}

// admitIPAM takes over subnet and gateway, one of each at most.
func admitIPAM(ipam *dockernet.IPAM, n *network.Network) error {
	if ipam == nil {
		return nil
	}
	if ipam.Driver != "" && ipam.Driver != "default" || len(ipam.Options) > 0 {
		return errNotSupported("IPAM drivers and options are not supported")
	}
	if len(ipam.Config) > 1 {
		return errNotSupported("more than one subnet in a network is not supported")
	}
	for _, c := range ipam.Config {
		if c.IPRange != "" || len(c.AuxAddress) > 0 {
			return errNotSupported("IP ranges and auxiliary addresses are not supported")
		}
		if c.Subnet == "" {
			if c.Gateway != "" {
				return errInvalid("invalid network: a gateway needs a subnet")
			}
			continue
		}
		subnet, err := netip.ParsePrefix(c.Subnet)
		if err != nil || !subnet.Addr().Is4() {
			return errInvalid("invalid subnet %q: an IPv4 prefix is needed", c.Subnet)
		}
		n.Subnet = subnet.Masked()
		if c.Gateway == "" {
			continue
		}
		if n.Gateway, err = netip.ParseAddr(c.Gateway); err != nil || !n.Subnet.Contains(n.Gateway) {
			return errInvalid("invalid gateway %q: an address of subnet %s is needed", c.Gateway, n.Subnet)
		}
	}
	return nil
}

func (s *Server) networkRemove(w http.ResponseWriter, r *http.Request) error {
	n, err := s.findNetwork(pathVar(r, "id"), "")
	if err != nil {
		return err
	}
	if n.predefined {
		return errForbidden("%s is a pre-defined network and cannot be removed", n.Name)
	}
	s.networkMu.Lock()
	defer s.networkMu.Unlock()
	use := s.networkUsage()
	if svcs := use.services[n.ID]; len(svcs) > 0 {
		return errConflict("network %s is in use by service %s", n.Name, svcs[0].Spec.Annotations.Name)
	}
	if cs := use.containers[n.ID]; len(cs) > 0 {
		return errConflict("network %s is in use by container %s", n.Name, cs[0].Name)
	}
	if err := s.dropNetwork(r.Context(), n.ID); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// dropNetwork removes a network that nothing refers to from the store, and
// its bridge from this node. Tasks of a service that is gone may still be
// stopping in it; sweepNetworks removes the bridge after them.
//
// Right after its service is removed, a task counts as running in the network
// until the engine has told it to stop: `docker stack rm` removes both at
// once, so that is waited for.
func (s *Server) dropNetwork(ctx context.Context, id string) error {
	for until := time.Now().Add(orphanWait); ; {
		err := s.cfg.Cluster.RemoveNetwork(ctx, id)
		switch {
		case err == nil:
			s.removeBridge(ctx, id)
			return nil
		case status.Code(err) != codes.FailedPrecondition:
			return err
		case time.Now().After(until):
			return errConflict("%s", status.Convert(err).Message())
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(orphanPoll):
		}
	}
}

const (
	// orphanWait is how long the tasks of a removed service are waited for.
	orphanWait = 3 * time.Second
	orphanPoll = 50 * time.Millisecond
)

func (s *Server) removeBridge(ctx context.Context, id string) {
	err := s.cfg.Networks.Remove(ctx, id)
	if err != nil && !errdefs.IsNotFound(err) && !errdefs.IsConflict(err) {
		s.log.Warn("removing a network's bridge failed, will try again", "network", id, "error", err)
	}
}

// sweepNetworks removes the bridges of this node whose network is no longer
// in the store. Those that a container is still in stay until the next sweep.
func (s *Server) sweepNetworks(ctx context.Context) {
	if !s.cfg.Cluster.Manager() {
		return // a worker has no store: it is told which overlays it is in
	}
	s.networkMu.Lock()
	defer s.networkMu.Unlock()
	known := map[string]bool{network.DefaultID: true}
	s.cfg.Cluster.Store().View(func(tx store.ReadTx) {
		all, _ := store.FindNetworks(tx, store.All)
		for _, n := range all {
			known[n.ID] = true
		}
	})
	for _, n := range s.cfg.Networks.List() {
		if !known[n.ID] && ctx.Err() == nil {
			s.removeBridge(ctx, n.ID)
		}
	}
}

func (s *Server) networkPrune(w http.ResponseWriter, r *http.Request) error {
	args, until, err := pruneFilters(r, "label", "label!", "until")
	if err != nil {
		return err
	}
	s.networkMu.Lock()
	defer s.networkMu.Unlock()
	use := s.networkUsage()
	report := dockernet.PruneReport{NetworksDeleted: []string{}}
	for _, n := range s.networkInfos() {
		if n.predefined || !use.unused(n.ID) || !until.IsZero() && n.Created.After(until) || !matchesPrune(args, n.Labels) {
			continue
		}
		if err := s.dropNetwork(r.Context(), n.ID); err != nil {
			s.log.Warn("pruning a network failed", "network", n.Name, "error", err)
			continue
		}
		report.NetworksDeleted = append(report.NetworksDeleted, n.Name)
	}
	return writeJSON(w, http.StatusOK, &report)
}
