// SPDX-License-Identifier: BSD-2-Clause

package image

import (
	"regexp"
	"strings"

	"github.com/distribution/reference"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// parseName normalises a name as Docker does: docker.io and library/ are
// filled in, and the tag latest where there is neither tag nor digest. A
// digest wins over a tag beside it. Errors are ErrInvalidArgument.
func parseName(s string) (reference.Named, error) {
	named, err := reference.ParseNormalizedNamed(s)
	if err != nil {
		return nil, errInvalid("invalid reference %q: %v", s, err)
	}
	if digested, ok := named.(reference.Canonical); ok {
		return reference.WithDigest(reference.TrimNamed(named), digested.Digest())
	}
	return reference.TagNameOnly(named), nil
}

// parseTag is parseName for a name that is to be given: no digest, and nothing
// that could be mistaken for an image ID.
func parseTag(s string) (reference.NamedTagged, error) {
	if isID(s) {
		return nil, errInvalid("invalid reference %q: an image ID cannot be a name", s)
	}
	named, err := parseName(s)
	if err != nil {
		return nil, err
	}
	tagged, ok := named.(reference.NamedTagged)
	if !ok {
		return nil, errInvalid("refusing to create a tag with a digest reference: %s", s)
	}
	if reference.FamiliarName(named) == "sha256" {
		return nil, errInvalid("refusing to create an ambiguous tag using digest algorithm as name")
	}
	return tagged, nil
}

var (
	fullID   = regexp.MustCompile(`^(sha256:)?[0-9a-f]{64}$`)
	prefixID = regexp.MustCompile(`^(sha256:)?[0-9a-f]{1,64}$`)
)

// isID tells whether s is a whole image ID, with or without its algorithm.
func isID(s string) bool { return fullID.MatchString(s) }

// hexOf is the hex part of an ID or digest.
func hexOf(id string) string { return strings.TrimPrefix(id, "sha256:") }

// shortID is an ID as messages and progress show it.
func shortID(id string) string {
	h := hexOf(id)
	return h[:min(len(h), 12)]
}

// familiar is a stored name in its short form: "nginx:1".
func familiar(stored string) string {
	named, err := reference.ParseNormalizedNamed(stored)
	if err != nil {
		return stored
	}
	return reference.FamiliarString(named)
}

func familiars(names []string) []string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = familiar(n)
	}
	return out
}

// repository is the name of a stored reference without tag and digest.
func repository(stored string) string {
	named, err := reference.ParseNormalizedNamed(stored)
	if err != nil {
		return stored
	}
	return named.Name()
}

// canonicalName is name@digest in full form.
func canonicalName(name reference.Named, digest v1.Hash) string {
	return name.Name() + "@" + digest.String()
}

// identifier is the tag or digest of a name.
func identifier(named reference.Named) string {
	switch n := named.(type) {
	case reference.Digested:
		return n.Digest().String()
	case reference.Tagged:
		return n.Tag()
	}
	return ""
}
