// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	dockerevents "github.com/docker/docker/api/types/events"

	"satld/events"
	"satld/executor"
	"satld/jail"
)

// exitNotStarted is the exit code of an exec whose command could not be
// invoked, where the runtime does not say better; Docker's own.
const exitNotStarted = 126

// startFailure is the exit code for an error at the start of an exec.
func startFailure(err error) int {
	if e := new(jail.StartError); errors.As(err, &e) {
		return e.ExitCode
	}
	return exitNotStarted
}

// notStarted makes what the runtime says of a command that cannot run the
// caller's error, as Docker does: the command is the caller's.
func notStarted(err error) error {
	if e := new(jail.StartError); errors.As(err, &e) {
		return errInvalid("%v", err)
	}
	return err
}

// execRun is the one run of an exec.
type execRun struct {
	server  *Server
	exec    execution
	target  executor.Snapshot
	size    *[2]uint // rows, columns
	process jail.Process
}

// start starts the process; when that fails the exec has ended.
func (x *execRun) start(ctx context.Context, stdin io.Reader, stdout, stderr io.Writer) error {
	spec := x.exec.spec()
	spec.Stdin, spec.Stdout, spec.Stderr = stdin, stdout, stderr
	if x.size != nil {
		spec.Size = jail.TermSize{Rows: uint16(x.size[0]), Columns: uint16(x.size[1])}
	}
	x.server.execEvent(x.target, dockerevents.ActionExecStart, x.exec.id, x.exec.options.Cmd, nil)
	p, err := x.server.cfg.Containers.Exec(ctx, x.target.ID, spec)
	if err != nil {
		x.server.execs.end(x.exec.id, startFailure(err), time.Now())
		return notStarted(err)
	}
	x.process = p
	x.server.execs.runs(x.exec.id, p)
	return nil
}

// wait waits for the process and records how it ended, after settle, if any.
func (x *execRun) wait(settle func()) {
	code, err := x.process.Wait()
	if settle != nil {
		settle()
	}
	if err != nil {
		x.server.log.Warn("exec lost", "container", shortID(x.target.ID), "exec", shortID(x.exec.id), "err", err)
		if code == 0 {
			code = exitNotStarted
		}
	}
	x.server.execs.end(x.exec.id, code, time.Now())
	x.server.execEvent(x.target, dockerevents.ActionExecDie, x.exec.id, nil, map[string]string{"exitCode": events.ExitCode(code)})
}

// attached runs the process with its input and output on a client's stream.
// The exit code is recorded before the client sees the end of the output, as
// it asks for it next. It owns the stream.
func (x *execRun) attached(ctx context.Context, st *stream) {
	defer st.finish()
	o := x.exec.options
	stdout, stderr := st.writers(o.Tty)
	var out, errOut io.Writer
	if o.AttachStdout {
		out = stdout
	}
	if o.AttachStderr {
		errOut = stderr
		if o.Tty && out == nil {
			out = stdout // a terminal has one output
		}
	}
	var stdin io.Reader
	var detached <-chan struct{}
	ended := make(chan struct{})
	if o.AttachStdin {
		stdin = st
		if o.Tty {
			d := newDetachReader(st, x.exec.keys, ended)
			stdin, detached = d, d.detached
		}
	}
	if err := x.start(ctx, stdin, out, errOut); err != nil {
		close(ended)
		x.server.log.Warn("exec failed", "container", shortID(x.target.ID), "command", strconv.Quote(o.Cmd[0]), "err", err)
		fmt.Fprintf(stdout, "%v\r\n", err)
		return
	}
	go func() {
		defer close(ended)
		x.wait(st.settle)
	}()
	select {
	case <-ended:
	case <-detached:
		st.drop()
		x.server.execEvent(x.target, dockerevents.ActionExecDetach, x.exec.id, nil, nil)
	}
}
