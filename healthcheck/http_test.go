// SPDX-License-Identifier: BSD-2-Clause

package healthcheck

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"
)

var (
	_   Gated = (*HTTPProbe)(nil)
	_   Probe = (*TCPProbe)(nil)
	own       = netip.MustParseAddr("127.0.0.1")
)

// patience is for what must end well before it: a slow day is no failure.
const patience = 20 * sec

// raw serves every connection with a function, until the test ends.
func raw(t *testing.T, serve func(conn net.Conn, in *bufio.Reader)) (port uint16) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	end, ended := context.WithCancel(context.Background())
	t.Cleanup(func() { l.Close(); ended(); wg.Wait() })
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer conn.Close()
				defer context.AfterFunc(end, func() { conn.Close() })()
				serve(conn, bufio.NewReader(conn))
			})
		}
	})
	return portOf(l.Addr())
}

func portOf(a net.Addr) uint16 { return uint16(a.(*net.TCPAddr).Port) }

// says answers each request with bytes and leaves the connection open until
// the other side ends it.
func says(text string) func(net.Conn, *bufio.Reader) {
	return func(conn net.Conn, in *bufio.Reader) {
		if _, err := http.ReadRequest(in); err == nil {
			io.WriteString(conn, text)
			io.Copy(io.Discard, in)
		}
	}
}

// served is an HTTP server.
func served(t *testing.T, h http.HandlerFunc) (port uint16) {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return portOf(s.Listener.Addr())
}

func httpProbe(t *testing.T, port uint16, labels string) *HTTPProbe {
	t.Helper()
	return NewProbe(resolved(t, nil, fmt.Sprintf("http=/health?a=b port=%d %s", port, labels)), Reach{Addr: own}).(*HTTPProbe)
}

// noneLeft fails the test where goroutines are left of what it does.
func noneLeft(t *testing.T, do func()) {
	t.Helper()
	before := runtime.NumGoroutine()
	do()
	for deadline := time.Now().Add(patience); runtime.NumGoroutine() > before; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			buf := make([]byte, 1<<16)
			t.Fatalf("%d goroutines became %d:\n%s", before, runtime.NumGoroutine(), buf[:runtime.Stack(buf, true)])
		}
	}
}

// TestHTTPAnswers: what servers of all kinds answer, and what is made of it.
func TestHTTPAnswers(t *testing.T) {
	const head = "HTTP/1.1 200 OK\r\n"
	for _, c := range []struct {
		name    string
		serve   func(net.Conn, *bufio.Reader)
		labels  string
		timeout time.Duration // 0: long
		code    int
		word    string
		by      Answerer
		output  string // begins with
	}{
		{name: "200", serve: says(head + "Content-Length: 2\r\n\r\nok"), word: "200", by: Application, output: "HTTP 200 OK"},
		{name: "HTTP/1.0", serve: says("HTTP/1.0 204 Nothing here\r\n\r\n"), word: "204", by: Application, output: "HTTP 204 No Content"},
		{name: "a redirect passes as it stands", serve: says("HTTP/1.1 302 Found\r\nLocation: http://192.0.2.1/\r\n\r\n"), word: "302", by: Application, output: "HTTP 302 Found (redirect not followed)"},
		{name: "a redirect where only 200 passes", labels: "pass=200", serve: says("HTTP/1.1 301 Moved\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n"), code: 1, word: "301", by: Application, output: "HTTP 301 Moved Permanently (redirect not followed)"},
		{name: "503 with a body", serve: says("HTTP/1.1 503 x\r\nContent-Length: 20\r\n\r\ndatabase unavailable"), code: 1, word: "503", by: Application, output: "HTTP 503 Service Unavailable: database unavailable"},
		{name: "404 in chunks", serve: says("HTTP/1.1 404 x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nnot\r\n6\r\n there\r\n0\r\n\r\n"), code: 1, word: "404", by: Application, output: "HTTP 404 Not Found: not there"},
		{name: "an unknown code", serve: says("HTTP/1.1 599\r\n\r\n"), code: 1, word: "599", by: Application, output: "HTTP 599"},
		{name: "interim responses first", serve: says("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </>\r\n\r\n" + head + "\r\n"), word: "200", by: Application, output: "HTTP 200 OK"},
		{name: "nothing but interim responses", serve: says(strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", 99)), code: 1, word: "malformed", by: Application, output: "the response is not HTTP: it begins with too many"},
		{name: "upgrade", serve: says("HTTP/1.1 101 Switching Protocols\r\n\r\n"), code: 1, word: "101", by: Application, output: "HTTP 101"},
		{name: "hangs", serve: says(""), timeout: 300 * time.Millisecond, code: -1, word: "timed_out", by: Nothing, output: "Health check exceeded timeout (300ms): wait for the response"},
		{name: "half a status line", serve: says("HTTP/1.1 20"), timeout: 300 * time.Millisecond, code: -1, word: "timed_out", by: Nothing, output: "Health check exceeded timeout (300ms)"},
		{name: "half a header", serve: says(head + "X: "), timeout: 300 * time.Millisecond, code: -1, word: "timed_out", by: Nothing, output: "Health check exceeded timeout (300ms)"},
		{name: "closes at once", serve: func(conn net.Conn, _ *bufio.Reader) { conn.(*net.TCPConn).CloseWrite(); io.Copy(io.Discard, conn) }, code: 1, word: "closed", by: Nothing, output: "wait for the response: connection closed"},
		{name: "closes in its header", serve: func(conn net.Conn, in *bufio.Reader) {
			http.ReadRequest(in)
			io.WriteString(conn, head+"X: ")
		}, code: 1, word: "closed", by: Nothing, output: "wait for the response: connection closed"},
		{name: "resets", serve: func(conn net.Conn, in *bufio.Reader) {
			http.ReadRequest(in)
			conn.(*net.TCPConn).SetLinger(0)
		}, code: 1, word: "reset", by: Nothing, output: "wait for the response: connection reset by peer"},
		{name: "another protocol", serve: says("SSH-2.0-OpenSSH_9.6\r\n"), code: 1, word: "malformed", by: Application, output: "the response is not HTTP"},
		{name: "an endless header", serve: func(conn net.Conn, in *bufio.Reader) {
			http.ReadRequest(in)
			io.WriteString(conn, head)
			for {
				if _, err := io.WriteString(conn, "X: 0123456789\r\n"); err != nil {
					return
				}
			}
		}, code: 1, word: "malformed", by: Application, output: "the response is not HTTP: no body after 65536 bytes"},
		{name: "a body that is no text", serve: says("HTTP/1.1 500 x\r\nContent-Length: 4\r\n\r\n\xff\x00a\xc3"), code: 1, word: "500", by: Application, output: "HTTP 500 Internal Server Error: \ufffd\x00a\ufffd"},
		{name: "a failing body that never ends", serve: says("HTTP/1.1 500 x\r\n\r\nboom"), code: 1, word: "500", by: Application, output: "HTTP 500 Internal Server Error: boom"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := httpProbe(t, raw(t, c.serve), c.labels)
			if c.timeout == 0 {
				c.timeout = patience
			}
			noneLeft(t, func() {
				begun := time.Now()
				r := p.Attempt(t.Context(), c.timeout)
				if r.ExitCode != c.code || r.Word != c.word || r.By != c.by || !strings.HasPrefix(r.Output, c.output) {
					t.Errorf("%+v, want %d %s by %s: %s", r, c.code, c.word, c.by, c.output)
				}
				if !utf8.ValidString(r.Output) || len(r.Output) > MaxOutput || strings.Contains(r.Output, "127.0.0.1") || strings.Contains(r.Output, "192.0.2.1") {
					t.Errorf("output %q", r.Output)
				}
				if (r.Answer != nil) != (c.code == 1 && r.Word != "malformed" && c.by == Application) {
					t.Errorf("answer %+v", r.Answer)
				}
				if r.Start.Before(begun) || r.End.Before(r.Start) || c.code == -1 && r.End.Sub(r.Start) < c.timeout || c.code != -1 && r.End.Sub(r.Start) > patience/2 {
					t.Errorf("from %v to %v", r.Start.Sub(begun), r.End.Sub(begun))
				}
			})
		})
	}
}

// TestHTTPBodies: the verdict is there with the status line, however long the
// body, and what is read of it is bounded (probe-8).
func TestHTTPBodies(t *testing.T) {
	var sent atomic.Int64
	body := bytes.Repeat([]byte("x"), 1<<16)
	endless := func(w http.ResponseWriter, r *http.Request) {
		if code, _ := strconv.Atoi(r.URL.Query().Get("a")); code != 0 {
			w.WriteHeader(code)
		}
		w.(http.Flusher).Flush()
		for r.Context().Err() == nil {
			n, err := w.Write(body)
			if sent.Add(int64(n)); err != nil {
				return
			}
		}
	}
	trickle := func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			if _, err := w.Write(body[:1]); err != nil {
				return
			}
			w.(http.Flusher).Flush()
			time.Sleep(50 * time.Millisecond)
		}
	}
	big := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(5<<20))
		for range 5 << 4 {
			w.Write(body)
		}
	}
	for name, h := range map[string]http.HandlerFunc{"5 MiB": big, "1 byte at a time": trickle, "endless": endless} {
		t.Run(name, func(t *testing.T) {
			p := httpProbe(t, served(t, h), "")
			for range 5 {
				if r := p.Attempt(t.Context(), patience); !r.Passed() || r.Output != "HTTP 200 OK" {
					t.Fatalf("%+v", r)
				}
			}
			// The best of five, so that a busy machine does not decide.
			best := patience
			for range 5 {
				begun := time.Now()
				p.Attempt(t.Context(), patience)
				best = min(best, time.Since(begun))
			}
			if best > 200*time.Millisecond {
				t.Errorf("the verdict takes %v", best)
			}
		})
	}
	t.Run("of a failure", func(t *testing.T) {
		s := resolved(t, nil, fmt.Sprintf("http=/?a=500 port=%d", served(t, endless)))
		r := NewProbe(s, Reach{Addr: own}).Attempt(t.Context(), patience)
		if r.ExitCode != 1 || len(r.Output) != MaxOutput || len(r.Answer.Body) != MaxBody || r.Answer.Status != 500 {
			t.Errorf("%d bytes of output, answer %+v", len(r.Output), r.Answer)
		}
	})
}

// counting counts the bytes that were read of a connection.
type counting struct {
	net.Conn
	n *atomic.Int64
}

func (c counting) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.n.Add(int64(n))
	return n, err
}

func (c counting) SetLinger(sec int) error { return c.Conn.(*net.TCPConn).SetLinger(sec) }

// TestHTTPReadsLittle: what is read of a response that never ends is bounded.
func TestHTTPReadsLittle(t *testing.T) {
	port := served(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(500)
		for {
			if _, err := w.Write(bytes.Repeat([]byte("y"), 1<<16)); err != nil {
				return
			}
		}
	})
	var n atomic.Int64
	s := resolved(t, nil, fmt.Sprintf("http=/ port=%d", port))
	r := NewProbe(s, Reach{Addr: own, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dialer.DialContext(ctx, network, address)
		return counting{conn, &n}, err
	}}).Attempt(t.Context(), patience)
	if r.Word != "500" || r.Answer.ContentType != "text/plain; charset=utf-8" || n.Load() > 16<<10 {
		t.Errorf("%s, %d bytes read", r.Word, n.Load())
	}
}

// TestHTTPRequest: what the server sees.
func TestHTTPRequest(t *testing.T) {
	seen := make(chan *http.Request, 1)
	port := served(t, func(_ http.ResponseWriter, r *http.Request) { seen <- r })
	r := httpProbe(t, port, "").Attempt(t.Context(), patience)
	got := <-seen
	if !r.Passed() || got.Method != "GET" || got.RequestURI != "/health?a=b" || got.Proto != "HTTP/1.1" || got.Close ||
		got.Host != fmt.Sprintf("127.0.0.1:%d", port) || got.Header.Get("X-Forwarded-Proto") != "https" || got.Header.Get("Accept-Encoding") != "" {
		t.Errorf("%+v: %+v", r, got)
	}
	httpProbe(t, port, "header.host=shop.example header.x-forwarded-proto=http header.Authorization=Basic").Attempt(t.Context(), patience)
	got = <-seen
	if got.Host != "shop.example" || len(got.Header["X-Forwarded-Proto"]) != 1 || got.Header.Get("X-Forwarded-Proto") != "http" || got.Header.Get("Authorization") != "Basic" {
		t.Errorf("%+v", got)
	}
	for addr, host := range map[string]string{"10.88.0.5": "Host: 10.88.0.5\r\n", "fd00::5": "Host: [fd00::5]\r\n"} {
		if got := string(request(Settings{Path: "/", Port: 80}, netip.MustParseAddr(addr))); !strings.Contains(got, host) {
			t.Errorf("%q", got)
		}
	}
}

// TestNoOtherHost: a redirect to another server and a proxy in the environment
// are not contacted (probe-7).
func TestNoOtherHost(t *testing.T) {
	var contacted atomic.Int64
	other := served(t, func(w http.ResponseWriter, _ *http.Request) { contacted.Add(1); w.WriteHeader(500) })
	there := fmt.Sprintf("http://127.0.0.1:%d/", other)
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY"} {
		t.Setenv(name, there)
	}
	port := served(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, there, http.StatusFound) })
	p := httpProbe(t, port, "")
	if r := p.Attempt(t.Context(), patience); !r.Passed() || r.Word != "302" {
		t.Errorf("%+v", r)
	}
	if r := p.AttemptGate(t.Context(), patience); r.Passed() || r.Answer.Status != 302 {
		t.Errorf("in a gate: %+v", r)
	}
	if n := contacted.Load(); n != 0 {
		t.Errorf("the other server was contacted %d times", n)
	}
}

// TestControlProbe: it says who answers, and a 200 says that the gate goes on.
func TestControlProbe(t *testing.T) {
	status := 404
	port := served(t, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "body", status) })
	p := httpProbe(t, port, "profile=gate")
	if r := p.AttemptControl(t.Context(), patience); !r.Control || r.By != Application || r.Passed() || r.Answer.Body != "body\n" {
		t.Errorf("%+v", r)
	}
	status = 200
	if r := p.AttemptControl(t.Context(), patience); !r.Control || !r.Passed() {
		t.Errorf("%+v", r)
	}
	status = 404
	shared := NewProbe(resolved(t, nil, fmt.Sprintf("http=/ port=%d", port)), Reach{Addr: own, Shared: true}).(*HTTPProbe)
	if r := shared.AttemptControl(t.Context(), patience); r.By != Unknown || r.Answer.Status != 404 || r.Answer.Body != "" {
		t.Errorf("in the host's network: %+v", r)
	}
}

// unused is a port that nobody listens on.
func unused(t *testing.T) uint16 {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	return portOf(l.Addr())
}

// TestNobodyThere: a port that nobody listens on, a task with no address, and
// a connection that never opens, over HTTP and over TCP.
func TestNobodyThere(t *testing.T) {
	port := unused(t)
	stuck := func(ctx context.Context, _, _ string) (net.Conn, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	for _, labels := range []string{"http=/ port=%d", "tcp=%d"} {
		s := resolved(t, nil, fmt.Sprintf(labels, port))
		for _, c := range []struct {
			reach        Reach
			timeout      time.Duration
			code         int
			word, output string
		}{
			{Reach{Addr: own}, patience, 1, "refused", fmt.Sprintf("connect to port %d: connection refused", port)},
			{Reach{}, patience, -1, "failed", "the task has no address to be probed at"},
			{Reach{Addr: own, Dial: stuck}, 50 * time.Millisecond, -1, "timed_out", fmt.Sprintf("Health check exceeded timeout (50ms): connect to port %d", port)},
		} {
			noneLeft(t, func() {
				r := NewProbe(s, c.reach).Attempt(t.Context(), c.timeout)
				if r.ExitCode != c.code || r.Word != c.word || r.Output != c.output || r.By != Nothing || r.Answer != nil {
					t.Errorf("%s: %+v, want %d %s %q", labels, r, c.code, c.word, c.output)
				}
			})
		}
	}
}

// TestAbandoned: an attempt ends with its context, whatever it waits for.
func TestAbandoned(t *testing.T) {
	accepted := make(chan struct{}, 1)
	port := raw(t, func(_ net.Conn, in *bufio.Reader) {
		http.ReadRequest(in) // by now the probe waits for the response
		accepted <- struct{}{}
		io.Copy(io.Discard, in)
	})
	p := httpProbe(t, port, "")
	noneLeft(t, func() {
		ctx, abandon := context.WithCancel(t.Context())
		done := make(chan Result)
		go func() { done <- p.Attempt(ctx, time.Hour) }()
		<-accepted
		abandon()
		select {
		case r := <-done:
			if r.Passed() {
				t.Errorf("%+v", r)
			}
		case <-time.After(patience):
			t.Fatal("the attempt goes on")
		}
	})
}

func TestTCPProbe(t *testing.T) {
	port := raw(t, func(_ net.Conn, in *bufio.Reader) { io.Copy(io.Discard, in) })
	s := resolved(t, nil, fmt.Sprintf("tcp=%d", port))
	noneLeft(t, func() {
		before := time.Now()
		r := NewProbe(s, Reach{Addr: own}).Attempt(t.Context(), patience)
		if r.Start.Before(before) || r.End.Before(r.Start) { // StartPeriod is judged by them
			t.Errorf("from %v to %v", r.Start, r.End)
		}
		if !r.Passed() || r.Word != "connected" || r.By != Application || r.Output != fmt.Sprintf("port %d accepts connections", port) {
			t.Errorf("%+v", r)
		}
	})
}

// TestNothingLingers: probes leave no connection in TIME_WAIT on either side,
// whoever of the two is the first to end it, so that no port is used up and no
// network stack is kept from going away.
func TestNothingLingers(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("reads Linux's table of connections")
	}
	const probes = 300
	serve := map[string]func(net.Conn, *bufio.Reader){
		"keep-alive":    says("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"),
		"unread body":   says("HTTP/1.1 200 OK\r\n\r\n" + strings.Repeat("x", 1<<16)),
		"a failing one": says("HTTP/1.1 500 x\r\nContent-Length: 2\r\n\r\nno"),
		"closes it first": func(conn net.Conn, in *bufio.Reader) {
			http.ReadRequest(in)
			io.WriteString(conn, "HTTP/1.0 200 OK\r\n\r\nok")
		},
	}
	for name, f := range serve {
		t.Run(name, func(t *testing.T) {
			port := raw(t, f)
			p := httpProbe(t, port, "")
			for range probes {
				p.Attempt(t.Context(), patience)
			}
			if n := timeWait(t, port); n > probes/20 {
				t.Errorf("%d connections of %d are in TIME_WAIT", n, probes)
			}
		})
	}
	t.Run("tcp", func(t *testing.T) {
		port := raw(t, func(_ net.Conn, in *bufio.Reader) { io.Copy(io.Discard, in) })
		p := NewProbe(resolved(t, nil, fmt.Sprintf("tcp=%d", port)), Reach{Addr: own})
		for range probes {
			p.Attempt(t.Context(), patience)
		}
		if n := timeWait(t, port); n > probes/20 {
			t.Errorf("%d connections of %d are in TIME_WAIT", n, probes)
		}
	})
}

// timeWait is how many connections from or to a port are in TIME_WAIT.
func timeWait(t *testing.T, port uint16) (n int) {
	t.Helper()
	text, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		t.Fatal(err)
	}
	end := fmt.Sprintf(":%04X", port)
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 3 && f[3] == "06" && (strings.HasSuffix(f[1], end) || strings.HasSuffix(f[2], end)) {
			n++
		}
	}
	return n
}
