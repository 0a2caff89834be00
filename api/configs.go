// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"context"
	"net/http"
	"time"

	"github.com/docker/docker/api/types/swarm"
	"github.com/docker/docker/daemon/cluster/convert"
	"github.com/moby/swarmkit/v2/api"
)

// configs are listed with what is in them, as much as that may be.
func (s *Server) configs() *payload[api.Config, swarm.Config, swarm.ConfigSpec] {
	control := s.cfg.Cluster.Control
	return &payload[api.Config, swarm.Config, swarm.ConfigSpec]{
		what: "config", filters: []string{"id", "name", "label"},
		list: func(ctx context.Context, f payloadFilters) ([]*api.Config, error) {
			resp, err := control().ListConfigs(ctx, &api.ListConfigsRequest{Filters: &api.ListConfigsRequest_Filters{
				Names: f.Names, NamePrefixes: f.NamePrefixes, IDPrefixes: f.IDPrefixes, Labels: f.Labels,
			}}, anySize)
			if err != nil {
				return nil, err
			}
			return resp.Configs, nil
		},
		get: func(ctx context.Context, id string) (*api.Config, error) {
			resp, err := control().GetConfig(ctx, &api.GetConfigRequest{ConfigID: id})
			if err != nil {
				return nil, err
			}
			return resp.Config, nil
		},
		create: func(ctx context.Context, in swarm.ConfigSpec) (string, error) {
			spec := convert.ConfigSpecToGRPC(in)
			resp, err := control().CreateConfig(ctx, &api.CreateConfigRequest{Spec: &spec})
			if err != nil {
				return "", err
			}
			return resp.Config.ID, nil
		},
		update: func(ctx context.Context, id string, version uint64, in swarm.ConfigSpec) error {
			spec := convert.ConfigSpecToGRPC(in)
			_, err := control().UpdateConfig(ctx, &api.UpdateConfigRequest{ConfigID: id, ConfigVersion: &api.Version{Index: version}, Spec: &spec})
			return err
		},
		remove: func(ctx context.Context, id string) error {
			_, err := control().RemoveConfig(ctx, &api.RemoveConfigRequest{ConfigID: id})
			return err
		},
		admit: func(r *http.Request, in swarm.ConfigSpec) error {
			return admitTemplating(r, "config", in.Templating)
		},
		id:   func(stored *api.Config) string { return stored.ID },
		show: convert.ConfigFromGRPC,
		made: func(shown swarm.Config) time.Time { return shown.CreatedAt },
	}
}
