// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestPingAndHeaders(t *testing.T) {
	f := newFixture(t)
	f.cluster.ready = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() } // still loading
	for _, path := range []string{"/_ping", "/v1.24/_ping", "/v1.51/_ping"} {
		for _, method := range []string{"GET", "HEAD"} {
			code, h, body := f.do(t, method, path, "")
			if code != 200 {
				t.Fatalf("%s %s: %d %s", method, path, code, body)
			}
			if method == "GET" && body != "OK" {
				t.Errorf("%s: body %q", path, body)
			}
			for name, want := range map[string]string{"Api-Version": "1.51", "Docker-Experimental": "false",
				"Ostype": runtime.GOOS, "Server": "Docker/0.1.0 (" + runtime.GOOS + ")", "Builder-Version": "1",
				"Swarm": "active/manager", "Content-Type": "text/plain; charset=utf-8"} {
				if got := h.Get(name); got != want {
					t.Errorf("%s %s: %s = %q, want %q", method, path, name, got, want)
				}
			}
		}
	}
}

func TestVersionNegotiation(t *testing.T) {
	f := newFixture(t)
	for _, c := range []struct {
		path, want string
		code       int
	}{
		{"/v1.52/_ping", `{"message":"client version 1.52 is too new. Maximum supported API version is 1.51"}` + "\n", 400},
		{"/v2.0/_ping", `{"message":"client version 2.0 is too new. Maximum supported API version is 1.51"}` + "\n", 400},
		{"/v1.23/_ping", "client version 1.23 is too old. Minimum supported API version is 1.24, please upgrade your client to a newer version\n", 400},
		{"/nothing", `{"message":"page not found"}` + "\n", 404},
		{"/v1.41/nothing", `{"message":"page not found"}` + "\n", 404},
		{"/vx/_ping", `{"message":"page not found"}` + "\n", 404},
	} {
		code, h, body := f.do(t, "GET", c.path, "")
		if code != c.code || body != c.want {
			t.Errorf("%s: %d %q, want %d %q", c.path, code, body, c.code, c.want)
		}
		if h.Get("Api-Version") != "1.51" {
			t.Errorf("%s: no Api-Version on an error", c.path)
		}
	}
	if code, _, body := f.do(t, "DELETE", "/_ping", ""); code != 404 || !strings.Contains(body, "page not found") {
		t.Errorf("wrong method: %d %s", code, body)
	}
}

// Reads wait for the store, once; changes for a leader as well; what is this
// node's own, for neither.
func TestGates(t *testing.T) {
	never := func(ctx context.Context) error { <-ctx.Done(); return errors.New("nobody leads") }
	for _, c := range []struct {
		method, path, body string
		loaded, ready      func(context.Context) error
		code               int
		want               string
	}{
		{"GET", "/services", "", never, never, 503, "not loaded yet"},
		{"GET", "/services", "", nil, never, 200, "[]"},
		{"GET", "/nodes", "", nil, never, 200, fakeNodeID},
		{"POST", "/services/create", "{}", never, never, 503, "not loaded yet"},
		{"POST", "/services/create", "{}", nil, never, 503, "try again"},
		{"DELETE", "/services/web", "", nil, never, 503, "nobody leads"},
		{"GET", "/containers/json", "", never, never, 200, "[]"},
		{"GET", "/info", "", never, never, 200, "nobody leads"},
		{"GET", "/info", "", nil, nil, 200, `"Error":""`},
		{"POST", "/build", "", never, never, 501, "not supported"},
		{"POST", "/swarm/init", "{}", never, never, 503, "not loaded yet"},
		{"POST", "/swarm/join", "{}", nil, never, 503, "nobody leads"},
		{"POST", "/swarm/leave?force=1", "", never, never, 200, ""},
	} {
		f := newFixture(t, func(cfg *Config) { cfg.ReadyTimeout, cfg.LeaderTimeout = 20*time.Millisecond, 20*time.Millisecond })
		f.cluster.loaded, f.cluster.ready = c.loaded, c.ready
		code, _, body := f.do(t, c.method, c.path, c.body)
		if code != c.code || !strings.Contains(body, c.want) {
			t.Errorf("%s %s: %d %s, want %d %s", c.method, c.path, code, body, c.code, c.want)
		}
	}
}

func TestStatusOf(t *testing.T) {
	for _, c := range []struct {
		err  error
		want int
	}{
		{errInvalid("x"), 400}, {errNotFound("x"), 404}, {errConflict("x"), 409}, {errForbidden("x"), 403},
		{errUnavailable("x"), 503}, {errNotSupported("x"), 501},
		{fmt.Errorf("removing x: %w", errdefs.ErrConflict), 409},
		{fmt.Errorf("x: %w", errdefs.ErrNotModified), 304},
		{fmt.Errorf("x: %w", errdefs.ErrUnauthenticated), 401},
		{fmt.Errorf("x: %w", errdefs.ErrAlreadyExists), 409},
		{status.Error(codes.InvalidArgument, "x"), 400}, {status.Error(codes.NotFound, "x"), 404},
		{status.Error(codes.AlreadyExists, "x"), 409}, {status.Error(codes.FailedPrecondition, "x"), 400},
		{status.Error(codes.Unknown, "x"), 500}, {status.Error(codes.Unavailable, "x"), 503},
		{status.Error(codes.DeadlineExceeded, "x"), 503},
		{fmt.Errorf("wrapped: %w", status.Error(codes.NotFound, "x")), 404},
		{&http.MaxBytesError{Limit: 1}, 413}, {fs.ErrPermission, 403}, {errors.New("x"), 500},
		{context.DeadlineExceeded, 503},
	} {
		if got := statusOf(c.err); got != c.want {
			t.Errorf("%v (%T): %d, want %d", c.err, c.err, got, c.want)
		}
	}
}

func TestErrorsAndPanics(t *testing.T) {
	f := newFixture(t)
	for name, c := range map[string]struct {
		h    handler
		code int
		body string
	}{
		"error":       {func(http.ResponseWriter, *http.Request) error { return errConflict("in use") }, 409, `{"message":"in use"}` + "\n"},
		"panic":       {func(http.ResponseWriter, *http.Request) error { panic("boom") }, 500, `{"message":"internal error: boom"}` + "\n"},
		"notmodified": {func(http.ResponseWriter, *http.Request) error { return errdefs.ErrNotModified }, 304, ""},
		"begun": {func(w http.ResponseWriter, _ *http.Request) error {
			_, _ = newFlushWriter(w).Write([]byte("x"))
			return errConflict("late")
		}, 200, "x"},
	} {
		rec := httptest.NewRecorder()
		f.server.wrap(c.h, led)(rec, httptest.NewRequest("GET", "/x", nil))
		if rec.Code != c.code || rec.Body.String() != c.body {
			t.Errorf("%s: %d %q", name, rec.Code, rec.Body)
		}
	}
}

// What a client did wrong is not in the log, what others kept us from is a
// warning, and an error what is our own.
func TestLevelsOfErrors(t *testing.T) {
	f := newFixture(t)
	var out bytes.Buffer
	f.server.log = slog.New(slog.NewTextHandler(&out, nil))
	for _, c := range []struct {
		err  error
		want string
	}{
		{errInvalid("no such signal"), ""},
		{errNotSupported("no stats"), ""},
		{errUnavailable("no registry"), "level=WARN"},
		{errors.New("read tasks.db: input/output error"), "level=ERROR"},
	} {
		out.Reset()
		h := func(http.ResponseWriter, *http.Request) error { return c.err }
		f.server.wrap(h, led)(httptest.NewRecorder(), httptest.NewRequest("GET", "/x", nil))
		if got := out.String(); c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%v: logged %q, want %s", c.err, got, c.want)
		}
	}
}

func TestDecodeJSON(t *testing.T) {
	type obj struct{ A int }
	for _, c := range []struct {
		name, contentType, body, want string
	}{
		{"ok", "application/json", `{"A":1}`, ""},
		{"charset", "application/json; charset=utf-8", `{"A":1}` + "\n ", ""},
		{"empty", "application/json", "", "invalid JSON: got EOF while reading request body"},
		{"blank", "application/json", "  ", "invalid JSON: got EOF while reading request body"},
		{"malformed", "application/json", `{"A":`, "invalid JSON: unexpected EOF"},
		{"type", "application/json", `{"A":"x"}`, "invalid JSON: json: cannot unmarshal string into Go struct field obj.A of type int"},
		{"trailing", "application/json", `{"A":1}{"A":2}`, "unexpected content after JSON"},
		{"trailing junk", "application/json", `{"A":1}x`, "unexpected content after JSON"},
		{"trailing bracket", "application/json", `{"A":1}]`, "unexpected content after JSON"},
		{"text", "text/plain", `{"A":1}`, "unsupported Content-Type header (text/plain): must be 'application/json'"},
		{"no type", "", `{"A":1}`, "malformed Content-Type header (): mime: no media type"},
		{"huge", "application/json", `{"A":1` + strings.Repeat(" ", maxBody) + `}`, "request body is larger than 4194304 bytes: http: request body too large"},
	} {
		r := httptest.NewRequest("POST", "/", strings.NewReader(c.body))
		if c.contentType != "" {
			r.Header.Set("Content-Type", c.contentType)
		}
		var o obj
		got := ""
		if err := decodeJSON(httptest.NewRecorder(), r, &o); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	if err := decodeOptionalJSON(nil, httptest.NewRequest("POST", "/", nil), &obj{}); err != nil {
		t.Errorf("optional: %v", err)
	}
}

func TestQuery(t *testing.T) {
	r := httptest.NewRequest("GET", "/?a=1&b=no&c=yes&d=&n=7&bad=x&t=5.000000009&rel=1m", nil)
	if !queryBool(r, "a") || queryBool(r, "b") || !queryBool(r, "c") || queryBool(r, "d") || queryBool(r, "z") {
		t.Error("queryBool")
	}
	if !queryBoolDefault(r, "z", true) || queryBoolDefault(r, "b", true) {
		t.Error("queryBoolDefault")
	}
	if _, err := queryStrictBool(r, "bad"); statusOf(err) != 400 {
		t.Error(err)
	}
	if n, err := queryInt(r, "n", 3); n != 7 || err != nil {
		t.Error(n, err)
	}
	if n, err := queryInt(r, "z", 3); n != 3 || err != nil {
		t.Error(n, err)
	}
	if _, err := queryInt(r, "bad", 3); statusOf(err) != 400 {
		t.Error(err)
	}
	now := time.Unix(1000, 0)
	if got, err := queryTime(r, "t", now); err != nil || !got.Equal(time.Unix(5, 9)) {
		t.Error(got, err)
	}
	if got, err := queryTime(r, "rel", now); err != nil || !got.Equal(time.Unix(940, 0)) {
		t.Error(got, err)
	}
	if got, err := queryTime(r, "z", now); err != nil || !got.IsZero() {
		t.Error(got, err)
	}
	if _, err := queryTime(r, "bad", now); statusOf(err) != 400 {
		t.Error(err)
	}
}

func TestParseFilters(t *testing.T) {
	for query, want := range map[string]string{
		"": "", "filters=": "",
		"filters=" + `{"name":{"web":true}}`:   "",
		"filters=" + `{"name":["web"]}`:        "",
		"filters=" + `{"nonsense":["x"]}`:      "invalid filter 'nonsense'",
		"filters=" + `{"nonsense":{"x":true}}`: "invalid filter 'nonsense'",
		"filters=" + `{"name":"web"}`:          `invalid filter: {"name":"web"}`,
		"filters=" + `junk`:                    "invalid filter: junk",
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.URL.RawQuery = query
		args, err := parseFilters(r, "name")
		got := ""
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: %q, want %q", query, got, want)
		}
		if strings.Contains(query, "web") && err == nil && !args.ExactMatch("name", "web") {
			t.Errorf("%s: value lost", query)
		}
	}
}

func FuzzParseFilters(f *testing.F) {
	for _, s := range []string{`{"name":{"web":true}}`, `{"name":["web"]}`, `null`, `[]`, `{"name":null}`, `{"name":{"a":false}}`, `{`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r := httptest.NewRequest("GET", "/", nil)
		r.URL.RawQuery = "filters=" + strings.ReplaceAll(s, "&", "")
		args, err := parseFilters(r, "name")
		if err != nil {
			if statusOf(err) != 400 {
				t.Errorf("%v is no 400", err)
			}
			return
		}
		args.Get("name")
		args.Match("name", "web")
	})
}
