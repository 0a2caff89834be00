// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"context"
	"net/http"
	"slices"

	"github.com/docker/docker/api/types/swarm"
	"github.com/docker/docker/daemon/cluster/convert"
	"github.com/moby/swarmkit/v2/api"
)

func (s *Server) configRoutes(r *routes) {
	r.get("/configs", s.manager(s.configList))
	r.post("/configs/create", s.manager(s.configCreate))
	r.get("/configs/{id}", s.manager(s.configInspect))
	r.del("/configs/{id}", s.manager(s.configRemove))
	r.post("/configs/{id}/update", s.manager(s.configUpdate))
}

func (s *Server) configList(w http.ResponseWriter, r *http.Request) error {
	args, err := parseFilters(r, "id", "name", "label")
	if err != nil {
		return err
	}
	found, err := s.listConfigs(r.Context(), &api.ListConfigsRequest_Filters{
		NamePrefixes: args.Get("name"), IDPrefixes: args.Get("id"),
		Labels: convertLabelFilters(args.Get("label")),
	})
	if err != nil {
		return err
	}
	configs := make([]swarm.Config, 0, len(found))
	for _, config := range found {
		configs = append(configs, convert.ConfigFromGRPC(config))
	}
	slices.SortFunc(configs, func(a, b swarm.Config) int { return a.CreatedAt.Compare(b.CreatedAt) })
	return writeJSON(w, http.StatusOK, configs)
}

func (s *Server) configInspect(w http.ResponseWriter, r *http.Request) error {
	config, err := s.findConfig(r.Context(), pathVar(r, "id"))
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, convert.ConfigFromGRPC(config))
}

func (s *Server) configCreate(w http.ResponseWriter, r *http.Request) error {
	var in swarm.ConfigSpec
	if err := decodeJSON(w, r, &in); err != nil {
		return err
	}
	if err := admitTemplating(r, "config", in.Templating); err != nil {
		return err
	}
	spec := convert.ConfigSpecToGRPC(in)
	resp, err := s.cfg.Cluster.Control().CreateConfig(r.Context(), &api.CreateConfigRequest{Spec: &spec})
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusCreated, &swarm.ConfigCreateResponse{ID: resp.Config.ID})
}

// configUpdate changes labels, which is all that may change.
func (s *Server) configUpdate(w http.ResponseWriter, r *http.Request) error {
	var in swarm.ConfigSpec
	if err := decodeJSON(w, r, &in); err != nil {
		return err
	}
	version, err := queryVersion(r, "config")
	if err != nil {
		return err
	}
	config, err := s.findConfig(r.Context(), pathVar(r, "id"))
	if err != nil {
		return err
	}
	spec := convert.ConfigSpecToGRPC(in)
	_, err = s.cfg.Cluster.Control().UpdateConfig(r.Context(), &api.UpdateConfigRequest{
		ConfigID: config.ID, ConfigVersion: &api.Version{Index: version}, Spec: &spec,
	})
	return err
}

func (s *Server) configRemove(w http.ResponseWriter, r *http.Request) error {
	config, err := s.findConfig(r.Context(), pathVar(r, "id"))
	if err != nil {
		return err
	}
	if _, err := s.cfg.Cluster.Control().RemoveConfig(r.Context(), &api.RemoveConfigRequest{ConfigID: config.ID}); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s *Server) listConfigs(ctx context.Context, f *api.ListConfigsRequest_Filters) ([]*api.Config, error) {
	resp, err := s.cfg.Cluster.Control().ListConfigs(ctx, &api.ListConfigsRequest{Filters: f}, anySize)
	if err != nil {
		return nil, err
	}
	return resp.Configs, nil
}

// findConfig finds a config by ID, name, or unique prefix of its ID.
func (s *Server) findConfig(ctx context.Context, input string) (*api.Config, error) {
	return uniquely("config", input,
		func(id string) (*api.Config, error) {
			resp, err := s.cfg.Cluster.Control().GetConfig(ctx, &api.GetConfigRequest{ConfigID: id})
			if err != nil {
				return nil, err
			}
			return resp.Config, nil
		},
		func(name string) ([]*api.Config, error) {
			return s.listConfigs(ctx, &api.ListConfigsRequest_Filters{Names: []string{name}})
		},
		func(prefix string) ([]*api.Config, error) {
			return s.listConfigs(ctx, &api.ListConfigsRequest_Filters{IDPrefixes: []string{prefix}})
		})
}
