// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/registry"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

// authTimeout bounds the check of credentials against a registry.
const authTimeout = 15 * time.Second

// authenticate checks credentials against their registry, for `docker login`.
// Nothing is kept: clients send them with each request that needs them.
func (s *Server) authenticate(w http.ResponseWriter, r *http.Request) error {
	var auth registry.AuthConfig
	if err := decodeJSON(w, r, &auth); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), authTimeout)
	defer cancel()
	if err := checkCredentials(ctx, &auth); err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, &registry.AuthenticateOKBody{Status: "Login Succeeded"})
}

// checkCredentials asks the registry's /v2/ whether it takes them.
func checkCredentials(ctx context.Context, auth *registry.AuthConfig) error {
	host := strings.TrimPrefix(strings.TrimPrefix(auth.ServerAddress, "https://"), "http://")
	host, _, _ = strings.Cut(host, "/")
	if host == "" {
		host = name.DefaultRegistry
	}
	reg, err := name.NewRegistry(host)
	if err != nil {
		return errInvalid("invalid registry address %q: %v", auth.ServerAddress, err)
	}
	credentials := authn.FromConfig(authn.AuthConfig{
		Username: auth.Username, Password: auth.Password, IdentityToken: auth.IdentityToken, RegistryToken: auth.RegistryToken,
	})
	t, err := transport.NewWithContext(ctx, reg, credentials, http.DefaultTransport, nil)
	if err != nil {
		return loginError(host, err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, reg.Scheme()+"://"+reg.RegistryStr()+"/v2/", nil)
	if err != nil {
		return loginError(host, err)
	}
	resp, err := (&http.Client{Transport: t}).Do(req)
	if err != nil {
		return loginError(host, err)
	}
	defer resp.Body.Close()
	if err := transport.CheckError(resp, http.StatusOK); err != nil {
		return loginError(host, err)
	}
	return nil
}

// loginError tells refused credentials from a registry that cannot be asked.
func loginError(host string, err error) error {
	var refused *transport.Error
	if errors.As(err, &refused) && (refused.StatusCode == http.StatusUnauthorized || refused.StatusCode == http.StatusForbidden) {
		return errdefs.ErrUnauthenticated.WithMessage("login attempt to " + host + " failed: unauthorized: incorrect username or password")
	}
	return errUnavailable("login attempt to %s failed: %v", host, err)
}
