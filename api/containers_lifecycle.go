// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/docker/docker/api/types/container"
	dockerevents "github.com/docker/docker/api/types/events"
	"github.com/docker/docker/api/types/filters"
	timetypes "github.com/docker/docker/api/types/time"

	"satld/events"
)

// changeBound is how long a change that should be quick may take; then the
// client is told, and the executor goes on by itself with what it began.
const changeBound = time.Minute

// changing gives the context of a change of a container: it is carried out to
// its end also when the client that asked for it leaves, so that none is left
// half done.
func changing(r *http.Request) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(r.Context()), changeBound)
}

// containerStart is POST /containers/{name}/start.
func (s *Server) containerStart(w http.ResponseWriter, r *http.Request) error {
	// A host configuration at start was dropped by Docker with API 1.24; an
	// empty object ("{}", "null") is no configuration.
	if r.ContentLength > 7 || r.ContentLength == -1 {
		return errInvalid("starting container with non-empty request body was deprecated since API v1.22 and removed in v1.24")
	}
	if r.URL.Query().Get("checkpoint") != "" {
		return errNotSupported("starting a container from a checkpoint is not supported")
	}
	ctx, cancel := changing(r)
	defer cancel()
	return s.changed(w, notStarted(s.cfg.Containers.Start(ctx, pathVar(r, "name"))))
}

// changed answers a change of a container: no content, or the error.
func (s *Server) changed(w http.ResponseWriter, err error) error {
	if err == nil {
		w.WriteHeader(http.StatusNoContent)
	}
	return err
}

// stopOptions reads the grace in seconds (nil: the container's own, -1: wait
// for ever) and the signal of a stop or a restart.
func stopOptions(r *http.Request) (grace *int, signal string, err error) {
	if r.URL.Query().Get("t") != "" {
		n, err := queryInt(r, "t", 0)
		if err != nil {
			return nil, "", err
		}
		seconds := int(n)
		grace = &seconds
	}
	if since(r, "1.42") {
		signal = r.URL.Query().Get("signal")
	}
	return grace, signal, nil
}

// containerStop is POST /containers/{name}/stop.
func (s *Server) containerStop(w http.ResponseWriter, r *http.Request) error {
	grace, signal, err := stopOptions(r)
	if err != nil {
		return err
	}
	return s.changed(w, s.cfg.Containers.Stop(context.WithoutCancel(r.Context()), pathVar(r, "name"), grace, signal))
}

// containerRestart is POST /containers/{name}/restart.
func (s *Server) containerRestart(w http.ResponseWriter, r *http.Request) error {
	grace, signal, err := stopOptions(r)
	if err != nil {
		return err
	}
	return s.changed(w, notStarted(s.cfg.Containers.Restart(context.WithoutCancel(r.Context()), pathVar(r, "name"), grace, signal)))
}

// containerKill is POST /containers/{name}/kill.
func (s *Server) containerKill(w http.ResponseWriter, r *http.Request) error {
	name := pathVar(r, "name")
	ctx, cancel := changing(r)
	defer cancel()
	err := s.cfg.Containers.Kill(ctx, name, r.URL.Query().Get("signal"))
	if err != nil {
		return fmt.Errorf("cannot kill container: %s: %w", name, err)
	}
	return s.changed(w, nil)
}

// containerPause is POST /containers/{name}/pause.
func (s *Server) containerPause(w http.ResponseWriter, r *http.Request) error {
	ctx, cancel := changing(r)
	defer cancel()
	return s.changed(w, s.cfg.Containers.Pause(ctx, pathVar(r, "name")))
}

// containerUnpause is POST /containers/{name}/unpause.
func (s *Server) containerUnpause(w http.ResponseWriter, r *http.Request) error {
	ctx, cancel := changing(r)
	defer cancel()
	return s.changed(w, s.cfg.Containers.Unpause(ctx, pathVar(r, "name")))
}

// containerRename is POST /containers/{name}/rename.
func (s *Server) containerRename(w http.ResponseWriter, r *http.Request) error {
	name, err := containerName(r.URL.Query().Get("name"))
	if err != nil {
		return err
	}
	if name == "" {
		return errInvalid("Neither old nor new names may be empty")
	}
	ctx, cancel := changing(r)
	defer cancel()
	return s.changed(w, s.cfg.Containers.Rename(ctx, pathVar(r, "name"), name))
}

// containerRemove is DELETE /containers/{name}.
func (s *Server) containerRemove(w http.ResponseWriter, r *http.Request) error {
	if queryBool(r, "link") {
		return errNotSupported("links between containers are not supported")
	}
	ctx, cancel := changing(r)
	defer cancel()
	return s.changed(w, s.cfg.Containers.Remove(ctx, pathVar(r, "name"), queryBool(r, "force"), queryBool(r, "v")))
}

// containerResize is POST /containers/{name}/resize.
func (s *Server) containerResize(w http.ResponseWriter, r *http.Request) error {
	width, height, err := terminalSize(r)
	if err != nil {
		return err
	}
	if err := s.cfg.Containers.Resize(r.Context(), pathVar(r, "name"), width, height); err != nil {
		return err
	}
	w.WriteHeader(http.StatusOK)
	return nil
}

// terminalSize reads h and w: rows and columns.
func terminalSize(r *http.Request) (width, height uint16, err error) {
	read := func(name, what string) (uint16, error) {
		v := r.URL.Query().Get(name)
		n, err := strconv.ParseUint(v, 10, 16)
		if err != nil {
			return 0, errInvalid("invalid resize %s %q: must be a number up to 65535", what, v)
		}
		return uint16(n), nil
	}
	if height, err = read("h", "height"); err != nil {
		return 0, 0, err
	}
	width, err = read("w", "width")
	return width, height, err
}

// containerWait is POST /containers/{name}/wait. The head of the answer is
// sent at once, so that the client knows the wait has begun before it starts
// the container.
func (s *Server) containerWait(w http.ResponseWriter, r *http.Request) error {
	condition := container.WaitConditionNotRunning
	headFirst := since(r, "1.30")
	if v := r.URL.Query().Get("condition"); v != "" && headFirst {
		condition = container.WaitCondition(v)
		switch condition {
		case container.WaitConditionNotRunning, container.WaitConditionNextExit, container.WaitConditionRemoved:
		default:
			return errInvalid("invalid condition: %q", v)
		}
	}
	end, err := s.cfg.Containers.Wait(r.Context(), pathVar(r, "name"), condition)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	if headFirst {
		w.WriteHeader(http.StatusOK)
		if err := http.NewResponseController(w).Flush(); err != nil {
			return fmt.Errorf("answer a wait: %w", err)
		}
	}
	select {
	case <-r.Context().Done():
		return r.Context().Err()
	case res := <-end:
		out := container.WaitResponse{StatusCode: int64(res.ExitCode)}
		if res.Err != nil {
			out.Error = &container.WaitExitError{Message: res.Err.Error()}
		}
		return json.NewEncoder(w).Encode(&out)
	}
}

// containerPrune is POST /containers/prune. Containers of tasks are left to
// the engine: it removes them when it has read how they ended.
func (s *Server) containerPrune(w http.ResponseWriter, r *http.Request) error {
	args, until, err := pruneFilters(r, "label", "label!", "until")
	if err != nil {
		return err
	}
	report := container.PruneReport{}
	ctx := context.WithoutCancel(r.Context())
	for _, c := range s.cfg.Containers.List() {
		if c.State.Live() || c.TaskID != "" || !until.IsZero() && c.Created.After(until) || !matchesPrune(args, shownLabels(c)) {
			continue
		}
		if r.Context().Err() != nil {
			break
		}
		size, _, sizeErr := s.cfg.Containers.Size(ctx, c.ID)
		if err := s.cfg.Containers.Remove(ctx, c.ID, false, false); err != nil {
			s.log.Warn("container not pruned", "container", shortID(c.ID), "err", err)
			continue
		}
		if sizeErr == nil && size > 0 {
			report.SpaceReclaimed += uint64(size)
		}
		report.ContainersDeleted = append(report.ContainersDeleted, c.ID)
	}
	m := events.Container(dockerevents.ActionPrune, "", map[string]string{"reclaimed": strconv.FormatUint(report.SpaceReclaimed, 10)})
	s.cfg.Events.Publish(m)
	return writeJSON(w, http.StatusOK, &report)
}

// pruneFilters reads the filters of a prune and the time before which things
// are pruned (zero: whenever).
func pruneFilters(r *http.Request, accepted ...string) (filters.Args, time.Time, error) {
	args, err := parseFilters(r, accepted...)
	if err != nil {
		return args, time.Time{}, err
	}
	values := args.Get("until")
	switch len(values) {
	case 0:
		return args, time.Time{}, nil
	case 1:
		until, err := parseTime(values[0], time.Now())
		if err != nil {
			return args, time.Time{}, errInvalid("invalid filter 'until=%s': %v", values[0], err)
		}
		return args, until, nil
	}
	return args, time.Time{}, errInvalid("more than one until filter specified")
}

// parseTime reads a point in time as queryTime does.
func parseTime(v string, now time.Time) (time.Time, error) {
	ts, err := timetypes.GetTimestamp(v, now)
	if err != nil {
		return time.Time{}, err
	}
	sec, nano, err := timetypes.ParseTimestamps(ts, 0)
	if err != nil {
		return time.Time{}, err
	}
	return time.Unix(sec, nano), nil
}

// matchesPrune tells whether labels are asked for, and none of them is spared.
func matchesPrune(args filters.Args, labels map[string]string) bool {
	return args.MatchKVList("label", labels) && !(args.Contains("label!") && args.MatchKVList("label!", labels))
}
