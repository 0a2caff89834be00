// SPDX-License-Identifier: BSD-2-Clause

package cluster

import (
	"errors"
	"net"
	"sync"
)

// relay is one listening socket for one member after the other: the port is
// never given up in between.
type relay struct {
	net.Listener

	mu  sync.Mutex
	now *leg // who gets connections; nil is nobody, and they are closed
	end error
}

func newRelay(l net.Listener) *relay {
	r := &relay{Listener: l}
	go r.accept()
	return r
}

func (r *relay) accept() {
	for {
		c, err := r.Listener.Accept()
		r.mu.Lock()
		to := r.now
		if err != nil && !isTemporary(err) {
			r.end = err
			r.mu.Unlock()
			if to != nil {
				to.fail(err)
			}
			return
		}
		r.mu.Unlock()
		if err != nil {
			continue
		}
		if to == nil || !to.give(c) {
			c.Close()
		}
	}
}

func isTemporary(err error) bool {
	t := interface{ Temporary() bool }(nil)
	return errors.As(err, &t) && t.Temporary()
}

// next is the listener for the next member; the one before gets no more.
func (r *relay) next() net.Listener {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := &leg{of: r, conns: make(chan net.Conn), done: make(chan struct{})}
	if r.end != nil {
		l.fail(r.end)
	}
	r.now = l
	return l
}

func (r *relay) close() error { return r.Listener.Close() }

// leg is a member's listener on the relay. Closing it leaves the socket.
type leg struct {
	of    *relay
	conns chan net.Conn
	once  sync.Once
	done  chan struct{}
	err   error
}

func (l *leg) give(c net.Conn) bool {
	select {
	case l.conns <- c:
		return true
	case <-l.done:
		return false
	}
}

func (l *leg) fail(err error) {
	l.once.Do(func() {
		l.err = err
		close(l.done)
	})
}

func (l *leg) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, l.err
	}
}

func (l *leg) Close() error {
	l.fail(net.ErrClosed)
	return nil
}

func (l *leg) Addr() net.Addr { return l.of.Listener.Addr() }
