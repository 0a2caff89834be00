// SPDX-License-Identifier: BSD-2-Clause

package cluster

import (
	"errors"
	"net"
	"sync"
	"time"
)

// acceptPause is the wait after a failure to accept that may pass.
const acceptPause = 50 * time.Millisecond

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
			time.Sleep(acceptPause) // no file descriptors, say
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
	l := newLeg(r.Listener.Addr())
	if r.end != nil {
		l.fail(r.end)
	}
	r.now = l
	return l
}

func (r *relay) close() error { return r.Listener.Close() }

// leg is a listener behind another one, such as a member's on the relay.
// Closing it leaves the socket.
type leg struct {
	addr  net.Addr
	conns chan net.Conn
	once  sync.Once
	done  chan struct{}
	err   error
}

func newLeg(addr net.Addr) *leg {
	return &leg{addr: addr, conns: make(chan net.Conn), done: make(chan struct{})}
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

func (l *leg) Addr() net.Addr { return l.addr }
