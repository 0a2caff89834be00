// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
)

const (
	// headerTimeout is how long a client may take to send its headers.
	headerTimeout = 10 * time.Second
	// bodyTimeout is how long it may take to send a JSON body.
	bodyTimeout = 30 * time.Second
	// idleTimeout closes connections that are kept and not used.
	idleTimeout = 5 * time.Minute
	// maxHeaders bounds request headers; X-Registry-Auth is the largest.
	maxHeaders = 256 << 10
	// shutdownGrace is how long requests may go on after the end.
	shutdownGrace = time.Second
)

// Serve listens on a unix socket with the given mode and group ("": as the
// directory gives it) and answers until ctx is done, then for a second more.
// The contexts of requests end with ctx, so that streams close.
//
// A socket that a dead daemon left is replaced; one that a live daemon
// answers on is an error (ErrConflict).
func (s *Server) Serve(ctx context.Context, socket string, mode fs.FileMode, group string) error {
	l, err := listen(ctx, socket, mode, group)
	if err != nil {
		return err
	}
	s.log.Info("API listening", "socket", socket)
	return s.serveOn(ctx, l)
}

func (s *Server) serveOn(ctx context.Context, l net.Listener) error {
	server := &http.Server{
		Handler: s, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaders,
		BaseContext: func(net.Listener) context.Context { return ctx },
		ErrorLog:    slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(l) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve the API on %s: %w", l.Addr(), err)
	case <-ctx.Done():
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownGrace)
	defer cancel()
	if err := server.Shutdown(bounded); err != nil {
		_ = server.Close()
	}
	<-failed
	return nil
}

// listen makes the socket under another name and moves it into place once it
// has its mode and group, so that it is never there with others.
func listen(ctx context.Context, socket string, mode fs.FileMode, group string) (net.Listener, error) {
	gid := -1
	if group != "" {
		var err error
		if gid, err = groupID(group); err != nil {
			return nil, fmt.Errorf("socket %s: %w", socket, err)
		}
	}
	if err := os.MkdirAll(filepath.Dir(socket), 0o755); err != nil {
		return nil, fmt.Errorf("make the directory of socket %s: %w", socket, err)
	}
	if err := checkStale(ctx, socket); err != nil {
		return nil, err
	}
	fresh := socket + "~"
	if err := os.Remove(fresh); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("remove left-over socket: %w", err)
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "unix", fresh)
	if err != nil {
		return nil, fmt.Errorf("listen on socket %s: %w", socket, err)
	}
	ul := l.(*net.UnixListener)
	ul.SetUnlinkOnClose(false)
	if err := errors.Join(os.Chmod(fresh, mode), os.Chown(fresh, -1, gid), os.Rename(fresh, socket)); err != nil {
		_ = l.Close()
		_ = os.Remove(fresh)
		return nil, fmt.Errorf("set up socket %s: %w", socket, err)
	}
	own, err := os.Lstat(socket)
	if err != nil {
		_ = l.Close()
		return nil, fmt.Errorf("set up socket %s: %w", socket, err)
	}
	return &socketListener{Listener: l, path: socket, own: own}, nil
}

// socketListener removes its socket when it closes, unless another daemon's
// has taken its place.
type socketListener struct {
	net.Listener
	path string
	own  fs.FileInfo
}

func (l *socketListener) Close() error {
	if now, err := os.Lstat(l.path); err == nil && os.SameFile(now, l.own) {
		_ = os.Remove(l.path)
	}
	return l.Listener.Close()
}

// checkStale refuses a path where a daemon answers, or that is no socket.
func checkStale(ctx context.Context, socket string) error {
	info, err := os.Lstat(socket)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look at socket %s: %w", socket, err)
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("%s is there and is no socket: remove it, or choose another --socket: %w", socket, errdefs.ErrConflict)
	}
	d := net.Dialer{Timeout: time.Second}
	conn, err := d.DialContext(ctx, "unix", socket)
	if err == nil {
		_ = conn.Close()
		return fmt.Errorf("another daemon answers on socket %s: stop it, or choose another --socket: %w", socket, errdefs.ErrConflict)
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("socket %s is there and cannot be tried: %w", socket, err)
	}
	return nil
}

func groupID(group string) (int, error) {
	if id, err := strconv.Atoi(group); err == nil {
		return id, nil
	}
	g, err := user.LookupGroup(group)
	if err != nil {
		return 0, fmt.Errorf("group %s: %w", group, err)
	}
	return strconv.Atoi(g.Gid)
}
