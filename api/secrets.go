// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"net/http"
)

// secretRoutes are the secrets and configs: there are none, and the lists say
// so with their filters checked, because `docker stack` reads them.
func (s *Server) secretRoutes(r *routes) {
	for _, kind := range []string{"secret", "config"} {
		path := "/" + kind + "s"
		refuse := func(http.ResponseWriter, *http.Request) error {
			return errNotSupported("%ss are not supported yet", kind)
		}
		missing := func(_ http.ResponseWriter, r *http.Request) error {
			return errNotFound("%s %s not found", kind, pathVar(r, "id"))
		}
		r.get(path, s.manager(func(w http.ResponseWriter, r *http.Request) error {
			if _, err := parseFilters(r, "id", "name", "names", "label"); err != nil {
				return err
			}
			return writeJSON(w, http.StatusOK, []struct{}{})
		}))
		r.post(path+"/create", refuse)
		r.get(path+"/{id}", missing)
		r.del(path+"/{id}", missing)
		r.post(path+"/{id}/update", missing)
	}
}
