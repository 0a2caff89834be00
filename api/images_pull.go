// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"context"
	"encoding/base64"
	"net/http"
	"strings"

	"github.com/containerd/errdefs"
	cplatforms "github.com/containerd/platforms"
	"github.com/distribution/reference"
	"github.com/docker/docker/api/types/events"
	"github.com/docker/docker/api/types/registry"
	"github.com/opencontainers/go-digest"

	"satld/image"
)

// requestAuth is the registry's credentials that came with a request. What
// cannot be read is none, as in Docker: many clients send an empty header.
func requestAuth(r *http.Request) image.Auth {
	a, err := registry.DecodeAuthConfig(r.Header.Get(registry.AuthHeader))
	if err != nil || a == nil {
		return image.Auth{}
	}
	out := image.Auth{Username: a.Username, Password: a.Password, IdentityToken: a.IdentityToken, RegistryToken: a.RegistryToken}
	if out.Username == "" && a.Auth != "" {
		if raw, err := base64.StdEncoding.DecodeString(a.Auth); err == nil {
			out.Username, out.Password, _ = strings.Cut(string(raw), ":")
		}
	}
	return out
}

// ownPlatform refuses to fetch an image for another platform than this node's.
func ownPlatform(platform string) error {
	if platform == "" {
		return nil
	}
	want, err := cplatforms.Parse(platform)
	if err != nil {
		return errInvalid("invalid platform %q: %v", platform, err)
	}
	own := cplatforms.DefaultSpec()
	if !cplatforms.OnlyStrict(own).Match(want) {
		return errNotSupported("images for %s are not supported: this node runs %s", cplatforms.Format(cplatforms.Normalize(want)), cplatforms.Format(own))
	}
	return nil
}

// imageCreate is POST /images/create: pull (fromImage) or import (fromSrc).
func (s *Server) imageCreate(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	if since(r, "1.32") {
		if err := ownPlatform(q.Get("platform")); err != nil {
			return err
		}
	}
	switch {
	case q.Get("fromImage") != "":
		return s.imagePull(w, r, q.Get("fromImage"), q.Get("tag"))
	case q.Get("fromSrc") != "":
		return s.imageImport(w, r)
	}
	return errInvalid("one of fromImage and fromSrc is needed")
}

// pullReference makes a reference of fromImage and tag, which may be a digest.
func pullReference(name, tag string) (reference.Named, error) {
	named, err := reference.ParseNormalizedNamed(strings.TrimSuffix(name, ":"))
	if err != nil {
		return nil, errInvalid("%v", err)
	}
	if tag != "" {
		if d, digestErr := digest.Parse(tag); digestErr == nil {
			named, err = reference.WithDigest(reference.TrimNamed(named), d)
		} else {
			named, err = reference.WithTag(reference.TrimNamed(named), tag)
		}
		if err != nil {
			return nil, errInvalid("%v", err)
		}
	}
	if reference.FamiliarName(named) == "scratch" {
		return nil, errForbidden("'scratch' is a reserved name")
	}
	if reference.IsNameOnly(named) {
		return nil, errNotSupported("pulling all tags of %s is not supported: name one", reference.FamiliarName(named))
	}
	return named, nil
}

// imagePull pulls one image. An error before the first word of progress is an
// HTTP error; later ones are the stream's last line.
func (s *Server) imagePull(w http.ResponseWriter, r *http.Request, name, tag string) error {
	named, err := pullReference(name, tag)
	if err != nil {
		return err
	}
	familiar := reference.FamiliarString(named)
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	out := newProgressStream(w, cancel)
	img, err := s.cfg.Images.Pull(ctx, familiar, requestAuth(r), out.progress)
	if errdefs.IsUnauthorized(err) {
		// Docker's words and status: to a 401 the CLI answers by asking for a
		// password, also where nobody is there to type one.
		err = errNotFound("pull access denied for %s, repository does not exist or may require 'docker login': %v", reference.FamiliarName(named), err)
	}
	if err != nil {
		return out.end(err)
	}
	s.imageEvent(events.ActionPull, familiar, reference.FamiliarName(named), img.Config.Config.Labels)
	return out.end(nil)
}
