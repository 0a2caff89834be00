// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"context"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"satld/internal/slowday"
)

// shortDir is a directory whose name leaves room for a socket's.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "satl")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// serveSocket runs Serve and waits until it answers. stop ends it and gives its error.
func serveSocket(t *testing.T, s *Server, socket string) (c *http.Client, stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, socket, 0o660, strconv.Itoa(os.Getgid())) }()
	c = &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", socket)
	}}}
	for {
		resp, err := c.Get("http://satl/_ping")
		if err == nil {
			_ = resp.Body.Close()
			return c, func() error { cancel(); return <-ended }
		}
		select {
		case err := <-ended:
			t.Fatalf("Serve: %v", err)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func TestServe(t *testing.T) {
	f := newFixture(t)
	socket := filepath.Join(shortDir(t), "deep", "satl.sock")
	client, stop := serveSocket(t, f.server, socket)
	info, err := os.Stat(socket)
	if err != nil || info.Mode().Perm() != 0o660 || info.Mode().Type() != fs.ModeSocket {
		t.Errorf("%v %v", info, err)
	}
	// A second daemon on a live socket is refused, and does no harm to the first.
	if err := f.server.Serve(t.Context(), socket, 0o660, ""); !errdefs.IsConflict(err) || !strings.Contains(err.Error(), "another daemon") {
		t.Errorf("second: %v", err)
	}
	// A stream ends when the daemon does.
	resp, err := client.Get("http://satl/events")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	begin := time.Now()
	if err := stop(); err != nil {
		t.Error(err)
	}
	if took := time.Since(begin); took > slowday.Of(3*time.Second) {
		t.Errorf("shutdown took %v", took)
	}
	_, _ = io.Copy(io.Discard, resp.Body) // must end
	if _, err := os.Lstat(socket); !os.IsNotExist(err) {
		t.Errorf("the socket stays: %v", err)
	}
}

func TestServeStaleSocket(t *testing.T) {
	f := newFixture(t)
	dir := shortDir(t)
	socket := filepath.Join(dir, "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	_ = l.Close() // as after a kill -9
	_, stop := serveSocket(t, f.server, socket)
	// Somebody else's socket in our place is left alone.
	if err := os.Remove(socket); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(socket, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(socket); err != nil {
		t.Errorf("removed what was not its own: %v", err)
	}
	if err := f.server.Serve(t.Context(), socket, 0o660, ""); !errdefs.IsConflict(err) || !strings.Contains(err.Error(), "no socket") {
		t.Errorf("on a file: %v", err)
	}
	if err := f.server.Serve(t.Context(), filepath.Join(dir, "t"), 0o660, "no-such-group-here"); err == nil || !strings.Contains(err.Error(), "no-such-group-here") {
		t.Errorf("unknown group: %v", err)
	}
	if err := f.server.Serve(t.Context(), filepath.Join(dir, strings.Repeat("x", 200)), 0o660, ""); err == nil {
		t.Error("a name too long for a socket was accepted")
	}
}
