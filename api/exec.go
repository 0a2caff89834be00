// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/docker/docker/api/types/container"
	dockerevents "github.com/docker/docker/api/types/events"

	"satld/executor"
	"satld/jail"
)

func (s *Server) execRoutes(r *routes) {
	local := r.whileLoading()
	local.post("/containers/{name:.*}/exec", s.execCreate)
	local.post("/exec/{id}/start", s.execStart)
	local.post("/exec/{id}/resize", s.execResize)
	local.get("/exec/{id}/json", s.execInspect)
}

// execTarget finds a container that an exec can run in now.
func (s *Server) execTarget(nameOrID string) (executor.Snapshot, error) {
	c, err := s.cfg.Containers.Get(nameOrID)
	switch {
	case err != nil:
		return c, err
	case c.State == executor.Paused:
		return c, errConflict("Container %s is paused, unpause the container before exec", nameOrID)
	case c.State != executor.Running:
		return c, errConflict("container %s is not running", c.ID)
	}
	return c, nil
}

// execCreate is POST /containers/{name}/exec.
func (s *Server) execCreate(w http.ResponseWriter, r *http.Request) error {
	var options container.ExecOptions
	if err := decodeJSON(w, r, &options); err != nil {
		return err
	}
	if len(options.Cmd) == 0 || options.Cmd[0] == "" {
		return errInvalid("No exec command specified")
	}
	if !since(r, "1.42") || !options.Tty {
		options.ConsoleSize = nil
	}
	if err := checkConsoleSize(options.ConsoleSize); err != nil {
		return err
	}
	if err := checkEnv(options.Env); err != nil {
		return err
	}
	keys, err := parseDetachKeys(options.DetachKeys)
	if err != nil {
		return err
	}
	c, err := s.execTarget(pathVar(r, "name"))
	if err != nil {
		return err
	}
	id := s.execs.add(c.ID, options, keys, time.Now())
	s.execEvent(c, dockerevents.ActionExecCreate, id, options.Cmd, nil)
	return writeJSON(w, http.StatusCreated, &container.ExecCreateResponse{ID: id})
}

// execEvent publishes an event of an exec. exec_create and exec_start carry
// the command in their name, as Docker's do.
func (s *Server) execEvent(c executor.Snapshot, action dockerevents.Action, id string, cmd []string, extra map[string]string) {
	if cmd != nil {
		action = dockerevents.Action(string(action) + ": " + cmd[0] + " " + strings.Join(cmd[1:], " "))
	}
	attributes := map[string]string{"execID": id}
	for k, v := range extra {
		attributes[k] = v
	}
	s.containerEvent(c, action, attributes)
}

// checkConsoleSize refuses a terminal size (rows, columns) that no terminal has.
func checkConsoleSize(size *[2]uint) error {
	if size != nil && (size[0] > 65535 || size[1] > 65535) {
		return errInvalid("invalid console size %dx%d: must be at most 65535", size[0], size[1])
	}
	return nil
}

// execStart is POST /exec/{id}/start: detached, or over the hijacked
// connection. Once it is hijacked an error can only be written into the
// stream, so whatever can be told before is told before.
func (s *Server) execStart(w http.ResponseWriter, r *http.Request) error {
	var options container.ExecStartOptions
	if err := decodeOptionalJSON(w, r, &options); err != nil {
		return err
	}
	e, ok := s.execs.get(pathVar(r, "id"))
	if !ok {
		return errNoSuchExec(pathVar(r, "id"))
	}
	if !since(r, "1.42") || options.ConsoleSize == nil {
		options.ConsoleSize = e.options.ConsoleSize
	}
	if err := checkConsoleSize(options.ConsoleSize); err != nil {
		return err
	}
	c, err := s.execTarget(e.container)
	if err != nil {
		return err
	}
	if err := s.execs.begin(e.id, time.Now()); err != nil {
		return err
	}
	run := execRun{server: s, exec: e, target: c, size: options.ConsoleSize}
	// What was started goes on when the client leaves, as in Docker.
	ctx := context.WithoutCancel(r.Context())
	if options.Detach {
		if err := run.start(ctx, nil, nil, nil); err != nil {
			return err
		}
		go run.wait(nil)
		w.WriteHeader(http.StatusOK)
		return nil
	}
	st, err := hijack(w, r, streamType(r, e.options.Tty))
	if err != nil {
		s.execs.end(e.id, exitNotStarted, time.Now())
		return err
	}
	run.attached(ctx, st)
	return nil
}

// execResize is POST /exec/{id}/resize.
func (s *Server) execResize(w http.ResponseWriter, r *http.Request) error {
	width, height, err := terminalSize(r)
	if err != nil {
		return err
	}
	e, ok := s.execs.get(pathVar(r, "id"))
	switch {
	case !ok:
		return errNoSuchExec(pathVar(r, "id"))
	case e.process == nil:
		return errConflict("exec %s is not running", e.id)
	}
	if err := e.process.Resize(width, height); err != nil {
		return err
	}
	w.WriteHeader(http.StatusOK)
	return nil
}

// execJSON is the answer of GET /exec/{id}/json.
type execJSON struct {
	ID            string
	Running       bool
	ExitCode      *int // null until it has ended
	ProcessConfig execProcess
	OpenStdin     bool
	OpenStderr    bool
	OpenStdout    bool
	CanRemove     bool
	ContainerID   string
	DetachKeys    []byte
	Pid           int
}

type execProcess struct {
	Tty        bool     `json:"tty"`
	Entrypoint string   `json:"entrypoint"`
	Arguments  []string `json:"arguments"`
	Privileged *bool    `json:"privileged,omitempty"`
	User       string   `json:"user,omitempty"`
}

// execInspect is GET /exec/{id}/json.
func (s *Server) execInspect(w http.ResponseWriter, r *http.Request) error {
	e, ok := s.execs.get(pathVar(r, "id"))
	if !ok {
		return errNoSuchExec(pathVar(r, "id"))
	}
	if _, err := s.cfg.Containers.Get(e.container); err != nil {
		return errNoSuchExec(e.id)
	}
	out := execJSON{
		ID: e.id, ContainerID: e.container, Running: e.state == execRunning, Pid: e.pid,
		OpenStdin: e.options.AttachStdin, OpenStdout: e.options.AttachStdout, OpenStderr: e.options.AttachStderr,
		DetachKeys: []byte{},
		ProcessConfig: execProcess{Tty: e.options.Tty, Entrypoint: e.options.Cmd[0], Arguments: e.options.Cmd[1:],
			Privileged: &e.options.Privileged, User: e.options.User},
	}
	if e.options.DetachKeys != "" {
		out.DetachKeys = e.keys
	}
	if e.state == execEnded {
		out.ExitCode = &e.code
	}
	return writeJSON(w, http.StatusOK, &out)
}

// spec is how the runtime is asked to run an exec.
func (e execution) spec() jail.ExecSpec {
	return jail.ExecSpec{Args: e.options.Cmd, Env: e.options.Env, Cwd: e.options.WorkingDir, User: e.options.User,
		TTY: e.options.Tty, Privileged: e.options.Privileged}
}
