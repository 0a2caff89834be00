// SPDX-License-Identifier: BSD-2-Clause

package healthcheck

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"
)

// Reach is how this node reaches a task to probe it; what the kind of probe
// has no use for may be zero.
type Reach struct {
	Runner      Runner
	ContainerID string
	// Addr is the task's own address, in the task's own network stack. Shared
	// tells that it is not the task's alone, as in the host's network: who
	// answers there cannot be told.
	Addr   netip.Addr
	Shared bool
	// Dial opens a connection; nil is a net.Dialer's. The process's
	// environment (HTTP_PROXY) has no say in it.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Root is the directory that the task sees as "/".
	Root string
}

// NewProbe makes the probe that the settings ask for. What a task turns out
// not to have, an address or a root, is a failure of each attempt.
func NewProbe(s Settings, r Reach) Probe {
	switch s.Kind {
	case HTTP:
		return NewHTTPProbe(s, r)
	case TCP:
		return &TCPProbe{reach: r, port: s.Port}
	case File:
		return &FileProbe{root: r.Root, path: s.Path}
	default:
		return NewExecProbe(r.Runner, r.ContainerID, s.Argv)
	}
}

// dialer never keeps a connection alive: none lives long enough.
var dialer = net.Dialer{KeepAlive: -1}

// open connects to a port of the task; the connection has the context's
// deadline, and every wait on it ends with the context. finish closes it with
// a reset: no side is left in TIME_WAIT, where it would hold a port of this
// node or keep the task's network stack from going away (DESIGN.md section 5).
func (r Reach) open(ctx context.Context, port uint16) (conn net.Conn, finish func(), err error) {
	dial := r.Dial
	if dial == nil {
		dial = dialer.DialContext
	}
	conn, err = dial(ctx, "tcp", netip.AddrPortFrom(r.Addr, port).String())
	if err != nil {
		return nil, nil, err
	}
	if deadline, ok := ctx.Deadline(); ok {
		err = conn.SetDeadline(deadline)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) }) // an error: it is closed already
	finish = func() {
		stop()
		if tcp, ok := conn.(interface{ SetLinger(sec int) error }); ok {
			_ = tcp.SetLinger(0) // an error: the peer has reset it already
		}
		_ = conn.Close()
	}
	if err != nil {
		finish()
		return nil, nil, err
	}
	return conn, finish, nil
}

// by is who answered, given that somebody did.
func (r Reach) by() Answerer {
	if r.Shared {
		return Unknown
	}
	return Application
}

// unreachable is the result where there is nothing to dial.
func (r Reach) unreachable() (Result, bool) {
	if r.Addr.IsValid() {
		return Result{}, false
	}
	return Result{ExitCode: -1, Word: "failed", By: Nothing, Output: "the task has no address to be probed at"}, true
}

// broken is the result of a connection that failed, with no address in it.
// doing says what was under way: "connect to port 80".
func broken(err error, timeout time.Duration, doing string) Result {
	r := Result{ExitCode: 1, Word: connectionWord(err), By: Nothing}
	switch r.Word {
	case "timed_out":
		r.ExitCode, r.Output = -1, fmt.Sprintf("Health check exceeded timeout (%v): %s", timeout, doing)
	case "closed":
		r.Output = doing + ": connection closed before a response"
	default:
		r.Output = doing + ": " + reasonOf(err)
	}
	return r
}

// connectionWord is a failed connection in Evidence.ProbeSequence.
func connectionWord(err error) string {
	var timeout interface{ Timeout() bool }
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refused"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, syscall.ECONNABORTED):
		return "reset"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH),
		errors.Is(err, syscall.EHOSTDOWN), errors.Is(err, syscall.ENETDOWN):
		return "unreachable"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "closed"
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.Canceled),
		errors.As(err, &timeout) && timeout.Timeout():
		return "timed_out"
	}
	return "failed"
}

// reasonOf is an error of the network without the addresses that net puts in
// front of it.
func reasonOf(err error) string {
	var number syscall.Errno
	if errors.As(err, &number) {
		return number.Error()
	}
	for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(err) {
		err = inner
	}
	return err.Error()
}
