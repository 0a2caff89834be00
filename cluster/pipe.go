// SPDX-License-Identifier: BSD-2-Clause

package cluster

import (
	"context"
	"net"
	"sync"
)

// pipe is a listener whose connections never leave the process: this node's
// own way to its manager's services, without a socket file or a port.
type pipe struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

var _ net.Listener = (*pipe)(nil)

func newPipe() *pipe {
	return &pipe{conns: make(chan net.Conn), closed: make(chan struct{})}
}

// Dial returns the client's end of a new connection.
func (p *pipe) Dial(ctx context.Context, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case p.conns <- server:
		return client, nil
	case <-p.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p *pipe) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipe) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipe) Addr() net.Addr { return pipeAddr{} }

type pipeAddr struct{}

func (pipeAddr) Network() string { return "pipe" }
func (pipeAddr) String() string  { return "pipe" }
