// SPDX-License-Identifier: BSD-2-Clause

package apps

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

// Path is where a verdict is served, NAME being the application's.
const Path = "/satl/v1/apps/NAME/health"

// Handler answers GET (and HEAD) of Path: status 200 for an application that
// is healthy, 503 for one that is not, with the Verdict as JSON. It reads the
// cache and does nothing else, so that it may be served to anybody.
func (c *Cache) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /satl/v1/apps/{name}/health", func(w http.ResponseWriter, r *http.Request) {
		c.Get(r.PathValue("name")).Answer(w)
	})
	return mux
}

// Answer answers a request with the verdict.
func (v Verdict) Answer(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	if !v.Healthy {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_ = json.NewEncoder(w).Encode(v) // an error: the client has gone
}

// Serve answers on a listener of its own, for load balancers, until ctx is
// done; requests under way then get a moment to end. It closes the listener.
func Serve(ctx context.Context, l net.Listener, h http.Handler) error {
	// Whoever can reach it may ask, so nobody may hold a connection for long.
	s := &http.Server{
		Handler: h, ReadTimeout: 5 * time.Second, WriteTimeout: 5 * time.Second,
		IdleTimeout: time.Minute, MaxHeaderBytes: 8 << 10,
	}
	end := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		end <- s.Shutdown(last)
	})
	err := s.Serve(l)
	if stop() || !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the health of applications on %v: %w", l.Addr(), err)
	}
	if err := <-end; err != nil {
		return errors.Join(fmt.Errorf("end the requests for the health of applications: %w", err), s.Close())
	}
	return nil
}
