// SPDX-License-Identifier: BSD-2-Clause

package shim

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// exec runs the runtime's exec so that the process is left to us: its status
// is ours to know, and nothing has to stand between it and its stdio.
func (s *server) exec(cn net.Conn, req ExecRequest, stdio []*os.File) {
	if len(stdio) != 3 || len(req.Argv) == 0 {
		closeAll(stdio)
		reply(cn, response{}, refuse(KindFailed, "exec needs a command and three files, not %d", len(stdio)))
		return
	}
	for _, f := range stdio { // as a command expects it; they came so that we would not block
		if err := unix.SetNonblock(int(f.Fd()), false); err != nil {
			complain("exec: %v", err)
		}
	}
	pid, status, err := s.runExec(req, [3]*os.File(stdio))
	closeAll(stdio)
	if err != nil {
		reply(cn, response{}, err)
		return
	}
	if err := reply(cn, response{Pid: pid}, nil); err != nil {
		signalPid(pid) // nobody waits for it any more; it is not reaped yet
	}
	reply(cn, response{Pid: pid, Code: code(<-status)}, nil)
}

func (s *server) runExec(req ExecRequest, stdio [3]*os.File) (int, <-chan syscall.WaitStatus, error) {
	s.reaper.begin()
	defer s.reaper.end()
	if err := s.command(req.Argv, req.Timeout, stdio); err != nil {
		return 0, nil, err
	}
	pid, err := awaitPid(req.PidFile)
	if err != nil {
		return 0, nil, err
	}
	return pid, s.reaper.claim(pid), nil
}

// Exec is a process started in a container besides its first one.
type Exec struct {
	Pid int
	cn  *conn
}

// Exec starts a process with the three files as its stdio. They can be closed
// when it returns. ctx bounds the start alone.
func (c *Client) Exec(ctx context.Context, req ExecRequest, stdio [3]*os.File) (*Exec, error) {
	cn, resp, err := c.call(ctx, request{Op: opExec, Exec: &req}, stdio[:]...)
	if err != nil {
		return nil, err
	}
	if !cn.stop() { // ctx was done just now
		cn.Close()
		return nil, ctx.Err()
	}
	return &Exec{Pid: resp.Pid, cn: cn}, nil
}

// Wait returns the exit code of the process. It can be called once.
func (e *Exec) Wait() (int, error) {
	defer e.cn.Close()
	line, err := e.cn.r.ReadBytes('\n')
	if err != nil {
		return -1, fmt.Errorf("the shim was lost before the process %d ended: %w", e.Pid, err)
	}
	var resp response
	if err := json.Unmarshal(line, &resp); err != nil {
		return -1, err
	}
	return resp.Code, nil
}
