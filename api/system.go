// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"net/http"
	"runtime"

	"github.com/docker/docker/api/types"
)

func (s *Server) systemRoutes(r *routes) {
	early := r.whileLoading()
	early.get("/_ping", s.ping)
	early.head("/_ping", s.ping)
	early.get("/version", s.version)
	early.get("/info", s.info)
	early.post("/auth", s.authenticate)
	r.mux.Methods(http.MethodOptions).HandlerFunc(s.wrap(func(w http.ResponseWriter, _ *http.Request) error {
		w.WriteHeader(http.StatusOK)
		return nil
	}, open))
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

func (s *Server) version(w http.ResponseWriter, _ *http.Request) error {
	v := types.Version{
		Version: s.cfg.Version, APIVersion: maxVersion, MinAPIVersion: minVersion, GitCommit: s.cfg.Commit,
		GoVersion: runtime.Version(), Os: runtime.GOOS, Arch: runtime.GOARCH, KernelVersion: s.host.kernel, BuildTime: s.cfg.BuildTime,
	}
	v.Platform.Name = "satld"
	v.Components = []types.ComponentVersion{{
		Name: "Engine", Version: v.Version,
		Details: map[string]string{
			"ApiVersion": v.APIVersion, "MinAPIVersion": v.MinAPIVersion, "GitCommit": v.GitCommit, "GoVersion": v.GoVersion,
			"Os": v.Os, "Arch": v.Arch, "KernelVersion": v.KernelVersion, "BuildTime": v.BuildTime, "Experimental": "false",
		},
	}}
	return writeJSON(w, http.StatusOK, &v)
}
