// SPDX-License-Identifier: BSD-2-Clause

package image

import (
	"bytes"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// testRegistry is a real registry on loopback. before, which a test may
// replace, sees each request and may answer it itself.
type testRegistry struct {
	*httptest.Server
	host   string
	before atomic.Pointer[func(http.ResponseWriter, *http.Request) bool]

	mu   sync.Mutex
	seen map[string]int // by method and path
}

func newRegistry(t testing.TB) *testRegistry {
	t.Helper()
	r := &testRegistry{seen: map[string]int{}}
	inner := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.mu.Lock()
		r.seen[req.Method+" "+req.URL.Path]++
		r.mu.Unlock()
		if f := r.before.Load(); f != nil && (*f)(w, req) {
			return
		}
		inner.ServeHTTP(w, req)
	}))
	r.Config.ErrorLog = log.New(io.Discard, "", 0)
	t.Cleanup(r.Close)
	r.host = strings.TrimPrefix(r.URL, "http://")
	return r
}

func (r *testRegistry) intercept(f func(http.ResponseWriter, *http.Request) bool) { r.before.Store(&f) }

func (r *testRegistry) requests(key string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seen[key]
}

// imageOf is an image of these layers for a platform.
func imageOf(t testing.TB, p v1.Platform, layers ...[]byte) v1.Image {
	t.Helper()
	img, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{OS: p.OS, Architecture: p.Architecture, RootFS: v1.RootFS{Type: "layers"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range layers {
		layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(l)), nil })
		if err != nil {
			t.Fatal(err)
		}
		if img, err = mutate.AppendLayers(img, layer); err != nil {
			t.Fatal(err)
		}
	}
	return img
}

var here = v1.Platform{OS: "linux", Architecture: runtime.GOARCH}

func (r *testRegistry) push(t testing.TB, repoTag string, img v1.Image) (ref string) {
	t.Helper()
	ref = r.host + "/" + repoTag
	tag, err := name.NewTag(ref)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(tag, img); err != nil {
		t.Fatal(err)
	}
	return ref
}
