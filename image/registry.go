// SPDX-License-Identifier: BSD-2-Clause

package image

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/distribution/reference"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

// remoteRef is a normalised name as the registry library has it.
func remoteRef(named reference.Named) (name.Reference, error) {
	var opts []name.Option
	if u, err := url.Parse("//" + reference.Domain(named)); err == nil && isLoopback(u.Hostname()) {
		opts = append(opts, name.Insecure) // allows plain HTTP where HTTPS fails
	}
	registry, err := name.NewRegistry(reference.Domain(named), opts...)
	if err != nil {
		return nil, errInvalid("invalid reference %q: %v", reference.FamiliarString(named), err)
	}
	// Not name.ParseReference, which refuses repositories of one letter.
	repo := registry.Repo(reference.Path(named))
	if digested, ok := named.(reference.Digested); ok {
		return repo.Digest(digested.Digest().String()), nil
	}
	return repo.Tag(identifier(named)), nil
}

func (s *Store) remoteOptions(ctx context.Context, auth Auth) []remote.Option {
	opts := []remote.Option{
		remote.WithContext(ctx),
		remote.WithTransport(s.transport),
		remote.WithUserAgent("satld"),
	}
	if auth != (Auth{}) {
		opts = append(opts, remote.WithAuth(authn.FromConfig(authn.AuthConfig{
			Username:      auth.Username,
			Password:      auth.Password,
			IdentityToken: auth.IdentityToken,
			RegistryToken: auth.RegistryToken,
		})))
	}
	return opts
}

// describe asks the registry for the manifest of a name.
func (s *Store) describe(ctx context.Context, named reference.Named, auth Auth) (*remote.Descriptor, error) {
	ref, err := remoteRef(named)
	if err != nil {
		return nil, err
	}
	desc, err := remote.Get(ref, s.remoteOptions(ctx, auth)...)
	if err != nil {
		return nil, registryError(ctx, named, err)
	}
	return desc, nil
}

// Digest asks the registry for the digest and the platforms of ref.
func (s *Store) Digest(ctx context.Context, ref string, auth Auth) (v1.Descriptor, []v1.Platform, error) {
	named, err := parseName(ref)
	if err != nil {
		return v1.Descriptor{}, nil, err
	}
	desc, err := s.describe(ctx, named, auth)
	if err != nil {
		return v1.Descriptor{}, nil, err
	}
	if !desc.MediaType.IsIndex() {
		img, err := desc.Image()
		if err != nil {
			return v1.Descriptor{}, nil, registryError(ctx, named, err)
		}
		c, err := img.ConfigFile()
		if err != nil {
			return v1.Descriptor{}, nil, registryError(ctx, named, err)
		}
		return desc.Descriptor, []v1.Platform{{Architecture: c.Architecture, OS: c.OS, OSVersion: c.OSVersion, Variant: c.Variant}}, nil
	}
	list, err := manifestList(named, desc)
	if err != nil {
		return v1.Descriptor{}, nil, err
	}
	var platforms []v1.Platform
	for _, m := range list.Manifests {
		if m.Platform != nil {
			platforms = append(platforms, *m.Platform)
		}
	}
	return desc.Descriptor, platforms, nil
}

func manifestList(named reference.Named, desc *remote.Descriptor) (v1.IndexManifest, error) {
	var list v1.IndexManifest
	if err := json.Unmarshal(desc.Manifest, &list); err != nil {
		return list, errInvalid("invalid manifest list of %s: %v", reference.FamiliarString(named), err)
	}
	return list, nil
}

// registryError gives a registry's answer, or that there was none, its class
// and Docker's words (Docker's distribution/errors.go).
func registryError(ctx context.Context, named reference.Named, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var answer *transport.Error
	var network *net.OpError // not net.Error: any errno, a full disk's too, is one
	var request *url.Error
	switch {
	case errors.As(err, &answer):
		return answerError(named, answer)
	case errors.As(err, &network), errors.As(err, &request), errors.Is(err, errStalled), errors.Is(err, io.ErrUnexpectedEOF):
		return asUnavailable(err)
	}
	return fmt.Errorf("pulling %s: %w", reference.FamiliarString(named), err)
}

func answerError(named reference.Named, answer *transport.Error) error {
	said := fmt.Sprintf("unexpected status %d %s", answer.StatusCode, http.StatusText(answer.StatusCode))
	code := transport.ErrorCode("")
	if len(answer.Errors) > 0 {
		code = answer.Errors[0].Code
		said = strings.ToLower(strings.ReplaceAll(string(code), "_", " "))
		if m := answer.Errors[0].Message; m != "" {
			said += ": " + m
		}
	}
	repo, full := reference.FamiliarName(named), reference.FamiliarString(named)
	switch {
	case code == transport.ManifestUnknownErrorCode:
		return errNotFound("manifest for %s not found: %s", full, said)
	case code == transport.NameUnknownErrorCode:
		return errNotFound("repository %s not found: %s", repo, said)
	case code == transport.DeniedErrorCode, answer.StatusCode == http.StatusForbidden:
		return errNotFound("pull access denied for %s, repository does not exist or may require 'docker login': %s", repo, said)
	case code == transport.UnauthorizedErrorCode, answer.StatusCode == http.StatusUnauthorized:
		if code == "" {
			said = "unauthorized: authentication required"
		}
		return errUnauthenticated("pulling %s: %s", full, said)
	case answer.StatusCode == http.StatusNotFound:
		return errNotFound("manifest for %s not found: manifest unknown: %s", full, said)
	case answer.StatusCode >= 500 || answer.StatusCode == http.StatusTooManyRequests:
		return asUnavailable(fmt.Errorf("pulling %s: %s", full, said))
	}
	return fmt.Errorf("pulling %s: %w", full, answer)
}
