// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"fmt"
	"maps"
	"net/http"
	"strings"

	"github.com/distribution/reference"
	"github.com/docker/docker/api/types/events"
	imagetypes "github.com/docker/docker/api/types/image"

	"satld/image"
)

// imageRoutes are about images of this node alone: they answer while the
// cluster's store is still loading, and without a quorum.
func (s *Server) imageRoutes(r *routes) {
	local := r.whileLoading()
	local.get("/images/json", s.imageList)
	local.get("/images/search", func(http.ResponseWriter, *http.Request) error {
		return errNotSupported("searching a registry is not supported")
	})
	local.get("/images/get", s.imageSave)
	local.get("/images/{name:.*}/get", s.imageSave)
	local.get("/images/{name:.*}/history", s.imageHistory)
	local.get("/images/{name:.*}/json", s.imageInspect)
	local.post("/images/load", s.imageLoad)
	local.post("/images/create", s.imageCreate)
	local.post("/images/prune", s.imagePrune)
	local.post("/images/{name:.*}/push", func(http.ResponseWriter, *http.Request) error {
		return errNotSupported("pushing images is not supported: push from where they are built")
	})
	local.post("/images/{name:.*}/tag", s.imageTag)
	local.del("/images/{name:.*}", s.imageRemove)
}

// image finds an image, or says in Docker's words that there is none: the CLI
// tells people so by the text.
func (s *Server) image(ref string) (image.Image, error) {
	img, err := s.cfg.Images.Get(ref)
	if err != nil && statusOf(err) == http.StatusNotFound {
		return img, errNotFound("No such image: %s", familiarTagged(ref))
	}
	return img, err
}

// noPlatforms refuses a choice of platforms: an image here has one.
func noPlatforms(r *http.Request, param, version string) error {
	if since(r, version) && r.URL.Query().Get(param) != "" {
		return errNotSupported("choosing among the platforms of an image is not supported: only this node's own is kept")
	}
	return nil
}

// imageEvent publishes an image event in Docker's shape.
func (s *Server) imageEvent(action events.Action, id, name string, labels map[string]string) {
	attributes := map[string]string{}
	maps.Copy(attributes, labels)
	attributes["name"] = name
	s.cfg.Events.Publish(events.Message{Type: events.ImageEventType, Action: action,
		Actor:  events.Actor{ID: id, Attributes: attributes},
		Status: string(action), ID: id})
}

// imageList is GET /images/json.
func (s *Server) imageList(w http.ResponseWriter, r *http.Request) error {
	q, err := s.imageQuery(r)
	if err != nil {
		return err
	}
	inUse := s.imageUses()
	out := []*imagetypes.Summary{}
	for _, sum := range q.choose(s.cfg.Images.List()) {
		sum.Containers = -1
		if since(r, "1.51") {
			sum.Containers = inUse[sum.ID]
		}
		if since(r, "1.42") && queryBool(r, "shared-size") {
			sum.SharedSize = 0 // layers are counted to each image that has them
		}
		forVersion(r, sum)
		out = append(out, sum)
	}
	return writeJSON(w, http.StatusOK, out)
}

// imageUses counts the containers of each image.
func (s *Server) imageUses() map[string]int64 {
	uses := map[string]int64{}
	for _, c := range s.cfg.Containers.List() {
		uses[c.ImageID]++
	}
	return uses
}

// imageInspect is GET /images/{name}/json.
func (s *Server) imageInspect(w http.ResponseWriter, r *http.Request) error {
	if since(r, "1.48") && queryBool(r, "manifests") {
		return errNotSupported("manifests of images are not kept")
	}
	if err := noPlatforms(r, "platform", "1.49"); err != nil {
		return err
	}
	img, err := s.image(pathVar(r, "name"))
	if err != nil {
		return err
	}
	out, err := imageJSON(img, apiVersion(r))
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, out)
}

// imageHistory is GET /images/{name}/history.
func (s *Server) imageHistory(w http.ResponseWriter, r *http.Request) error {
	if err := noPlatforms(r, "platform", "1.48"); err != nil {
		return err
	}
	img, err := s.image(pathVar(r, "name"))
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, history(img))
}

// repoTag makes a reference of the repo and tag parameters; tag may be a
// digest only where that makes sense, so not here.
func repoTag(repo, tag string) (reference.NamedTagged, error) {
	named, err := reference.ParseNormalizedNamed(repo)
	if err != nil {
		return nil, errInvalid("%v", err)
	}
	if _, ok := named.(reference.Digested); ok {
		return nil, errInvalid("cannot import digest reference")
	}
	if tag != "" {
		if named, err = reference.WithTag(reference.TrimNamed(named), tag); err != nil {
			return nil, errInvalid("%v", err)
		}
	}
	if err := checkRepoName(named); err != nil {
		return nil, err
	}
	return reference.TagNameOnly(named).(reference.NamedTagged), nil
}

// checkRepoName refuses the names that mean something else.
func checkRepoName(named reference.Named) error {
	switch reference.FamiliarName(named) {
	case "scratch":
		return errForbidden("'scratch' is a reserved name")
	case "sha256":
		return errInvalid("refusing to create an ambiguous tag using digest algorithm as name")
	}
	return nil
}

// imageTag is POST /images/{name}/tag.
func (s *Server) imageTag(w http.ResponseWriter, r *http.Request) error {
	target, err := repoTag(r.URL.Query().Get("repo"), r.URL.Query().Get("tag"))
	if err != nil {
		return err
	}
	img, err := s.image(pathVar(r, "name"))
	if err != nil {
		return err
	}
	familiar := reference.FamiliarString(target)
	if err := s.cfg.Images.Tag(img.ID, familiar); err != nil {
		return err
	}
	s.imageEvent(events.ActionTag, img.ID, familiar, img.Config.Config.Labels)
	w.WriteHeader(http.StatusCreated)
	return nil
}

// imageRemove is DELETE /images/{name}. There are no untagged parents to
// keep, so noprune changes nothing.
func (s *Server) imageRemove(w http.ResponseWriter, r *http.Request) error {
	name := pathVar(r, "name")
	if strings.TrimSpace(name) == "" {
		return errInvalid("image name cannot be blank")
	}
	if err := noPlatforms(r, "platforms", "1.50"); err != nil {
		return err
	}
	removed, err := s.removeImage(r, name, queryBool(r, "force"))
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, removed)
}

// removeImage removes an image or one of its tags and publishes what became of it.
func (s *Server) removeImage(r *http.Request, name string, force bool) ([]imagetypes.DeleteResponse, error) {
	img, err := s.image(name)
	if err != nil {
		return nil, err
	}
	untagged, deleted, err := s.cfg.Images.Remove(r.Context(), name, force)
	if err != nil {
		return nil, err
	}
	removed := []imagetypes.DeleteResponse{}
	for _, tag := range untagged {
		removed = append(removed, imagetypes.DeleteResponse{Untagged: tag})
		s.imageEvent(events.ActionUnTag, img.ID, img.ID, img.Config.Config.Labels)
	}
	for _, id := range deleted {
		removed = append(removed, imagetypes.DeleteResponse{Deleted: id})
		if id == img.ID {
			s.imageEvent(events.ActionDelete, id, id, nil)
		}
	}
	return removed, nil
}

// imagePrune is POST /images/prune: untagged images, or with dangling=false
// all that no container uses.
func (s *Server) imagePrune(w http.ResponseWriter, r *http.Request) error {
	args, until, err := pruneFilters(r, "dangling", "label", "label!", "until")
	if err != nil {
		return err
	}
	dangling, err := args.GetBoolOrDefault("dangling", true)
	if err != nil {
		return err
	}
	report := imagetypes.PruneReport{}
	before := s.cfg.Images.LayersSize()
	inUse := s.imageUses()
	for _, img := range s.cfg.Images.List() {
		if dangling && len(img.RepoTags) > 0 || inUse[img.ID] > 0 || !until.IsZero() && img.Created.After(until) ||
			!matchesPrune(args, img.Config.Config.Labels) {
			continue
		}
		names := img.RepoTags
		if len(names) == 0 {
			names = []string{img.ID}
		}
		for _, name := range names {
			if r.Context().Err() != nil {
				break
			}
			removed, err := s.removeImage(r, name, false)
			if err != nil {
				s.log.Warn("image not pruned", "image", name, "err", err)
				continue
			}
			report.ImagesDeleted = append(report.ImagesDeleted, removed...)
		}
	}
	if freed := before - s.cfg.Images.LayersSize(); freed > 0 {
		report.SpaceReclaimed = uint64(freed)
	}
	s.cfg.Events.Publish(events.Message{Type: events.ImageEventType, Action: events.ActionPrune,
		Actor: events.Actor{Attributes: map[string]string{"reclaimed": fmt.Sprint(report.SpaceReclaimed)}}})
	return writeJSON(w, http.StatusOK, &report)
}
