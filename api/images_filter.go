// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"cmp"
	"net/http"
	"slices"
	"time"

	"github.com/distribution/reference"
	"github.com/docker/docker/api/types/filters"
	imagetypes "github.com/docker/docker/api/types/image"

	"satld/image"
)

// imageQuery selects images for a list.
type imageQuery struct {
	filters       filters.Args
	dangling      *bool
	before, since time.Time // zero: no bound
	references    []string
}

// imageQuery reads the query of GET /images/json.
func (s *Server) imageQuery(r *http.Request) (*imageQuery, error) {
	args, err := parseFilters(r, "before", "dangling", "label", "reference", "since", "until")
	if err != nil {
		return nil, err
	}
	if since(r, "1.47") && queryBool(r, "manifests") {
		return nil, errNotSupported("manifests of images are not kept")
	}
	q := &imageQuery{filters: args, references: args.Get("reference")}
	if old := r.URL.Query().Get("filter"); old != "" && !since(r, "1.41") {
		q.references = append(q.references, old)
	}
	for _, pattern := range q.references {
		if _, err := reference.FamiliarMatch(pattern, reference.TrimNamed(anyName)); err != nil {
			return nil, errInvalid("invalid filter 'reference=%s': %v", pattern, err)
		}
	}
	if args.Contains("dangling") {
		dangling, err := args.GetBoolOrDefault("dangling", false)
		if err != nil {
			return nil, err
		}
		q.dangling = &dangling
	}
	for _, v := range args.Get("before") {
		img, err := s.image(v)
		if err != nil {
			return nil, err
		}
		q.notBefore(img.Created)
	}
	for _, v := range args.Get("until") {
		t, err := parseTime(v, time.Now())
		if err != nil {
			return nil, errInvalid("invalid filter 'until=%s': %v", v, err)
		}
		q.notBefore(t)
	}
	for _, v := range args.Get("since") {
		img, err := s.image(v)
		if err != nil {
			return nil, err
		}
		if q.since.Before(img.Created) {
			q.since = img.Created
		}
	}
	return q, nil
}

// anyName is there to try a pattern on.
var anyName, _ = reference.ParseNormalizedNamed("name")

// notBefore narrows the query to images made before t.
func (q *imageQuery) notBefore(t time.Time) {
	if q.before.IsZero() || t.Before(q.before) {
		q.before = t
	}
}

// choose picks and renders images, newest first.
func (q *imageQuery) choose(list []image.Image) []*imagetypes.Summary {
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b image.Image) int { return cmp.Or(b.Created.Compare(a.Created), cmp.Compare(a.ID, b.ID)) })
	var out []*imagetypes.Summary
	for _, img := range list {
		if !q.before.IsZero() && !img.Created.Before(q.before) || !q.since.IsZero() && !img.Created.After(q.since) ||
			!q.filters.MatchKVList("label", img.Config.Config.Labels) {
			continue
		}
		tags, digests := q.named(img.RepoTags), q.named(img.RepoDigests)
		if len(q.references) > 0 && len(tags)+len(digests) == 0 {
			continue
		}
		if q.dangling != nil && *q.dangling != (len(img.RepoTags) == 0) {
			continue
		}
		out = append(out, imageSummary(img, tags, digests))
	}
	return out
}

// named keeps the names that a reference filter matches.
func (q *imageQuery) named(names []string) []string {
	if len(q.references) == 0 {
		return names
	}
	var out []string
	for _, name := range names {
		ref, err := reference.ParseNormalizedNamed(name)
		if err != nil {
			continue
		}
		for _, pattern := range q.references {
			if ok, _ := reference.FamiliarMatch(pattern, ref); ok { // checked when it was read
				out = append(out, name)
				break
			}
		}
	}
	return out
}
