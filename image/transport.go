// SPDX-License-Identifier: BSD-2-Clause

package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// Bounds of talking to a registry. The library tries a connection three times
// in all, so a registry that swallows packets is given up after three times dialTimeout.
const (
	dialTimeout   = 5 * time.Second
	tlsTimeout    = 10 * time.Second
	headerTimeout = 20 * time.Second // from the request to the answer's first line
	stallTimeout  = 60 * time.Second // without a byte of an answer
)

// newTransport is how registries are talked to; base nil is the default.
func newTransport(base http.RoundTripper) http.RoundTripper {
	if base == nil {
		base = &http.Transport{
			Proxy:                 http.ProxyFromEnvironment,
			DialContext:           (&net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}).DialContext,
			ForceAttemptHTTP2:     true,
			MaxIdleConns:          32,
			MaxIdleConnsPerHost:   8,
			IdleConnTimeout:       30 * time.Second,
			TLSHandshakeTimeout:   tlsTimeout,
			ResponseHeaderTimeout: headerTimeout,
			ExpectContinueTimeout: time.Second,
		}
	}
	return &registryTransport{base: base, stall: stallTimeout}
}

// registryTransport refuses plain HTTP except to this host itself, whatever a
// registry redirects to or names as its token server (the library would also
// use it for private addresses and names under .local), and ends an answer
// that stalls.
type registryTransport struct {
	base  http.RoundTripper
	stall time.Duration
}

func (t *registryTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Scheme != "https" && !isLoopback(req.URL.Hostname()) {
		return nil, fmt.Errorf("refusing plain HTTP to %s: only registries on this host itself may be without TLS", req.URL.Host)
	}
	ctx, cancel := context.WithCancelCause(req.Context())
	resp, err := t.base.RoundTrip(req.WithContext(ctx))
	if err != nil {
		cancel(nil)
		return nil, err
	}
	resp.Body = &stallReader{ReadCloser: resp.Body, ctx: ctx, cancel: cancel, stall: t.stall}
	return resp, nil
}

// isLoopback tells whether host is 127.0.0.0/8, ::1 or localhost, by its
// spelling: a name is not looked up.
func isLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

var errStalled = errors.New("the registry stopped sending")

// stallReader is a body of which each read is bounded.
type stallReader struct {
	io.ReadCloser
	ctx    context.Context
	cancel context.CancelCauseFunc
	stall  time.Duration
}

func (r *stallReader) Read(p []byte) (int, error) {
	timer := time.AfterFunc(r.stall, func() {
		r.cancel(fmt.Errorf("%w for %s", errStalled, r.stall))
	})
	n, err := r.ReadCloser.Read(p)
	timer.Stop()
	if err != nil && !errors.Is(err, io.EOF) {
		if cause := context.Cause(r.ctx); errors.Is(cause, errStalled) {
			err = cause
		}
	}
	return n, err
}

func (r *stallReader) Close() error {
	err := r.ReadCloser.Close()
	r.cancel(nil)
	return err
}
