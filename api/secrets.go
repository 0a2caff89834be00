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

// secrets are shown without what is in them, which is told to nobody.
func (s *Server) secrets() *payload[api.Secret, swarm.Secret, swarm.SecretSpec] {
	control := s.cfg.Cluster.Control
	return &payload[api.Secret, swarm.Secret, swarm.SecretSpec]{
		what: "secret", filters: []string{"id", "name", "names", "label"},
		list: func(ctx context.Context, f payloadFilters) ([]*api.Secret, error) {
			resp, err := control().ListSecrets(ctx, &api.ListSecretsRequest{Filters: &api.ListSecretsRequest_Filters{
				Names: f.Names, NamePrefixes: f.NamePrefixes, IDPrefixes: f.IDPrefixes, Labels: f.Labels,
			}}, maxList)
			if err != nil {
				return nil, err
			}
			return resp.Secrets, nil
		},
		get: func(ctx context.Context, id string) (*api.Secret, error) {
			resp, err := control().GetSecret(ctx, &api.GetSecretRequest{SecretID: id})
			if err != nil {
				return nil, err
			}
			return resp.Secret, nil
		},
		create: func(ctx context.Context, in swarm.SecretSpec) (string, error) {
			spec := convert.SecretSpecToGRPC(in)
			resp, err := control().CreateSecret(ctx, &api.CreateSecretRequest{Spec: &spec})
			if err != nil {
				return "", err
			}
			return resp.Secret.ID, nil
		},
		update: func(ctx context.Context, id string, version uint64, in swarm.SecretSpec) error {
			spec := convert.SecretSpecToGRPC(in)
			_, err := control().UpdateSecret(ctx, &api.UpdateSecretRequest{SecretID: id, SecretVersion: &api.Version{Index: version}, Spec: &spec})
			return err
		},
		remove: func(ctx context.Context, id string) error {
			_, err := control().RemoveSecret(ctx, &api.RemoveSecretRequest{SecretID: id})
			return err
		},
		admit: func(r *http.Request, in swarm.SecretSpec) error {
			if in.Driver != nil {
				return errNotSupported("secrets of a driver are not supported: there are no plugins")
			}
			return admitTemplating(r, "secret", in.Templating)
		},
		id:   func(stored *api.Secret) string { return stored.ID },
		show: renderSecret,
		made: func(shown swarm.Secret) time.Time { return shown.CreatedAt },
	}
}

func renderSecret(secret *api.Secret) swarm.Secret {
	out := convert.SecretFromGRPC(secret)
	out.Spec.Data = nil
	return out
}
