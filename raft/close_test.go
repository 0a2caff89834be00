// SPDX-License-Identifier: BSD-2-Clause

package raft

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	hraft "github.com/hashicorp/raft"
)

// mute connects this node to itself, and to members that take everything and
// answer nothing.
type mute struct {
	accepted chan net.Conn
	called   chan struct{}
	closed   chan struct{}
	once     sync.Once
}

const muteAddr = "10.0.0.5:2377"

func (m *mute) Dial(addr hraft.ServerAddress, _ time.Duration) (net.Conn, error) {
	near, far := net.Pipe()
	go func() { <-m.closed; near.Close() }()
	if addr == muteAddr {
		m.accepted <- far
		return near, nil
	}
	go func() {
		buf := make([]byte, 1)
		if _, err := far.Read(buf); err == nil {
			m.called <- struct{}{}
		}
		_, _ = io.Copy(io.Discard, far)
	}()
	return near, nil
}

func (m *mute) Accept() (net.Conn, error) {
	select {
	case c := <-m.accepted:
		return c, nil
	case <-m.closed:
		return nil, io.EOF
	}
}

func (m *mute) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(10, 0, 0, 5), Port: 2377} }
func (m *mute) Close() error   { m.once.Do(func() { close(m.closed) }); return nil }

// A node closes while it waits for a member that does not answer, which by
// itself would take raft's own timeout of ten seconds.
func TestCloseWhileAMemberIsSilent(t *testing.T) {
	stream := &mute{accepted: make(chan net.Conn), called: make(chan struct{}, 8), closed: make(chan struct{})}
	m := solo(t, Config{Dir: t.TempDir(), Addr: muteAddr, Stream: stream})
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // nobody is there to agree
	_ = m.AddMember(ctx, "server2", "10.0.0.6:2377")
	<-stream.called
	m.stop() // fails the test unless raft ended in time
}
