// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"cmp"
	"net/http"
	"slices"
	"strings"
	"time"

	dockernet "github.com/docker/docker/api/types/network"
	"github.com/docker/docker/daemon/cluster/convert"
	gogotypes "github.com/gogo/protobuf/types"
	"github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/manager/state/store"

	"satld/network"
)

// IDs of the networks that are always there, the same on every node, beside
// network.DefaultID. In the store they stand for themselves once a service
// refers to one (predefined.go).
const (
	hostNetworkID = "satlhostnetwork0000000000"
	noneNetworkID = "satlnonenetwork0000000000"
)

// predefinedLabel marks networks that are always there, as in Docker's store.
const predefinedLabel = "com.docker.swarm.predefined"

const (
	scopeLocal = "local"
	scopeSwarm = "swarm"
)

func (s *Server) networkRoutes(r *routes) {
	r.get("/networks", s.networkList)
	r.get("/networks/", s.networkList)
	r.get("/networks/{id:.+}", s.networkInspect)
	r.post("/networks/create", s.manager(s.networkCreate))
	r.post("/networks/prune", s.manager(s.networkPrune))
	r.post("/networks/{id:.*}/connect", s.networkConnect)
	r.post("/networks/{id:.*}/disconnect", s.networkConnect)
	r.del("/networks/{id:.*}", s.manager(s.networkRemove))
}

// netInfo is one network as users see it.
type netInfo struct {
	dockernet.Inspect
	predefined bool
	alias      string // another name it answers to
}

func (n *netInfo) host() bool { return n.ID == hostNetworkID }
func (n *netInfo) none() bool { return n.ID == noneNetworkID }

// named tells whether users call the network by that name.
func (n *netInfo) named(name string) bool { return n.Name == name || n.alias != "" && n.alias == name }

// inScope tells whether the network may be meant where scope is asked for.
// The predefined ones are in every scope: services can refer to them.
func (n *netInfo) inScope(scope string) bool { return scope == "" || n.predefined || n.Scope == scope }

// networkInfos lists all networks: the predefined ones, then the store's.
func (s *Server) networkInfos() []*netInfo {
	infos := []*netInfo{s.defaultNetwork(), s.builtinNetwork(hostNetworkID, "host", "host"), s.builtinNetwork(noneNetworkID, "none", "null")}
	s.cfg.Cluster.Store().View(func(tx store.ReadTx) {
		all, _ := store.FindNetworks(tx, store.All) // fails for no selector that is valid
		slices.SortFunc(all, func(a, b *api.Network) int { return cmp.Compare(a.Spec.Annotations.Name, b.Spec.Annotations.Name) })
		for _, n := range all {
			if !convert.IsIngressNetwork(n) && n.Spec.Annotations.Labels[predefinedLabel] != "true" {
				infos = append(infos, s.storedNetwork(n))
			}
		}
	})
	return infos
}

// defaultNetwork is the node's own, which containers are in when they name
// none: Docker's "bridge".
func (s *Server) defaultNetwork() *netInfo {
	n := s.builtinNetwork(network.DefaultID, dockernet.NetworkBridge, "bridge")
	n.alias = s.cfg.NetworkName
	n.Options = map[string]string{
		"com.docker.network.bridge.default_bridge":       "true",
		"com.docker.network.bridge.enable_ip_masquerade": "true",
		"com.docker.network.bridge.name":                 s.cfg.NetworkName,
	}
	s.fillIPAM(n)
	return n
}

func (s *Server) builtinNetwork(id, name, driver string) *netInfo {
	return &netInfo{predefined: true, Inspect: dockernet.Inspect{
		ID: id, Name: name, Driver: driver, Scope: scopeLocal, EnableIPv4: true, Created: s.clusterCreated(),
		IPAM:    dockernet.IPAM{Driver: "default", Config: []dockernet.IPAMConfig{}},
		Options: map[string]string{}, Labels: map[string]string{}, Containers: map[string]dockernet.EndpointResource{},
	}}
}

// storedNetwork is a network that a user created.
func (s *Server) storedNetwork(n *api.Network) *netInfo {
	info := &netInfo{Inspect: convert.BasicNetworkFromGRPC(*n)}
	info.Driver, info.Scope = driverOf(n), scopeSwarm
	if info.Driver == "bridge" {
		info.Scope = scopeLocal
	}
	info.IPAM.Driver = "default"
	info.Options = map[string]string{}
	info.Containers = map[string]dockernet.EndpointResource{}
	if info.Labels == nil {
		info.Labels = map[string]string{}
	}
	s.fillIPAM(info)
	return info
}

func driverOf(n *api.Network) string {
	if d := n.Spec.DriverConfig; d != nil && d.Name != "" {
		return d.Name
	}
	return "overlay"
}

// fillIPAM shows the subnet that the network has on this node.
func (s *Server) fillIPAM(info *netInfo) {
	if n, ok := s.cfg.Networks.Get(info.ID); ok && n.Subnet.IsValid() {
		info.IPAM.Config = []dockernet.IPAMConfig{{Subnet: n.Subnet.String(), Gateway: n.Gateway.String()}}
	} else if info.IPAM.Config == nil {
		info.IPAM.Config = []dockernet.IPAMConfig{}
	}
}

// clusterCreated stands for when the predefined networks were made.
func (s *Server) clusterCreated() (t time.Time) {
	s.cfg.Cluster.Store().View(func(tx store.ReadTx) {
		if all, err := store.FindClusters(tx, store.ByName(store.DefaultClusterName)); err == nil && len(all) == 1 {
			t, _ = gogotypes.TimestampFromProto(all[0].Meta.CreatedAt) // zero when absent
		}
	})
	return t
}

// findNetwork finds a network by ID, name, or unique prefix of its ID, among
// those of scope ("" is any).
func (s *Server) findNetwork(term, scope string) (*netInfo, error) {
	if term == "" || term == dockernet.NetworkDefault {
		term = network.DefaultID
	}
	var prefixed []*netInfo
	var byName, outside *netInfo
	for _, n := range s.networkInfos() {
		switch {
		case !n.inScope(scope):
			if n.ID == term || n.named(term) {
				outside = n
			}
		case n.ID == term:
			return n, nil
		case byName == nil && n.named(term):
			byName = n
		case strings.HasPrefix(n.ID, term):
			prefixed = append(prefixed, n)
		}
	}
	switch {
	case byName != nil:
		return byName, nil
	case len(prefixed) == 1:
		return prefixed[0], nil
	case len(prefixed) > 1:
		return nil, errInvalid("network %s is ambiguous (%d matches found based on ID prefix)", term, len(prefixed))
	}
	if outside != nil && scope == scopeSwarm {
		return nil, errNotFound("network %s not found: services take networks of driver overlay, and it is of driver %s", term, outside.Driver)
	}
	return nil, errNotFound("network %s not found", term)
}

func (s *Server) networkList(w http.ResponseWriter, r *http.Request) error {
	args, err := parseFilters(r, "driver", "id", "name", "label", "scope", "type", "dangling")
	if err != nil {
		return err
	}
	dangling, err := args.GetBoolOrDefault("dangling", false)
	if err != nil {
		return errInvalid(`invalid value for filter 'dangling', must be "true" (or "1"), or "false" (or "0")`)
	}
	types := args.Get("type")
	for _, t := range types {
		if t != "builtin" && t != "custom" {
			return errInvalid("invalid filter: 'type'='%s'", t)
		}
	}
	usage := s.networkUsage()
	list := []dockernet.Summary{}
	for _, n := range s.networkInfos() {
		kind := "custom"
		if n.predefined {
			kind = "builtin"
		}
		switch {
		case args.Contains("driver") && !args.ExactMatch("driver", n.Driver),
			args.Contains("name") && !args.Match("name", n.Name) && (n.alias == "" || !args.Match("name", n.alias)),
			args.Contains("id") && !args.Match("id", n.ID),
			args.Contains("label") && !args.MatchKVList("label", n.Labels),
			args.Contains("scope") && !args.ExactMatch("scope", n.Scope),
			len(types) > 0 && !slices.Contains(types, kind),
			args.Contains("dangling") && dangling != (!n.predefined && usage.unused(n.ID)):
			continue
		}
		list = append(list, n.Inspect)
	}
	return writeJSON(w, http.StatusOK, list)
}

func (s *Server) networkInspect(w http.ResponseWriter, r *http.Request) error {
	verbose, err := queryStrictBool(r, "verbose")
	if err != nil {
		return err
	}
	scope := r.URL.Query().Get("scope")
	n, err := s.findNetwork(pathVar(r, "id"), scope)
	if err != nil {
		return err
	}
	if n.predefined && scope == scopeSwarm {
		// What a service refers to: the store's stand-in.
		n.Scope, n.Options, n.Containers = scopeSwarm, nil, nil
		n.IPAM = dockernet.IPAM{Config: []dockernet.IPAMConfig{}}
		n.Labels = map[string]string{predefinedLabel: "true"}
		return writeJSON(w, http.StatusOK, n.Inspect)
	}
	s.fillEndpoints(n)
	if verbose {
		s.fillServices(n)
	}
	return writeJSON(w, http.StatusOK, n.Inspect)
}

func (s *Server) networkConnect(http.ResponseWriter, *http.Request) error {
	return errNotSupported("connecting and disconnecting existing containers is not supported: name the networks when the container is created")
}
