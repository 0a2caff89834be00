// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"net/http"

	"github.com/distribution/reference"
	"github.com/docker/docker/api/types/registry"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

func (s *Server) distributionRoutes(r *routes) {
	r.whileLoading().get("/distribution/{name:.*}/json", s.distributionInspect)
}

// distributionInspect is GET /distribution/{name}/json: what the registry has
// under a name, which the CLI asks for to pin a service's image by digest.
func (s *Server) distributionInspect(w http.ResponseWriter, r *http.Request) error {
	name := pathVar(r, "name")
	ref, err := reference.ParseAnyReference(name)
	if err != nil {
		return errInvalid("%v", err)
	}
	named, ok := ref.(reference.Named)
	if !ok {
		return errInvalid("unknown image reference format: %s", name)
	}
	desc, platforms, err := s.cfg.Images.Digest(r.Context(), reference.FamiliarString(reference.TagNameOnly(named)), requestAuth(r))
	if err != nil {
		return err
	}
	out := registry.DistributionInspect{
		Descriptor: ocispec.Descriptor{MediaType: string(desc.MediaType), Digest: digest.Digest(desc.Digest.String()), Size: desc.Size},
		Platforms:  []ocispec.Platform{},
	}
	for _, p := range platforms {
		out.Platforms = append(out.Platforms, ocispec.Platform{Architecture: p.Architecture, OS: p.OS, OSVersion: p.OSVersion,
			OSFeatures: p.OSFeatures, Variant: p.Variant})
	}
	return writeJSON(w, http.StatusOK, &out)
}
