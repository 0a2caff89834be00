// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"bufio"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// socketPair connects two ends of a unix socket.
func socketPair(t testing.TB) (server, peer *net.UnixConn) {
	t.Helper()
	dir, err := os.MkdirTemp("", "satl")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	lis, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer lis.Close()
	c, err := net.Dial("unix", lis.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	s, err := lis.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(); c.Close() })
	return s.(*net.UnixConn), c.(*net.UnixConn)
}

func TestHasHungUp(t *testing.T) {
	server, peer := socketPair(t)
	if hasHungUp(server) {
		t.Error("open: hung up")
	}
	if err := peer.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if _, err := server.Read(make([]byte, 1)); err != io.EOF {
		t.Fatal(err)
	}
	if hasHungUp(server) {
		t.Error("half closed: hung up")
	}
	peer.Close()
	if !hasHungUp(server) {
		t.Error("closed: not hung up")
	}
	server.Close()
	if !hasHungUp(server) {
		t.Error("our own end closed: not hung up")
	}
}

func TestStreamFinish(t *testing.T) {
	server, peer := socketPair(t)
	st := &stream{conn: server, in: bufio.NewReader(server)}
	reading := make(chan error)
	go func() { _, err := st.Read(make([]byte, 1)); reading <- err }()
	finished := make(chan struct{})
	go func() { st.finish(); close(finished) }()
	if err := <-reading; err != io.EOF {
		t.Errorf("a reader was woken with %v", err)
	}
	if _, err := peer.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the client sees %v", err)
	}
	// It may still send, and is not reset for it.
	if _, err := peer.Write([]byte("late")); err != nil {
		t.Error(err)
	}
	select {
	case <-finished:
		t.Error("closed before the client was")
	case <-time.After(20 * time.Millisecond):
	}
	peer.Close()
	<-finished
	if _, err := st.Read(make([]byte, 1)); err != io.EOF {
		t.Error(err)
	}
}

func TestStreamWriteToNobody(t *testing.T) {
	server, peer := socketPair(t)
	gone := 0
	st := &stream{conn: server, in: bufio.NewReader(server), onGone: func() { gone++ }}
	peer.Close()
	for range 3 {
		if n, err := st.Write(make([]byte, 1000)); n != 1000 || err != nil {
			t.Errorf("%d %v", n, err)
		}
	}
	if gone != 1 {
		t.Errorf("told %d times", gone)
	}
}
