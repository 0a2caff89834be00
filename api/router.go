// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/versions"
	"github.com/gorilla/mux"
)

// handler answers one request. An error that it returns is rendered by the
// table in errors.go, unless the answer has begun already. Path variables are
// in pathVar(r, name), the negotiated version in apiVersion(r).
type handler func(w http.ResponseWriter, r *http.Request) error

// routes registers handlers, each with and without the version prefix.
type routes struct {
	server *Server
	mux    *mux.Router
	// early routes answer while the store is still loading.
	early bool
}

// gate is what a request waits for before its handler is called.
type gate int

const (
	open   gate = iota // nothing
	loaded             // a store that has been loaded: it is read with and without a leader
	led                // a leader, which everything that changes the cluster needs
)

func (r *routes) get(path string, h handler)  { r.handle(http.MethodGet, path, h) }
func (r *routes) head(path string, h handler) { r.handle(http.MethodHead, path, h) }
func (r *routes) post(path string, h handler) { r.handle(http.MethodPost, path, h) }
func (r *routes) put(path string, h handler)  { r.handle(http.MethodPut, path, h) }
func (r *routes) del(path string, h handler)  { r.handle(http.MethodDelete, path, h) }

// whileLoading gives a registrar whose routes do not wait for the store.
func (r *routes) whileLoading() *routes {
	return &routes{server: r.server, mux: r.mux, early: true}
}

func (r *routes) handle(method, path string, h handler) {
	g := led
	switch {
	case r.early:
		g = open
	case method == http.MethodGet, method == http.MethodHead:
		g = loaded
	}
	f := r.server.wrap(h, g)
	r.mux.HandleFunc(versionPrefix+path, f).Methods(method)
	r.mux.HandleFunc(path, f).Methods(method)
}

// pathVar is a variable of the route, "" when it has none of that name.
func pathVar(r *http.Request, name string) string { return mux.Vars(r)[name] }

// wrap puts around a handler what every answer needs: the headers, the
// version check, the wait for the store, and the rendering of errors.
func (s *Server) wrap(h handler, g gate) http.HandlerFunc {
	return func(rw http.ResponseWriter, r *http.Request) {
		w := &response{ResponseWriter: rw}
		s.setHeaders(w.Header())
		defer s.recoverPanic(w, r)
		err := s.serve(w, r, h, g)
		if err != nil {
			s.writeError(w, r, err)
		}
	}
}

func (s *Server) serve(w *response, r *http.Request, h handler, g gate) error {
	version, err := negotiate(pathVar(r, "version"))
	if err != nil {
		return err
	}
	r = r.WithContext(context.WithValue(r.Context(), versionKey{}, version))
	if err := s.pass(r.Context(), g); err != nil {
		return err
	}
	return h(w, r)
}

// pass waits at a gate, bounded.
func (s *Server) pass(ctx context.Context, g gate) error {
	if g >= loaded {
		if err := within(ctx, s.cfg.ReadyTimeout, s.cfg.Cluster.Loaded); err != nil {
			return unlessGone(ctx, errUnavailable("the cluster store is not loaded yet (waited %v): %v; try again in a few seconds",
				s.cfg.ReadyTimeout, err))
		}
	}
	if g >= led {
		if err := within(ctx, s.cfg.LeaderTimeout, s.cfg.Cluster.Ready); err != nil {
			return unlessGone(ctx, errUnavailable("nothing can be changed at the moment (waited %v): %v; try again in a few seconds",
				s.cfg.LeaderTimeout, err))
		}
	}
	return nil
}

func within(ctx context.Context, bound time.Duration, wait func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	return wait(ctx)
}

// unlessGone is err, or that the client is gone.
func unlessGone(ctx context.Context, err error) error {
	return cmp.Or(ctx.Err(), err)
}

func (s *Server) recoverPanic(w *response, r *http.Request) {
	v := recover()
	if v == nil {
		return
	}
	if err, ok := v.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		panic(v)
	}
	s.log.Error("api handler panicked", "method", r.Method, "path", r.URL.Path, "panic", v, "stack", string(debug.Stack()))
	s.writeError(w, r, fmt.Errorf("internal error: %v", v))
}

// writeError renders err as Docker does: {"message": ...} with the status of
// the table; plain text for clients older than the oldest version spoken.
func (s *Server) writeError(w *response, r *http.Request, err error) {
	status := statusOf(err)
	if r.Context().Err() != nil {
		return // nobody is there to read it
	}
	switch {
	case w.begun:
		s.log.Warn("api answer broken off", "method", r.Method, "path", r.URL.Path, "error", err)
		return
	case status == http.StatusServiceUnavailable:
		// Of something besides this daemon: a registry, a leader, another node.
		s.log.Warn("api request could not be done", "method", r.Method, "path", r.URL.Path, "error", err)
	case status >= http.StatusInternalServerError && status != http.StatusNotImplemented:
		s.log.Error("api request failed", "method", r.Method, "path", r.URL.Path, "status", status, "error", err)
	default:
		s.log.Debug("api request refused", "method", r.Method, "path", r.URL.Path, "status", status, "error", err)
	}
	answerBeforeBody(w)
	defer dropBody(w, r)
	if status == http.StatusNotModified {
		w.WriteHeader(status)
		return
	}
	if v := pathVar(r, "version"); v != "" && versions.LessThan(v, minVersion) {
		http.Error(w, err.Error(), status)
		return
	}
	_ = writeJSON(w, status, &types.ErrorResponse{Message: err.Error()})
}

func (s *Server) pageNotFound(rw http.ResponseWriter, r *http.Request) {
	w := &response{ResponseWriter: rw}
	s.setHeaders(w.Header())
	answerBeforeBody(w)
	defer dropBody(w, r)
	_ = writeJSON(w, http.StatusNotFound, &types.ErrorResponse{Message: "page not found"})
}

// response remembers whether an answer has begun, so that an error after it
// does not pretend to be one. Flush, Hijack and deadlines pass through
// (http.ResponseController uses Unwrap).
type response struct {
	http.ResponseWriter
	begun bool
}

func (w *response) WriteHeader(status int) {
	w.begun = true
	w.ResponseWriter.WriteHeader(status)
}

func (w *response) Write(p []byte) (int, error) {
	w.begun = true
	return w.ResponseWriter.Write(p)
}

// Flush sends what was written so far.
func (w *response) Flush() {
	w.begun = true
	_ = http.NewResponseController(w.ResponseWriter).Flush()
}

// Unwrap is for http.ResponseController, whose Hijack a handler uses through
// hijacked below.
func (w *response) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// hijacked marks the answer as begun: a handler that took the connection over
// (http.NewResponseController(w).Hijack) calls it, so that a later error is
// logged and not written into the stream.
func hijacked(w http.ResponseWriter) {
	if w, ok := w.(*response); ok {
		w.begun = true
	}
}
