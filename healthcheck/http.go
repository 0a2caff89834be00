// SPDX-License-Identifier: BSD-2-Clause

package healthcheck

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Bounds of what is read of a response.
const (
	maxRead    = 64 << 10               // bytes of it all
	maxInterim = 8                      // interim (1xx) responses
	bodyWait   = 100 * time.Millisecond // for the head of the body of a response that does not pass
	maxType    = 128                    // bytes of a content type
)

// HTTPProbe sends a GET to the task's own address, over a connection of its
// own, and judges by the status code of the response. Redirects are never
// followed and no other host is contacted. The body of a response has no say;
// of one that does not pass its head is kept.
//
// Rules: spec/replica-health.txt, "Endpoint"; cases/probe.md, probe-7 and
// probe-8.
type HTTPProbe struct {
	reach   Reach
	port    uint16
	pass    Codes
	request []byte
}

// NewHTTPProbe probes a task over HTTP.
func NewHTTPProbe(s Settings, r Reach) *HTTPProbe {
	return &HTTPProbe{reach: r, port: s.Port, pass: s.Pass, request: request(s, r.Addr)}
}

// request is what is sent: HTTP/1.1 without "Connection: close", so that this
// side is the first to end the connection.
func request(s Settings, addr netip.Addr) []byte {
	host := netip.AddrPortFrom(addr, s.Port).String()
	if s.Port == 80 {
		host = addr.String()
		if addr.Is6() {
			host = "[" + host + "]"
		}
	}
	header := []Header{
		{"Host", host},
		{"User-Agent", "satld-health"},
		{"Accept", "*/*"},
		// As from a proxy that ended TLS, so that an application which
		// redirects HTTP to HTTPS answers as it does to its users.
		{"X-Forwarded-Proto", "https"},
	}
	for _, h := range s.Header {
		if i := slices.IndexFunc(header, func(own Header) bool { return own.Name == h.Name }); i >= 0 {
			header[i] = h
		} else {
			header = append(header, h)
		}
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "GET %s HTTP/1.1\r\n", s.Path)
	for _, h := range header {
		fmt.Fprintf(&b, "%s: %s\r\n", h.Name, h.Value)
	}
	b.WriteString("\r\n")
	return b.Bytes()
}

// Attempt implements Probe. No complete header within the timeout is exit
// code -1, anything else that does not pass is 1.
func (p *HTTPProbe) Attempt(ctx context.Context, timeout time.Duration) Result {
	return p.get(ctx, timeout, p.pass)
}

// AttemptGate implements Gated: exactly 200 passes.
func (p *HTTPProbe) AttemptGate(ctx context.Context, timeout time.Duration) Result {
	return p.get(ctx, timeout, gatePass)
}

// AttemptControl implements Gated. It asks the same once more, over a
// connection of its own: in the task's own network stack whoever answers is
// the task. An answer of 200 passes, and so ends no gate.
func (p *HTTPProbe) AttemptControl(ctx context.Context, timeout time.Duration) Result {
	r := p.get(ctx, timeout, gatePass)
	r.Control = true
	return r
}

func (p *HTTPProbe) get(ctx context.Context, timeout time.Duration, pass Codes) Result {
	start := time.Now()
	r := p.exchange(ctx, start, timeout, pass)
	r.Start, r.End = start, time.Now()
	return r
}

func (p *HTTPProbe) exchange(ctx context.Context, start time.Time, timeout time.Duration, pass Codes) Result {
	if r, ok := p.reach.unreachable(); ok {
		return r
	}
	deadline := start.Add(timeout)
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	conn, finish, err := p.reach.open(ctx, p.port)
	if err != nil {
		return broken(err, timeout, fmt.Sprintf("connect to port %d", p.port))
	}
	defer finish()
	if _, err := conn.Write(p.request); err != nil {
		return broken(err, timeout, "send the request")
	}
	from := &source{conn: conn, left: maxRead}
	response, err := readResponse(bufio.NewReader(from))
	if err != nil {
		return p.noResponse(cmp.Or(from.err, err), timeout)
	}
	code := response.StatusCode
	r := Result{Word: strconv.Itoa(code), By: p.reach.by(), Output: strings.TrimSpace(fmt.Sprintf("HTTP %d %s", code, http.StatusText(code)))}
	if code >= 300 && code <= 399 {
		r.Output += " (redirect not followed)"
	}
	if pass.Contains(code) {
		return r
	}
	r.ExitCode = 1
	body := readBody(conn, response, deadline)
	r.Answer = &Answer{
		Status:      code,
		ContentType: head(strings.ToValidUTF8(response.Header.Get("Content-Type"), "?"), maxType),
	}
	if r.By == Application { // what another may have said is not kept in a record
		r.Answer.Body = head(body, MaxBody)
	}
	if text := strings.TrimSpace(body); text != "" {
		r.Output = clip(r.Output + ": " + text)
	}
	return r
}

// noResponse is the result where no final response could be read.
func (p *HTTPProbe) noResponse(err error, timeout time.Duration) Result {
	var broke net.Error
	if errors.As(err, &broke) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return broken(err, timeout, "wait for the response")
	}
	return Result{ExitCode: 1, Word: "malformed", By: p.reach.by(), Output: clip("the response is not HTTP: " + err.Error())}
}

// source reads a connection up to a limit, and remembers why it ended: a
// parser takes what came before the end for all there was to come.
type source struct {
	conn net.Conn
	left int
	err  error
}

func (s *source) Read(p []byte) (int, error) {
	if s.left == 0 {
		s.err = fmt.Errorf("no body after %d bytes", maxRead)
	}
	if s.err != nil {
		return 0, s.err
	}
	n, err := s.conn.Read(p[:min(len(p), s.left)])
	s.left -= n
	s.err = err
	return n, err
}

// readResponse reads the header of the first response that is final.
func readResponse(from *bufio.Reader) (*http.Response, error) {
	for range maxInterim {
		r, err := http.ReadResponse(from, nil)
		if err != nil || r.StatusCode >= 200 || r.StatusCode == http.StatusSwitchingProtocols {
			return r, err
		}
	}
	return nil, errors.New("it begins with too many interim responses")
}

// readBody reads the head of a body, MaxOutput bytes of it, as valid UTF-8: as
// much as comes before the deadline and within bodyWait. The body is not
// closed, which would read all of it; the connection is.
func readBody(conn net.Conn, r *http.Response, deadline time.Time) string {
	if wait := time.Now().Add(bodyWait); wait.Before(deadline) {
		if err := conn.SetReadDeadline(wait); err != nil {
			return ""
		}
	}
	var out output
	// An error is the body's end, or that no more of it came in time.
	_, _ = io.CopyN(&out, r.Body, MaxOutput+1)
	return out.String()
}
