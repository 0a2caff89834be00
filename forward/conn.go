// SPDX-License-Identifier: BSD-2-Clause

package forward

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"satld/redirect"
)

// dialBound is how long one member may take to answer before the next is tried.
const dialBound = 3 * time.Second

// saidEvery is how often a full house is logged.
const saidEvery = time.Minute

type listener struct {
	*net.TCPListener
	pool *pool
}

// conn is one connection of the host and, when there is one, its other half.
type conn struct {
	client *net.TCPConn
	key    redirect.Key
	member netip.AddrPort // zero until it is connected
	server *net.TCPConn
}

// reset ends both halves at once, without waiting for what is not sent yet.
func (c *conn) reset() {
	for _, half := range []*net.TCPConn{c.client, c.server} {
		if half != nil {
			_ = half.SetLinger(0) // a socket that is gone already has nobody to tell
			half.Close()
		}
	}
}

// accept takes connections until the listener is closed.
func (f *Forwarder) accept(l *listener) {
	pause := time.Duration(0)
	for {
		client, err := l.AcceptTCP()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil: // no file descriptors left, or no memory
			pause = min(max(2*pause, 10*time.Millisecond), time.Second)
			f.log.Warn("a connection could not be accepted", "addr", l.Addr().String(), "err", err)
			time.Sleep(pause)
			continue
		}
		pause = 0
		c := &conn{client: client, key: l.pool.key}
		if f.add(c) {
			f.wg.Go(func() { f.serve(c, l.pool) })
		}
	}
}

// add counts a connection in, or refuses it.
func (f *Forwarder) add(c *conn) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed || len(f.conns) >= f.cfg.Limit {
		if now := time.Now(); !f.closed && now.Sub(f.full) > saidEvery {
			f.full = now
			f.log.Warn("too many connections of this host to published ports; further ones are refused", "limit", f.cfg.Limit)
		}
		c.reset()
		return false
	}
	f.conns[c] = true
	return true
}

// serve connects a client to a member and passes on what both say.
func (f *Forwarder) serve(c *conn, p *pool) {
	defer func() {
		f.mu.Lock()
		delete(f.conns, c)
		f.mu.Unlock()
	}()
	if !f.connect(c, p) {
		f.mu.Lock()
		c.reset()
		f.mu.Unlock()
		return
	}
	var both sync.WaitGroup
	both.Go(func() { f.pass(c, c.server, c.client) })
	both.Go(func() { f.pass(c, c.client, c.server) })
	both.Wait()
	c.client.Close()
	c.server.Close()
}

// connect finds a member that answers: each of the pool has one try, in turn. A
// member that leaves meanwhile gets no connection.
func (f *Forwarder) connect(c *conn, p *pool) bool {
	f.mu.Lock()
	tries := len(p.members)
	f.mu.Unlock()
	for range max(tries, 1) {
		f.mu.Lock()
		m := p.turn()
		f.mu.Unlock()
		if m == nil {
			return false
		}
		ctx, cancel := context.WithTimeout(m.in, dialBound)
		server, err := new(net.Dialer).DialContext(ctx, "tcp4", m.addr.String())
		cancel()
		if err != nil {
			f.log.Debug("a member does not answer", "addr", m.addr.String(), "err", err)
			continue
		}
		f.mu.Lock()
		stays := m.in.Err() == nil && !f.closed
		if stays {
			c.server, c.member = server.(*net.TCPConn), m.addr
		}
		f.mu.Unlock()
		if stays {
			return true
		}
		_ = server.(*net.TCPConn).SetLinger(0)
		server.Close()
	}
	return false
}

var buffers = sync.Pool{New: func() any { return new([16 << 10]byte) }}

// pass copies one direction. The end of it is passed on as the end of that
// direction alone; a failure ends both.
func (f *Forwarder) pass(c *conn, to, from *net.TCPConn) {
	buffer := buffers.Get().(*[16 << 10]byte)
	defer buffers.Put(buffer)
	// Nothing but Read and Write, so that the buffer is all the memory it takes.
	_, err := io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{from}, buffer[:])
	if err == nil {
		err = to.CloseWrite()
	}
	if err != nil {
		c.reset()
	}
}
