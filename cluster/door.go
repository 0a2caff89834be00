// SPDX-License-Identifier: BSD-2-Clause

package cluster

import (
	"container/list"
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
)

const (
	// handshakeBound is how long a connection may take to say who comes.
	handshakeBound = 10 * time.Second
	// maxStrangers is how many connections there may be at a time that have
	// shown no certificate: far more than nodes join at once.
	maxStrangers = 256
	// strangerMessage bounds a stranger's message, in bytes: a request for a
	// certificate has about one KiB.
	strangerMessage = 64 << 10
	// strangerStreams is how many questions of a stranger are read at a time.
	strangerStreams = 2
	// strangerAge is how long a stranger may stay; joining is over by then.
	strangerAge = time.Minute
)

// door is the way in from other machines: TLS comes first, and who shows a
// certificate of this cluster then reaches another server than who shows none.
// A stranger, who may have no more than a token, costs this node next to
// nothing, however many there are: of too many, the first gives way to the
// last, which is gone itself before long if it is a node.
type door struct {
	outer  net.Listener
	creds  credentials.TransportCredentials
	nodes  *leg
	others *leg

	mu    sync.Mutex
	queue *list.List // of net.Conn, in the order of their coming; nil once closed
}

func newDoor(outer net.Listener, creds credentials.TransportCredentials) *door {
	return &door{outer: outer, creds: creds, nodes: newLeg(outer.Addr()), others: newLeg(outer.Addr()), queue: list.New()}
}

// run lets in until the outer listener or the door is closed, and returns why.
func (d *door) run() error {
	for {
		c, err := d.outer.Accept()
		if err != nil {
			d.nodes.fail(err)
			d.others.fail(err)
			return err
		}
		if leave := d.queued(c); leave != nil {
			go d.greet(c, leave)
		}
	}
}

// queued enters a connection among the strangers; it is none any more after
// leave. At a closed door it is closed, and leave is nil.
func (d *door) queued(c net.Conn) (leave func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.queue == nil {
		c.Close()
		return nil
	}
	if d.queue.Len() >= maxStrangers {
		d.queue.Remove(d.queue.Front()).(net.Conn).Close()
	}
	e := d.queue.PushBack(c)
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.queue != nil {
			d.queue.Remove(e) // nothing, if it gave way
		}
	}
}

// greet shakes hands and shows the way.
func (d *door) greet(raw net.Conn, leave func()) {
	err := raw.SetDeadline(time.Now().Add(handshakeBound))
	var c net.Conn
	var info credentials.AuthInfo
	if err == nil {
		c, info, err = d.creds.ServerHandshake(raw)
	}
	if err == nil {
		err = raw.SetDeadline(time.Time{})
	}
	if err != nil {
		leave()
		raw.Close()
		return
	}
	to := d.others
	if tls, ok := info.(credentials.TLSInfo); ok && len(tls.State.PeerCertificates) > 0 {
		leave()
		leave, to = func() {}, d.nodes
	}
	in := &greeted{Conn: c, info: info, leave: leave}
	if !to.give(in) {
		in.Close()
	}
}

// close ends the door, and what has not got further yet.
func (d *door) close() {
	d.outer.Close()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.queue == nil {
		return
	}
	for e := d.queue.Front(); e != nil; e = e.Next() {
		e.Value.(net.Conn).Close()
	}
	d.queue = nil
}

// refuseStranger answers a stranger what is for nodes, and a node that wants to
// join at one that is no manager.
func refuseStranger(_ any, stream grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(stream)
	if strings.HasPrefix(method, "/docker.swarmkit.v1.CA/") || strings.HasPrefix(method, "/docker.swarmkit.v1.NodeCA/") {
		return status.Error(codes.FailedPrecondition, "the node at that address is a worker: give the address of a manager")
	}
	return status.Error(codes.PermissionDenied, "no certificate of the cluster was shown")
}

// greeted is a connection past the door.
type greeted struct {
	net.Conn
	info  credentials.AuthInfo
	leave func()
}

// Close implements net.Conn.
func (g *greeted) Close() error {
	g.leave()
	return g.Conn.Close()
}

// greetedCreds are a server's credentials for connections past the door.
type greetedCreds struct {
	credentials.TransportCredentials
}

var errUngreeted = errors.New("the connection did not come by the door")

// ServerHandshake implements credentials.TransportCredentials.
func (greetedCreds) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	g, ok := c.(*greeted)
	if !ok {
		return nil, nil, errUngreeted
	}
	return g, g.info, nil
}

// ClientHandshake implements credentials.TransportCredentials.
func (greetedCreds) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errUngreeted
}

// Clone implements credentials.TransportCredentials.
func (g greetedCreds) Clone() credentials.TransportCredentials { return g }
