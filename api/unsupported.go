// SPDX-License-Identifier: BSD-2-Clause

package api

import "net/http"

// unsupportedRoutes refuse, with a reason, what clients of Docker may ask for
// and satld does not do.
func (s *Server) unsupportedRoutes(r *routes) {
	r = r.whileLoading()
	refuse := func(format string, args ...any) handler {
		return func(http.ResponseWriter, *http.Request) error { return errNotSupported(format, args...) }
	}
	noBuild := refuse("building images is not supported: build elsewhere, then push and pull, or save and load")
	r.post("/build", noBuild)
	r.post("/build/cancel", noBuild)
	r.post("/session", refuse("build sessions are not supported"))
	r.post("/grpc", refuse("build sessions are not supported"))
	noCheckpoint := refuse("checkpoints are not supported")
	r.get("/containers/{name:.*}/checkpoints", noCheckpoint)
	r.post("/containers/{name:.*}/checkpoints", noCheckpoint)
	r.del("/containers/{name}/checkpoints/{checkpoint}", noCheckpoint)

	r.get("/plugins", func(w http.ResponseWriter, r *http.Request) error {
		if _, err := parseFilters(r, "enabled", "capability"); err != nil {
			return err
		}
		return writeJSON(w, http.StatusOK, []struct{}{})
	})
	noPlugins := refuse("plugins are not supported")
	r.get("/plugins/privileges", noPlugins)
	r.post("/plugins/pull", noPlugins)
	r.post("/plugins/create", noPlugins)
	missing := func(_ http.ResponseWriter, r *http.Request) error {
		return errNotFound("plugin %q not found", pathVar(r, "name"))
	}
	r.get("/plugins/{name:.*}/json", missing)
	r.del("/plugins/{name:.*}", missing)
	r.post("/plugins/{name:.*}/{action:enable|disable|push|upgrade|set}", missing)
}
