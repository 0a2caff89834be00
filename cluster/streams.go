// SPDX-License-Identifier: BSD-2-Clause

package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	hraft "github.com/hashicorp/raft"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// streamChunk is the most bytes of raft's that go into one message.
const streamChunk = 64 << 10

// errLeft ends what a member still had open when it ended.
var errLeft = errors.New("this node left its cluster or stops")

// streams carries raft between managers, each connection in a gRPC stream of
// its own: so raft is behind the same certificates, and on the same port, as
// everything else.
type streams struct {
	addr  string // this node's
	conns *conns
	// member tells the ID of the manager at an address; nil until the
	// consensus is open.
	member atomic.Pointer[func(addr string) (id string)]

	accepted chan net.Conn
	ctx      context.Context
	cancel   context.CancelFunc
	wg       sync.WaitGroup
}

var _ hraft.StreamLayer = (*streams)(nil)

func newStreams(addr string, conns *conns) *streams {
	s := &streams{addr: addr, conns: conns, accepted: make(chan net.Conn)}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Dial connects to the manager at addr. The timeout is for the connection, not
// for its life.
func (s *streams) Dial(addr hraft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	near, far := net.Pipe()
	if string(addr) == s.addr {
		timer := time.NewTimer(timeout)
		defer timer.Stop()
		select {
		case s.accepted <- far:
			return near, nil
		case <-s.ctx.Done():
			return nil, errLeft
		case <-timer.C:
			return nil, context.DeadlineExceeded
		}
	}
	var id string
	if member := s.member.Load(); member != nil {
		id = (*member)(string(addr))
	}
	if id == "" {
		return nil, fmt.Errorf("no manager is known at %s", addr)
	}
	conn, err := s.conns.toMember(id, string(addr))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(s.ctx)
	giveUp := time.AfterFunc(timeout, cancel)
	stream, err := conn.NewStream(ctx, &peerService.Streams[0], raftMethod, grpc.WaitForReady(false))
	if !giveUp.Stop() && err == nil {
		err = context.DeadlineExceeded
	}
	if err != nil {
		cancel()
		return nil, err
	}
	s.wg.Go(func() {
		defer cancel()
		carry(ctx, stream, far)
	})
	return near, nil
}

// serve takes a connection that another manager opened and returns at its end.
func (s *streams) serve(stream grpc.ServerStream) error {
	near, far := net.Pipe()
	select {
	case s.accepted <- near:
	case <-s.ctx.Done():
		return errLeft
	case <-stream.Context().Done():
		return stream.Context().Err()
	}
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	carry(ctx, stream, far)
	return nil
}

// carry copies between a stream, which lives as long as ctx does, and a
// connection until either ends. The caller then ends the stream, and with it
// what is still received. Nothing else would wake a write to a connection that
// its owner no longer reads and has not closed.
func carry(ctx context.Context, stream grpc.Stream, c net.Conn) {
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	go func() {
		defer c.Close()
		for {
			m := new(wrapperspb.BytesValue)
			if stream.RecvMsg(m) != nil {
				return
			}
			if _, err := c.Write(m.Value); err != nil {
				return
			}
		}
	}()
	buf := make([]byte, streamChunk)
	for {
		n, err := c.Read(buf)
		if n > 0 && stream.SendMsg(&wrapperspb.BytesValue{Value: buf[:n]}) != nil || err != nil {
			return
		}
	}
}

// Accept implements net.Listener.
func (s *streams) Accept() (net.Conn, error) {
	select {
	case c := <-s.accepted:
		return c, nil
	case <-s.ctx.Done():
		return nil, io.EOF
	}
}

// Close implements net.Listener: it ends every connection.
func (s *streams) Close() error {
	s.cancel()
	s.wg.Wait()
	return nil
}

// Addr is the address that other managers know this one by.
func (s *streams) Addr() net.Addr { return streamAddr(s.addr) }

type streamAddr string

func (streamAddr) Network() string  { return "tcp" }
func (a streamAddr) String() string { return string(a) }
