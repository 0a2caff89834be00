// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/docker/docker/client"
)

// socketFixture is a fixture that also listens on a unix socket, with Docker's
// own client to speak to it.
type socketFixture struct {
	*fixture
	path   string
	client *client.Client
}

// newSocketFixture serves a fixture on a unix socket; version "" is the newest.
func newSocketFixture(t testing.TB, version string) *socketFixture {
	t.Helper()
	f := &socketFixture{fixture: newFixture(t)}
	dir, err := os.MkdirTemp("", "satl") // t.TempDir may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	f.path = filepath.Join(dir, "s")
	lis, err := net.Listen("unix", f.path)
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: f.server}
	served := make(chan struct{})
	go func() { defer close(served); _ = srv.Serve(lis) }()
	if version == "" {
		version = maxVersion
	}
	f.client, err = client.NewClientWithOpts(client.WithHost("unix://"+f.path), client.WithVersion(version))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = f.client.Close()
		_ = srv.Close()
		<-served
		_ = os.RemoveAll(dir)
	})
	return f
}

// dial opens a connection of its own to the socket.
func (f *socketFixture) dial(t testing.TB) *net.UnixConn {
	t.Helper()
	conn, err := net.Dial("unix", f.path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn.(*net.UnixConn)
}

// eventually waits until ok holds; it fails the test after ten seconds.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			buf := make([]byte, 1<<20)
			t.Fatalf("%s: not within 10 s\n%s", what, buf[:runtime.Stack(buf, true)])
		}
		time.Sleep(time.Millisecond)
	}
}

// noLeak fails the test when goroutines started during it outlive f's own.
func noLeak(t testing.TB) {
	t.Helper()
	before := runtime.NumGoroutine()
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		eventually(t, "goroutines of the test end", func() bool { return runtime.NumGoroutine() <= before })
	})
}

// recorded is one exchange of the docker CLI with a real engine.
type recorded struct {
	Method, URI string
	Status      int
	ReqBody     json.RawMessage
	RespBody    json.RawMessage
}

func readRecorded(t testing.TB, name string) recorded {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", "recorded", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	var r recorded
	if err := json.Unmarshal(raw, &r); err != nil {
		t.Fatal(err)
	}
	return r
}

// sameShape reports what of the recorded answer is missing in ours, or of
// another kind. Values are compared where want is a scalar and exact names its
// path. A null may stand for any other kind.
func sameShape(t testing.TB, path string, want, got any, skip, exact map[string]bool) {
	t.Helper()
	if skip[path] {
		return
	}
	switch w := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok {
			t.Errorf("%s: %T, recorded an object", path, got)
			return
		}
		for k, v := range w {
			at := path + "." + k
			if _, ok := g[k]; !ok && !skip[at] {
				t.Errorf("%s: missing", at)
				continue
			}
			sameShape(t, at, v, g[k], skip, exact)
		}
	case []any:
		g, ok := got.([]any)
		if !ok {
			if got != nil || len(w) > 0 {
				t.Errorf("%s: %T, recorded a list", path, got)
			}
			return
		}
		if len(w) > 0 && len(g) > 0 {
			sameShape(t, path+"[]", w[0], g[0], skip, exact)
		}
	case nil:
	default:
		switch got.(type) {
		case map[string]any, []any:
			t.Errorf("%s: %T, recorded a scalar", path, got)
			return
		}
		if exact[path] && got != want {
			t.Errorf("%s: %v, recorded %v", path, got, want)
		}
	}
}

func decoded(t testing.TB, raw []byte) any {
	t.Helper()
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatalf("%v in %s", err, raw)
	}
	return v
}

func set(names ...string) map[string]bool {
	m := map[string]bool{}
	for _, n := range names {
		m[n] = true
	}
	return m
}
