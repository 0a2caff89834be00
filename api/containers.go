// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"io/fs"
	"net/http"
	"path"
	"slices"
	"time"

	"github.com/docker/docker/api/types/container"

	"satld/executor"
)

// containerRoutes are about containers of this node alone: they answer while
// the cluster's store is still loading, and without a quorum.
func (s *Server) containerRoutes(r *routes) {
	local := r.whileLoading()
	local.get("/containers/json", s.containerList)
	local.get("/containers/{name:.*}/json", s.containerInspect)
	local.get("/containers/{name:.*}/top", s.containerTop)
	local.get("/containers/{name:.*}/logs", s.containerLogs)

	local.post("/containers/create", s.containerCreate)
	local.post("/containers/prune", s.containerPrune)
	local.post("/containers/{name:.*}/start", s.containerStart)
	local.post("/containers/{name:.*}/stop", s.containerStop)
	local.post("/containers/{name:.*}/restart", s.containerRestart)
	local.post("/containers/{name:.*}/kill", s.containerKill)
	local.post("/containers/{name:.*}/pause", s.containerPause)
	local.post("/containers/{name:.*}/unpause", s.containerUnpause)
	local.post("/containers/{name:.*}/rename", s.containerRename)
	local.post("/containers/{name:.*}/resize", s.containerResize)
	local.post("/containers/{name:.*}/wait", s.containerWait)
	local.post("/containers/{name:.*}/attach", s.containerAttach)
	local.del("/containers/{name:.*}", s.containerRemove)

	refuse := func(what string) handler {
		return func(_ http.ResponseWriter, r *http.Request) error {
			if name := pathVar(r, "name"); name != "" {
				if _, err := s.cfg.Containers.Get(name); err != nil {
					return err
				}
			}
			return errNotSupported("%s", what)
		}
	}
	local.get("/containers/{name:.*}/attach/ws", refuse("attaching over a websocket is not supported: use POST /containers/{id}/attach"))
	local.get("/containers/{name:.*}/stats", refuse("resource usage statistics of containers are not supported"))
	local.get("/containers/{name:.*}/changes", refuse("listing the changed files of a container is not supported"))
	local.get("/containers/{name:.*}/export", refuse("exporting the file system of a container is not supported"))
	archive := refuse("copying files into and out of containers is not supported: use exec with tar or cat")
	local.head("/containers/{name:.*}/archive", s.archiveStat)
	local.get("/containers/{name:.*}/archive", archive)
	local.put("/containers/{name:.*}/archive", archive)
	local.post("/containers/{name:.*}/update", refuse("changing the limits or the restart policy of a container is not supported: create a new one"))
	local.post("/commit", refuse("making an image of a container is not supported: use import"))
}

// archiveStat is what `docker cp` asks before it copies into a container. Told
// that it cannot be had, the CLI says that there is no such directory; told of
// some directory it goes on, and shows why the copy itself is refused.
func (s *Server) archiveStat(w http.ResponseWriter, r *http.Request) error {
	if _, err := s.cfg.Containers.Get(pathVar(r, "name")); err != nil {
		return err
	}
	stat, err := json.Marshal(container.PathStat{Name: path.Base(r.URL.Query().Get("path")), Mode: fs.ModeDir | 0o755})
	if err != nil {
		return err
	}
	w.Header().Set("X-Docker-Container-Path-Stat", base64.StdEncoding.EncodeToString(stat))
	return nil
}

// containerList is GET /containers/json.
func (s *Server) containerList(w http.ResponseWriter, r *http.Request) error {
	q, err := s.containerQuery(r)
	if err != nil {
		return err
	}
	size := queryBool(r, "size")
	now := time.Now()
	names := s.networkNames()
	out := []*container.Summary{}
	for _, c := range q.choose(s.containersNewestFirst()) {
		summary := containerSummary(c, s.shownImage(c), names, now)
		if size {
			if summary.SizeRw, summary.SizeRootFs, err = s.cfg.Containers.Size(r.Context(), c.ID); err != nil {
				if _, gone := s.cfg.Containers.Get(c.ID); gone != nil {
					continue // removed since it was listed
				}
				return err
			}
		}
		if !since(r, "1.46") {
			summary.HostConfig.Annotations = nil
		}
		out = append(out, summary)
	}
	return writeJSON(w, http.StatusOK, out)
}

// containersNewestFirst lists this node's containers as `docker ps` orders them.
func (s *Server) containersNewestFirst() []executor.Snapshot {
	list := slices.Clone(s.cfg.Containers.List())
	slices.SortFunc(list, func(a, b executor.Snapshot) int {
		return cmp.Or(b.Created.Compare(a.Created), cmp.Compare(a.ID, b.ID))
	})
	return list
}

// shownImage is the image as a list names it: as it was asked for, or its ID
// where that name has come to mean another image or none.
func (s *Server) shownImage(c executor.Snapshot) string {
	if c.Image == c.ImageID || c.ImageID == "" {
		return c.Image
	}
	if img, err := s.cfg.Images.Get(c.Image); err != nil || img.ID != c.ImageID {
		return c.ImageID
	}
	return c.Image
}

// containerInspect is GET /containers/{name}/json. The name may also be a
// task's slot (web.1) or its service's name, so that `docker inspect web`
// shows the health of the task that runs here.
func (s *Server) containerInspect(w http.ResponseWriter, r *http.Request) error {
	c, err := s.cfg.Containers.Get(pathVar(r, "name"))
	if err != nil {
		return err
	}
	out := containerJSON(c, s.networkNames())
	out.ExecIDs = s.execs.of(c.ID)
	out.HostConfig.Runtime = cmp.Or(out.HostConfig.Runtime, s.cfg.Runtime)
	if img, err := s.cfg.Images.Get(c.ImageID); err == nil && img.Config.OS != "" {
		out.Platform = img.Config.OS
	}
	if queryBool(r, "size") {
		rw, root, err := s.cfg.Containers.Size(r.Context(), c.ID)
		if err != nil {
			return err
		}
		out.SizeRw, out.SizeRootFs = &rw, &root
	}
	if !since(r, "1.45") {
		withOldAliases(out)
	}
	return writeJSON(w, http.StatusOK, out)
}

// containerTop is GET /containers/{name}/top.
func (s *Server) containerTop(w http.ResponseWriter, r *http.Request) error {
	titles, rows, err := s.cfg.Containers.Top(r.Context(), pathVar(r, "name"), r.URL.Query().Get("ps_args"))
	if err != nil {
		return err
	}
	if rows == nil {
		rows = [][]string{}
	}
	return writeJSON(w, http.StatusOK, &container.TopResponse{Titles: titles, Processes: rows})
}
