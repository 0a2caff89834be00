// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"context"
	"fmt"
	"net/http"

	"github.com/docker/docker/api/types/registry"
	"github.com/docker/docker/api/types/swarm"
	"github.com/docker/docker/daemon/cluster/convert"
	"github.com/docker/docker/pkg/namesgenerator"
	"github.com/moby/swarmkit/v2/api"
)

func (s *Server) serviceCreate(w http.ResponseWriter, r *http.Request) error {
	var spec swarm.ServiceSpec
	if err := decodeJSON(w, r, &spec); err != nil {
		return err
	}
	auth, err := registryAuth(r)
	if err != nil {
		return err
	}
	if spec.Name == "" {
		spec.Name = namesgenerator.GetRandomName(0)
	}
	grpcSpec, admitted, err := s.admitService(r.Context(), &spec, nil)
	if err != nil {
		return err
	}
	if auth != "" {
		grpcSpec.Task.GetContainer().PullOptions = &api.ContainerSpec_PullOptions{RegistryAuth: auth}
	}
	resp, err := s.cfg.Cluster.Control().CreateService(r.Context(), &api.CreateServiceRequest{Spec: grpcSpec})
	if err != nil {
		return err
	}
	s.tellAdmission(spec.Name, admitted)
	return writeJSON(w, http.StatusCreated, &swarm.ServiceCreateResponse{ID: resp.Service.ID, Warnings: admitted.warnings})
}

func (s *Server) serviceUpdate(w http.ResponseWriter, r *http.Request) error {
	var spec swarm.ServiceSpec
	if err := decodeJSON(w, r, &spec); err != nil {
		return err
	}
	version, err := queryVersion(r, "service")
	if err != nil {
		return err
	}
	rollback := api.UpdateServiceRequest_NONE
	switch v := r.URL.Query().Get("rollback"); v {
	case "", "none":
	case "previous":
		rollback = api.UpdateServiceRequest_PREVIOUS
	default:
		return errInvalid("unrecognized rollback option %s", v)
	}
	auth, err := registryAuth(r)
	if err != nil {
		return err
	}
	current, err := s.findService(r.Context(), pathVar(r, "id"))
	if err != nil {
		return err
	}
	if rollback == api.UpdateServiceRequest_PREVIOUS && current.PreviousSpec != nil {
		// What comes of it is not what the client has sent.
		shown, err := renderService(current)
		if err != nil {
			return err
		}
		spec = *shown.PreviousSpec
	}
	grpcSpec, admitted, err := s.admitService(r.Context(), &spec, current)
	if err != nil {
		return err
	}
	err = updateLoop(r.Context(), func() error {
		got, err := s.cfg.Cluster.Control().GetService(r.Context(), &api.GetServiceRequest{ServiceID: current.ID})
		if err != nil {
			return err
		}
		if shownVersion(got.Service) != version {
			return staleVersion{}
		}
		if err := keepAuth(grpcSpec, got.Service, auth, r.URL.Query().Get("registryAuthFrom")); err != nil {
			return err
		}
		_, err = s.cfg.Cluster.Control().UpdateService(r.Context(), &api.UpdateServiceRequest{
			ServiceID: current.ID, Spec: grpcSpec, ServiceVersion: &got.Service.Meta.Version, Rollback: rollback,
		})
		return err
	})
	if err != nil {
		return err
	}
	s.tellAdmission(spec.Name, admitted)
	return writeJSON(w, http.StatusOK, &swarm.ServiceUpdateResponse{Warnings: admitted.warnings})
}

// registryAuth is the request's registry credentials, checked and as they
// came; "" when there are none.
func registryAuth(r *http.Request) (string, error) {
	encoded := r.Header.Get(registry.AuthHeader)
	if encoded == "" {
		return "", nil
	}
	if _, err := registry.DecodeAuthConfig(encoded); err != nil {
		return "", errInvalid("invalid %s header: %v", registry.AuthHeader, err)
	}
	return encoded, nil
}

// keepAuth puts the registry credentials into spec: the request's own, or
// those that the service has already, so that an update does not lose them.
func keepAuth(spec *api.ServiceSpec, current *api.Service, auth, from string) error {
	container := spec.Task.GetContainer()
	if auth != "" {
		container.PullOptions = &api.ContainerSpec_PullOptions{RegistryAuth: auth}
		return nil
	}
	source := &current.Spec
	switch from {
	case "", swarm.RegistryAuthFromSpec:
	case swarm.RegistryAuthFromPreviousSpec:
		if source = current.PreviousSpec; source == nil {
			return errInvalid("service does not have a previous spec")
		}
	default:
		return errInvalid("unsupported registryAuthFrom value %s", from)
	}
	if c := source.Task.GetContainer(); c != nil {
		container.PullOptions = c.PullOptions
	}
	return nil
}

// admitService checks a spec, writes our defaults into it, resolves its
// networks, and converts it for the store. current is the service that it
// updates, nil at creation.
func (s *Server) admitService(ctx context.Context, spec *swarm.ServiceSpec, current *api.Service) (*api.ServiceSpec, admission, error) {
	admitted, err := admit(spec)
	if err != nil {
		return nil, admission{}, err
	}
	if err := s.resolveNetworks(ctx, spec); err != nil {
		return nil, admission{}, err
	}
	if err := s.containerPortClash(spec); err != nil {
		return nil, admission{}, err
	}
	grpcSpec, err := convert.ServiceSpecToGRPC(*spec)
	if err != nil {
		return nil, admission{}, errInvalid("%v", err)
	}
	admitted.warnings = append(admitted.warnings, s.portWarnings(spec, current)...)
	return &grpcSpec, admitted, nil
}

// tellAdmission logs what was found at a spec, once it is the service's.
func (s *Server) tellAdmission(name string, a admission) {
	if a.applied != "" {
		// One text, so that no format of the log puts quotes into it: operators
		// look for it as the specification words it ("Publishing a port
		// tightens the defaults").
		s.log.Info(fmt.Sprintf("tighter health probe defaults applied to a published service name=%s published=%s applied=%s",
			name, a.published, a.applied))
	}
	for _, warning := range a.warnings {
		s.log.Warn(warning, "name", name)
	}
}
