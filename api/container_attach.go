// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"time"

	"github.com/containerd/errdefs"
	dockerevents "github.com/docker/docker/api/types/events"

	"satld/events"
	"satld/executor"
	"satld/jail"
)

// containerEvent publishes an event that the API itself makes, with Docker's
// attributes: labels, image, name and pairs of names and values.
func (s *Server) containerEvent(c executor.Snapshot, action dockerevents.Action, extra map[string]string) {
	attributes := shownLabels(c)
	attributes["image"], attributes["name"] = c.Image, c.Name
	maps.Copy(attributes, extra)
	s.cfg.Events.Publish(events.Container(action, c.ID, attributes))
}

// containerAttach is POST /containers/{name}/attach: the container's logs so
// far, its live output, its input, over the hijacked connection. It may be
// asked for before the container is started, as `docker run` does.
func (s *Server) containerAttach(w http.ResponseWriter, r *http.Request) error {
	keys, err := parseDetachKeys(r.URL.Query().Get("detachKeys"))
	if err != nil {
		return err
	}
	name := pathVar(r, "name")
	c, err := s.cfg.Containers.Get(name)
	if err != nil {
		return err
	}
	if c.State == executor.Paused {
		return errConflict("container %s is paused, unpause the container before attach", name)
	}
	tty := c.Config != nil && c.Config.Tty
	st, err := hijack(w, r, streamType(r, tty))
	if err != nil {
		return err
	}
	defer st.finish()
	a := attachment{containers: s.cfg.Containers, stream: st, id: c.ID, tty: tty, keys: keys}
	a.logs, a.live = queryBool(r, "logs"), queryBool(r, "stream")
	stdout, stderr := st.writers(tty)
	if queryBool(r, "stdout") {
		a.stdout = stdout
	}
	if queryBool(r, "stderr") {
		a.stderr = stderr
	}
	// A container that was not given an open stdin reads nobody's.
	a.stdin = queryBool(r, "stdin") && c.Config != nil && c.Config.OpenStdin

	s.containerEvent(c, dockerevents.ActionAttach, nil)
	err = a.run(context.WithoutCancel(r.Context()))
	if errors.Is(err, errDetached) {
		s.containerEvent(c, dockerevents.ActionDetach, nil)
		return nil
	}
	if err != nil {
		s.log.Warn("attach failed", "container", shortID(c.ID), "err", err)
		fmt.Fprintln(stdout, "Error attaching:", err)
	}
	return nil
}

// errDetached says that the client left while the container goes on.
var errDetached = errors.New("detached")

// attachment is one client attached to one container.
type attachment struct {
	containers     executor.Containers
	stream         *stream
	id             string
	tty            bool
	keys           []byte
	stdin          bool
	stdout, stderr io.Writer // nil: not wanted
	logs, live     bool
}

// run copies until the container ends, the client types the detach keys or
// is gone (errDetached).
func (a *attachment) run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	a.stream.onGone = func() { cancel(errDetached) }
	go a.stream.watch(ctx, a.stream.drop)

	if a.logs {
		if err := a.replay(ctx, time.Time{}); err != nil {
			return err
		}
	}
	if !a.live {
		return nil
	}
	var stdin io.Reader
	if a.stdin {
		stdin = a.stream
		if a.tty {
			d := newDetachReader(a.stream, a.keys, ctx.Done())
			stdin = d
			go func() {
				select {
				case <-d.detached:
					cancel(errDetached)
				case <-ctx.Done():
				}
			}()
		}
	}
	err := a.follow(ctx, stdin)
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// How often an attach is tried again while its container is not there to be
// attached to: often enough to fall between its creation in the runtime and
// the first word of its first process, which are some 20 ms apart.
const (
	attachPeriod     = 2 * time.Millisecond
	attachPeriodLong = 100 * time.Millisecond // after attachSoon
	attachSoon       = time.Minute
)

// follow attaches to the container's live streams. `docker run` and `docker
// start -a` attach first and start it then; so does everybody who must not
// miss its first words. Until it runs the runtime has nothing to attach to.
func (a *attachment) follow(ctx context.Context, stdin io.Reader) error {
	before, err := a.containers.Get(a.id)
	if err != nil {
		return err
	}
	begun := time.Now()
	for period := attachPeriod; ; {
		err := a.containers.Attach(ctx, a.id, stdin, a.stdout, a.stderr)
		if before.State.Live() || err != nil && !errdefs.IsNotFound(err) && !errdefs.IsConflict(err) {
			return err
		}
		now, getErr := a.containers.Get(a.id)
		switch {
		case getErr != nil:
			return nil // removed without having been started, or by itself after its end
		case !now.Started.Equal(before.Started) && err == nil:
			return nil // it ran and we were attached to it
		case !now.Started.Equal(before.Started) && !now.State.Live():
			return a.replay(ctx, before.Finished) // it was too quick
		}
		if time.Since(begun) > attachSoon {
			period = attachPeriodLong
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(period):
		}
	}
}

// replay writes what the container logged since a time (zero: ever).
func (a *attachment) replay(ctx context.Context, from time.Time) error {
	q := jail.LogQuery{Stdout: a.stdout != nil, Stderr: a.stderr != nil, Since: from, Tail: -1}
	if !q.Stdout && !q.Stderr {
		return nil
	}
	err := a.containers.Logs(ctx, a.id, q, func(line jail.LogLine) error {
		out := a.stdout
		if line.Stream == "stderr" {
			out = a.stderr
		}
		if out != nil {
			_, _ = out.Write(line.Line)
		}
		return ctx.Err()
	})
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}
