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

func (s *Server) secretRoutes(r *routes) {
	r.get("/secrets", s.manager(s.secretList))
	r.post("/secrets/create", s.manager(s.secretCreate))
	r.get("/secrets/{id}", s.manager(s.secretInspect))
	r.del("/secrets/{id}", s.manager(s.secretRemove))
	r.post("/secrets/{id}/update", s.manager(s.secretUpdate))
}

func (s *Server) secretList(w http.ResponseWriter, r *http.Request) error {
	args, err := parseFilters(r, "id", "name", "names", "label")
	if err != nil {
		return err
	}
	found, err := s.listSecrets(r.Context(), &api.ListSecretsRequest_Filters{
		Names: args.Get("names"), NamePrefixes: args.Get("name"), IDPrefixes: args.Get("id"),
		Labels: convertLabelFilters(args.Get("label")),
	})
	if err != nil {
		return err
	}
	secrets := make([]swarm.Secret, 0, len(found))
	for _, secret := range found {
		secrets = append(secrets, renderSecret(secret))
	}
	slices.SortFunc(secrets, func(a, b swarm.Secret) int { return a.CreatedAt.Compare(b.CreatedAt) })
	return writeJSON(w, http.StatusOK, secrets)
}

// renderSecret is a secret as clients see it: what is in it is told to nobody.
func renderSecret(secret *api.Secret) swarm.Secret {
	out := convert.SecretFromGRPC(secret)
	out.Spec.Data = nil
	return out
}

func (s *Server) secretInspect(w http.ResponseWriter, r *http.Request) error {
	secret, err := s.findSecret(r.Context(), pathVar(r, "id"))
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, renderSecret(secret))
}

func (s *Server) secretCreate(w http.ResponseWriter, r *http.Request) error {
	var in swarm.SecretSpec
	if err := decodeJSON(w, r, &in); err != nil {
		return err
	}
	if in.Driver != nil {
		return errNotSupported("secrets of a driver are not supported: there are no plugins")
	}
	if err := admitTemplating(r, "secret", in.Templating); err != nil {
		return err
	}
	spec := convert.SecretSpecToGRPC(in)
	resp, err := s.cfg.Cluster.Control().CreateSecret(r.Context(), &api.CreateSecretRequest{Spec: &spec})
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusCreated, &swarm.SecretCreateResponse{ID: resp.Secret.ID})
}

// secretUpdate changes labels, which is all that may change.
func (s *Server) secretUpdate(w http.ResponseWriter, r *http.Request) error {
	var in swarm.SecretSpec
	if err := decodeJSON(w, r, &in); err != nil {
		return err
	}
	version, err := queryVersion(r, "secret")
	if err != nil {
		return err
	}
	secret, err := s.findSecret(r.Context(), pathVar(r, "id"))
	if err != nil {
		return err
	}
	spec := convert.SecretSpecToGRPC(in)
	_, err = s.cfg.Cluster.Control().UpdateSecret(r.Context(), &api.UpdateSecretRequest{
		SecretID: secret.ID, SecretVersion: &api.Version{Index: version}, Spec: &spec,
	})
	return err
}

func (s *Server) secretRemove(w http.ResponseWriter, r *http.Request) error {
	secret, err := s.findSecret(r.Context(), pathVar(r, "id"))
	if err != nil {
		return err
	}
	if _, err := s.cfg.Cluster.Control().RemoveSecret(r.Context(), &api.RemoveSecretRequest{SecretID: secret.ID}); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s *Server) listSecrets(ctx context.Context, f *api.ListSecretsRequest_Filters) ([]*api.Secret, error) {
	resp, err := s.cfg.Cluster.Control().ListSecrets(ctx, &api.ListSecretsRequest{Filters: f}, maxList)
	if err != nil {
		return nil, err
	}
	return resp.Secrets, nil
}

// findSecret finds a secret by ID, name, or unique prefix of its ID.
func (s *Server) findSecret(ctx context.Context, input string) (*api.Secret, error) {
	return uniquely("secret", input,
		func(id string) (*api.Secret, error) {
			resp, err := s.cfg.Cluster.Control().GetSecret(ctx, &api.GetSecretRequest{SecretID: id})
			if err != nil {
				return nil, err
			}
			return resp.Secret, nil
		},
		func(name string) ([]*api.Secret, error) {
			return s.listSecrets(ctx, &api.ListSecretsRequest_Filters{Names: []string{name}})
		},
		func(prefix string) ([]*api.Secret, error) {
			return s.listSecrets(ctx, &api.ListSecretsRequest_Filters{IDPrefixes: []string{prefix}})
		})
}

// admitTemplating takes the one template language that there is.
func admitTemplating(r *http.Request, what string, t *swarm.Driver) error {
	switch {
	case t == nil:
		return nil
	case !since(r, "1.37"):
		return errInvalid("%s templating is not supported on the specified API version: %s", what, apiVersion(r))
	case t.Name != "golang":
		return errNotSupported("template driver %q of a %s is not supported: there is golang alone", t.Name, what)
	case len(t.Options) > 0:
		return errNotSupported("options of a %s's template driver are not supported: golang has none", what)
	}
	return nil
}
