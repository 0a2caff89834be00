// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"net/http"

	"github.com/docker/docker/api/types/volume"
)

// noVolumes is what whoever asks for a volume is told.
const noVolumes = "volumes are not supported: mount a directory of the host in its place (type bind, with an absolute path as its source)"

// volumeRoutes are the volumes: there are none.
func (s *Server) volumeRoutes(r *routes) {
	missing := func(_ http.ResponseWriter, r *http.Request) error {
		return errNotFound("get %s: no such volume: %s", pathVar(r, "name"), noVolumes)
	}
	r.get("/volumes", func(w http.ResponseWriter, r *http.Request) error {
		if _, err := parseFilters(r, "dangling", "driver", "label", "name"); err != nil {
			return err
		}
		return writeJSON(w, http.StatusOK, &volume.ListResponse{Volumes: []*volume.Volume{}})
	})
	r.post("/volumes/create", func(http.ResponseWriter, *http.Request) error {
		return errNotSupported(noVolumes)
	})
	r.post("/volumes/prune", func(w http.ResponseWriter, r *http.Request) error {
		if _, err := parseFilters(r, "all", "label", "label!"); err != nil {
			return err
		}
		return writeJSON(w, http.StatusOK, &volume.PruneReport{VolumesDeleted: []string{}})
	})
	r.get("/volumes/{name:.*}", missing)
	r.put("/volumes/{name:.*}", missing)
	r.del("/volumes/{name:.*}", func(w http.ResponseWriter, r *http.Request) error {
		if !queryBool(r, "force") {
			return missing(w, r)
		}
		w.WriteHeader(http.StatusNoContent) // it is not there, as was asked for
		return nil
	})
}
