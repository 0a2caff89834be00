// SPDX-License-Identifier: BSD-2-Clause

package api

import "net/http"

func (s *Server) systemRoutes(r *routes) {
	early := r.whileLoading()
	early.get("/_ping", s.ping)
	early.head("/_ping", s.ping)
	r.mux.Methods(http.MethodOptions).HandlerFunc(s.wrap(func(w http.ResponseWriter, _ *http.Request) error {
		w.WriteHeader(http.StatusOK)
		return nil
	}, true))
}

// ping answers whether or not the store is loaded.
func (s *Server) ping(w http.ResponseWriter, r *http.Request) error {
	h := w.Header()
	h.Set("Cache-Control", "no-cache, no-store, must-revalidate")
	h.Set("Pragma", "no-cache")
	h.Set("Swarm", s.swarmStatus())
	h.Set("Content-Type", "text/plain; charset=utf-8")
	if r.Method == http.MethodHead {
		h.Set("Content-Length", "0")
		w.WriteHeader(http.StatusOK)
		return nil
	}
	_, err := w.Write([]byte("OK"))
	return err
}

func (s *Server) swarmStatus() string {
	if s.cfg.Cluster.Manager() {
		return "active/manager"
	}
	return "active/worker"
}
