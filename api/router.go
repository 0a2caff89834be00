// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"

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
	f := r.server.wrap(h, r.early)
	r.mux.HandleFunc(versionPrefix+path, f).Methods(method)
	r.mux.HandleFunc(path, f).Methods(method)
}

// pathVar is a variable of the route, "" when it has none of that name.
func pathVar(r *http.Request, name string) string { return mux.Vars(r)[name] }

// wrap puts around a handler what every answer needs: the headers, the
// version check, the wait for the store, and the rendering of errors.
func (s *Server) wrap(h handler, early bool) http.HandlerFunc {
	return func(rw http.ResponseWriter, r *http.Request) {
		w := &response{ResponseWriter: rw}
		s.setHeaders(w.Header())
		defer s.recoverPanic(w, r)
		err := s.serve(w, r, h, early)
		if err != nil {
			s.writeError(w, r, err)
		}
	}
}

func (s *Server) serve(w *response, r *http.Request, h handler, early bool) error {
	version, err := negotiate(pathVar(r, "version"))
	if err != nil {
		return err
	}
	r = r.WithContext(context.WithValue(r.Context(), versionKey{}, version))
	if !early {
		if err := s.waitReady(r.Context()); err != nil {
			return err
		}
	}
	return h(w, r)
}

// waitReady waits, bounded, until the store can be read and written.
func (s *Server) waitReady(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, s.cfg.ReadyTimeout)
	defer cancel()
	if err := s.cfg.Cluster.Ready(bounded); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return errUnavailable("the cluster store is not ready yet (waited %v): %v; try again in a few seconds",
			s.cfg.ReadyTimeout, err)
	}
	return nil
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
	case status >= http.StatusInternalServerError && status != http.StatusNotImplemented:
		s.log.Error("api request failed", "method", r.Method, "path", r.URL.Path, "status", status, "error", err)
	default:
		s.log.Debug("api request refused", "method", r.Method, "path", r.URL.Path, "status", status, "error", err)
	}
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

func (s *Server) pageNotFound(rw http.ResponseWriter, _ *http.Request) {
	w := &response{ResponseWriter: rw}
	s.setHeaders(w.Header())
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
