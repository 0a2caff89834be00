// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"net/http"
	"time"

	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/build"
	"github.com/docker/docker/api/types/container"
	imagetypes "github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/volume"
)

func (s *Server) dfRoutes(r *routes) {
	local := r.whileLoading()
	local.get("/system/df", s.diskUsage)
	// `docker system prune` asks for this one too: there is nothing to prune.
	local.post("/build/prune", func(w http.ResponseWriter, _ *http.Request) error {
		return writeJSON(w, http.StatusOK, &build.CachePruneReport{})
	})
}

// diskUsage is GET /system/df: sizes of images and containers. There are no
// volumes and no build cache to count. Objects that were not asked for are null.
func (s *Server) diskUsage(w http.ResponseWriter, r *http.Request) error {
	asked := map[types.DiskUsageObject]bool{}
	values, some := r.URL.Query()["type"]
	for _, v := range values {
		switch o := types.DiskUsageObject(v); o {
		case types.ContainerObject, types.ImageObject, types.VolumeObject, types.BuildCacheObject:
			asked[o] = true
		default:
			return errInvalid("unknown object type: %s", v)
		}
	}
	all := !some || !since(r, "1.42")
	var out types.DiskUsage
	if all || asked[types.ImageObject] {
		out.LayersSize = s.cfg.Images.LayersSize()
		out.Images = s.imageUsage(r)
	}
	if all || asked[types.ContainerObject] {
		out.Containers = s.containerUsage(r)
	}
	if all || asked[types.VolumeObject] {
		out.Volumes = []*volume.Volume{}
	}
	if all || asked[types.BuildCacheObject] {
		out.BuildCache = []*build.CacheRecord{}
	}
	return writeJSON(w, http.StatusOK, &out)
}

// imageUsage lists all images with how many containers use them.
func (s *Server) imageUsage(r *http.Request) []*imagetypes.Summary {
	inUse := s.imageUses()
	out := []*imagetypes.Summary{}
	for _, sum := range new(imageQuery).choose(s.cfg.Images.List()) {
		sum.Containers, sum.SharedSize = inUse[sum.ID], 0
		forVersion(r, sum)
		out = append(out, sum)
	}
	return out
}

// containerUsage lists all containers with their sizes; one that cannot be
// measured, as it is being removed, counts as empty.
func (s *Server) containerUsage(r *http.Request) []*container.Summary {
	names, now := s.networkNames(), time.Now()
	out := []*container.Summary{}
	for _, c := range s.containersNewestFirst() {
		sum := containerSummary(c, s.shownImage(c), names, now)
		var err error
		if sum.SizeRw, sum.SizeRootFs, err = s.cfg.Containers.Size(r.Context(), c.ID); err != nil {
			s.log.Debug("size of a container not known", "container", shortID(c.ID), "err", err)
		}
		out = append(out, sum)
	}
	return out
}
