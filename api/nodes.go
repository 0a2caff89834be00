// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"net/http"
	"strings"

	"github.com/docker/docker/api/types/swarm"
	"github.com/docker/docker/daemon/cluster/convert"
	"github.com/moby/swarmkit/v2/api"
)

func (s *Server) nodeRoutes(r *routes) {
	r.get("/nodes", s.manager(s.nodeList))
	r.get("/nodes/{id}", s.manager(s.nodeInspect))
	r.post("/nodes/{id}/update", s.manager(s.nodeUpdate))
	r.del("/nodes/{id}", s.manager(s.nodeRemove))
}

// renderNode is a node as clients see it. Its version moves with its spec.
func (s *Server) renderNode(n *api.Node) swarm.Node {
	out := convert.NodeFromGRPC(*n)
	out.Version.Index = specIndex(out.Spec)
	if out.ManagerStatus == nil && n.ID == s.cfg.Cluster.NodeID() && s.cfg.Cluster.Manager() {
		out.ManagerStatus = &swarm.ManagerStatus{
			Leader: s.cfg.Cluster.Leader(), Reachability: swarm.ReachabilityReachable, Addr: s.cfg.Cluster.AdvertiseAddr(),
		}
	}
	return out
}

func (s *Server) nodeList(w http.ResponseWriter, r *http.Request) error {
	args, err := parseFilters(r, "id", "name", "label", "node.label", "role", "membership")
	if err != nil {
		return err
	}
	f := &api.ListNodesRequest_Filters{
		NamePrefixes: args.Get("name"),
		IDPrefixes:   args.Get("id"),
		Labels:       convertLabelFilters(args.Get("label")),
		NodeLabels:   convertLabelFilters(args.Get("node.label")),
	}
	for _, name := range args.Get("role") {
		role, ok := api.NodeRole_value[strings.ToUpper(name)]
		if !ok {
			return errInvalid("invalid role filter: '%s'", name)
		}
		f.Roles = append(f.Roles, api.NodeRole(role))
	}
	for _, name := range args.Get("membership") {
		membership, ok := api.NodeSpec_Membership_value[strings.ToUpper(name)]
		if !ok {
			return errInvalid("invalid membership filter: '%s'", name)
		}
		f.Memberships = append(f.Memberships, api.NodeSpec_Membership(membership))
	}
	resp, err := s.cfg.Cluster.Control().ListNodes(r.Context(), &api.ListNodesRequest{Filters: f}, maxList)
	if err != nil {
		return err
	}
	nodes := make([]swarm.Node, 0, len(resp.Nodes))
	for _, n := range resp.Nodes {
		nodes = append(nodes, s.renderNode(n))
	}
	return writeJSON(w, http.StatusOK, nodes)
}

func (s *Server) nodeInspect(w http.ResponseWriter, r *http.Request) error {
	n, err := s.findNode(r.Context(), pathVar(r, "id"))
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, s.renderNode(n))
}

// nodeUpdate changes role, availability, name and labels.
func (s *Server) nodeUpdate(w http.ResponseWriter, r *http.Request) error {
	var spec swarm.NodeSpec
	if err := decodeJSON(w, r, &spec); err != nil {
		return err
	}
	version, err := queryVersion(r, "node")
	if err != nil {
		return err
	}
	wanted, err := convert.NodeSpecToGRPC(spec)
	if err != nil {
		return errInvalid("%v", err)
	}
	found, err := s.findNode(r.Context(), pathVar(r, "id"))
	if err != nil {
		return err
	}
	return updateLoop(r.Context(), func() error {
		got, err := s.cfg.Cluster.Control().GetNode(r.Context(), &api.GetNodeRequest{NodeID: found.ID})
		if err != nil {
			return err
		}
		current := got.Node
		if specIndex(convert.NodeFromGRPC(*current).Spec) != version {
			return staleVersion{}
		}
		next := current.Spec.Copy()
		next.Annotations.Name, next.Annotations.Labels = wanted.Annotations.Name, wanted.Annotations.Labels
		next.Availability, next.DesiredRole = wanted.Availability, wanted.DesiredRole
		_, err = s.cfg.Cluster.Control().UpdateNode(r.Context(), &api.UpdateNodeRequest{
			NodeID: current.ID, Spec: next, NodeVersion: &current.Meta.Version,
		})
		return err
	})
}

func (s *Server) nodeRemove(_ http.ResponseWriter, r *http.Request) error {
	n, err := s.findNode(r.Context(), pathVar(r, "id"))
	if err != nil {
		return err
	}
	if n.ManagerStatus != nil || n.Role == api.NodeRoleManager {
		return errInvalid("node %s is a cluster manager and is a member of the raft cluster. It must be demoted to worker before removal", n.ID)
	}
	_, err = s.cfg.Cluster.Control().RemoveNode(r.Context(), &api.RemoveNodeRequest{NodeID: n.ID, Force: queryBool(r, "force")})
	return err
}
