// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"net/http"
	"slices"

	"github.com/docker/docker/api/types/swarm"
	"github.com/docker/docker/daemon/cluster/convert"
	"github.com/moby/swarmkit/v2/api"
)

func (s *Server) serviceRoutes(r *routes) {
	r.get("/services", s.manager(s.serviceList))
	r.get("/services/{id}", s.manager(s.serviceInspect))
	r.post("/services/create", s.manager(s.serviceCreate))
	r.post("/services/{id}/update", s.manager(s.serviceUpdate))
	r.del("/services/{id}", s.manager(s.serviceRemove))
	r.get("/services/{id}/logs", s.serviceLogs)
}

// shownVersion is the version that clients see of a service and send back
// with an update: it moves with the spec only. SwarmKit sets SpecVersion to
// the object's version before the update, and to 0 at creation; one more
// makes it nonzero, as Docker's are.
func shownVersion(svc *api.Service) uint64 { return showVersion(svc.SpecVersion) }

// showVersion is one version of a service's spec as clients see it.
func showVersion(v *api.Version) uint64 {
	if v == nil {
		return 1
	}
	return v.Index + 1
}

// renderService is a service as clients see it.
func renderService(svc *api.Service) (swarm.Service, error) {
	out, err := convert.ServiceFromGRPC(*svc)
	out.Version.Index = shownVersion(svc)
	return out, err
}

func (s *Server) serviceList(w http.ResponseWriter, r *http.Request) error {
	args, err := parseFilters(r, "id", "name", "label", "mode", "runtime")
	if err != nil {
		return err
	}
	withStatus, err := queryStrictBool(r, "status")
	if err != nil {
		return err
	}
	runtimes := args.Get("runtime")
	if len(runtimes) == 0 {
		runtimes = []string{string(swarm.RuntimeContainer)}
	}
	control := s.cfg.Cluster.Control()
	resp, err := control.ListServices(r.Context(), &api.ListServicesRequest{Filters: &api.ListServicesRequest_Filters{
		NamePrefixes: args.Get("name"), IDPrefixes: args.Get("id"),
		Labels: convertLabelFilters(args.Get("label")), Runtimes: runtimes,
	}}, maxList)
	if err != nil {
		return err
	}
	services := make([]swarm.Service, 0, len(resp.Services))
	ids := make([]string, 0, len(resp.Services))
	for _, svc := range resp.Services {
		if !args.ExactMatch("mode", modeName(&svc.Spec)) {
			continue
		}
		shown, err := renderService(svc)
		if err != nil {
			return err
		}
		services = append(services, shown)
		ids = append(ids, svc.ID)
	}
	slices.SortFunc(services, func(a, b swarm.Service) int { return a.CreatedAt.Compare(b.CreatedAt) })
	if withStatus && since(r, "1.41") {
		statuses, err := control.ListServiceStatuses(r.Context(), &api.ListServiceStatusesRequest{Services: ids}, maxList)
		if err != nil {
			return err
		}
		byID := make(map[string]*swarm.ServiceStatus, len(statuses.Statuses))
		for _, st := range statuses.Statuses {
			byID[st.ServiceID] = &swarm.ServiceStatus{
				RunningTasks: st.RunningTasks, DesiredTasks: st.DesiredTasks, CompletedTasks: st.CompletedTasks,
			}
		}
		for i := range services {
			services[i].ServiceStatus = byID[services[i].ID]
		}
	}
	return writeJSON(w, http.StatusOK, services)
}

// modeName is a service's mode as the mode filter names it.
func modeName(spec *api.ServiceSpec) string {
	switch spec.GetMode().(type) {
	case *api.ServiceSpec_Global:
		return "global"
	case *api.ServiceSpec_ReplicatedJob:
		return "replicated-job"
	case *api.ServiceSpec_GlobalJob:
		return "global-job"
	}
	return "replicated"
}

func (s *Server) serviceInspect(w http.ResponseWriter, r *http.Request) error {
	insertDefaults, err := queryStrictBool(r, "insertDefaults")
	if err != nil {
		return err
	}
	svc, err := s.findService(r.Context(), pathVar(r, "id"))
	if err != nil {
		return err
	}
	if insertDefaults {
		resp, err := s.cfg.Cluster.Control().GetService(r.Context(), &api.GetServiceRequest{ServiceID: svc.ID, InsertDefaults: true})
		if err != nil {
			return err
		}
		svc = resp.Service
	}
	shown, err := renderService(svc)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, shown)
}

func (s *Server) serviceRemove(_ http.ResponseWriter, r *http.Request) error {
	svc, err := s.findService(r.Context(), pathVar(r, "id"))
	if err != nil {
		return err
	}
	_, err = s.cfg.Cluster.Control().RemoveService(r.Context(), &api.RemoveServiceRequest{ServiceID: svc.ID})
	return err
}
