// SPDX-License-Identifier: BSD-2-Clause

package image

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// heard collects what a Progress is told.
type heard struct{ lines []string }

func (h *heard) tell(status, id string, current, total int64) {
	h.lines = append(h.lines, strings.TrimPrefix(id+": "+status, ": "))
}

func (h *heard) has(t *testing.T, want ...string) {
	t.Helper()
	for _, w := range want {
		if !slices.Contains(h.lines, w) {
			t.Errorf("progress has no %q:\n%s", w, strings.Join(h.lines, "\n"))
		}
	}
}

func TestPull(t *testing.T) {
	s, reg := open(t, Config{}), newRegistry(t)
	img := imageOf(t, here, baseLayer(t), topLayer(t))
	ref := reg.push(t, "team/web:1", img)
	digest, _ := img.Digest()
	blobs, _ := img.Layers()
	blob, _ := blobs[0].Digest()

	var h heard
	got, err := s.Pull(t.Context(), ref, Auth{}, h.tell)
	if err != nil {
		t.Fatal(err)
	}
	short := blob.Hex[:12]
	h.has(t, "1: Pulling from "+reg.host+"/team/web", short+": Pulling fs layer", short+": Downloading", short+": Download complete",
		short+": Extracting", short+": Pull complete", "Digest: "+digest.String(), "Status: Downloaded newer image for "+ref)
	if !slices.Equal(got.RepoTags, []string{ref}) || !slices.Equal(got.RepoDigests, []string{reg.host + "/team/web@" + digest.String()}) {
		t.Errorf("pulled %+v", got)
	}
	checkRoot(t, mount(t, s, got.ID, "c"))

	h = heard{}
	if _, err := s.Pull(t.Context(), ref, Auth{}, h.tell); err != nil {
		t.Fatal(err)
	}
	h.has(t, short+": Already exists", "Status: Image is up to date for "+ref)
	if n := reg.requests("GET /v2/team/web/blobs/" + blob.String()); n != 1 {
		t.Errorf("the layer was fetched %d times, want once", n)
	}
	for _, by := range []string{got.ID, ref, ref + "@" + digest.String(), reg.host + "/team/web@" + digest.String(), got.ID[7:20]} {
		if found, err := s.Get(by); err != nil || found.ID != got.ID {
			t.Errorf("Get(%s): %v %v", by, found.ID, err)
		}
	}
	desc, platforms, err := s.Digest(t.Context(), ref, Auth{})
	if err != nil || desc.Digest != digest || len(platforms) != 1 || platforms[0].Architecture != runtime.GOARCH {
		t.Errorf("Digest: %v %v %v", desc.Digest, platforms, err)
	}

	// A tag that moved: the old image stays without it.
	newer := reg.push(t, "team/web:1", imageOf(t, here, topLayer(t)))
	moved, err := s.Pull(t.Context(), newer, Auth{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	old, err := s.Get(got.ID)
	if err != nil || len(old.RepoTags) != 0 || moved.ID == got.ID {
		t.Errorf("after the tag moved: %+v %v", old, err)
	}
	tidy(t, s)
}

func TestPullByDigest(t *testing.T) {
	s, reg := open(t, Config{}), newRegistry(t)
	img := imageOf(t, here, baseLayer(t))
	ref := reg.push(t, "web:1", img)
	digest, _ := img.Digest()
	got, err := s.Pull(t.Context(), ref+"@"+digest.String(), Auth{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.RepoTags) != 0 || len(got.RepoDigests) != 1 {
		t.Errorf("pulled by digest: %v %v", got.RepoTags, got.RepoDigests)
	}
	untagged, deleted, err := s.Remove(t.Context(), got.RepoDigests[0], false)
	if err != nil || len(untagged) != 1 || len(deleted) != 2 {
		t.Errorf("removed %v %v %v", untagged, deleted, err)
	}
	tidy(t, s)
}

func TestPullPlatform(t *testing.T) {
	s, reg := open(t, Config{}), newRegistry(t)
	mine, other := imageOf(t, here, baseLayer(t)), imageOf(t, v1.Platform{OS: "linux", Architecture: "s390x"}, topLayer(t))
	push := func(tag string, images map[string]v1.Image) (string, v1.Hash) {
		index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
		for _, arch := range slices.Sorted(func(yield func(string) bool) {
			for a := range images {
				if !yield(a) {
					return
				}
			}
		}) {
			index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: images[arch],
				Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}}})
		}
		ref, err := name.NewTag(reg.host + "/multi:" + tag)
		if err != nil {
			t.Fatal(err)
		}
		if err := remote.WriteIndex(ref, index); err != nil {
			t.Fatal(err)
		}
		digest, _ := index.Digest()
		return ref.Name(), digest
	}
	ref, digest := push("both", map[string]v1.Image{runtime.GOARCH: mine, "s390x": other})
	got, err := s.Pull(t.Context(), ref, Auth{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	want, _ := mine.ConfigName()
	if got.ID != want.String() || !strings.HasSuffix(got.RepoDigests[0], digest.String()) {
		t.Errorf("pulled %s %v, want %s of list %s", got.ID, got.RepoDigests, want, digest)
	}
	if desc, platforms, err := s.Digest(t.Context(), ref, Auth{}); err != nil || desc.Digest != digest || len(platforms) != 2 {
		t.Errorf("Digest: %v %v %v", desc.Digest, platforms, err)
	}
	ref, _ = push("other", map[string]v1.Image{"s390x": other})
	if _, err := s.Pull(t.Context(), ref, Auth{}, nil); !errdefs.IsNotFound(err) || !strings.Contains(err.Error(), "no matching manifest for "+wanted()) {
		t.Errorf("no image for this platform: %v", err)
	}
	windows := reg.push(t, "win:1", imageOf(t, v1.Platform{OS: "windows", Architecture: runtime.GOARCH}, baseLayer(t)))
	if _, err := s.Pull(t.Context(), windows, Auth{}, nil); !errdefs.IsInvalidArgument(err) {
		t.Errorf("an image for windows: %v", err)
	}
	tidy(t, s)
}

func TestPullAuth(t *testing.T) {
	s, reg := open(t, Config{}), newRegistry(t)
	ref := reg.push(t, "private/web:1", imageOf(t, here, baseLayer(t)))
	reg.intercept(func(w http.ResponseWriter, req *http.Request) bool {
		if user, password, ok := req.BasicAuth(); ok && user == "me" && password == "right" {
			return false
		}
		w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprint(w, `{"errors":[{"code":"UNAUTHORIZED","message":"authentication required"}]}`)
		return true
	})
	for _, auth := range []Auth{{}, {Username: "me", Password: "wrong"}} {
		if _, err := s.Pull(t.Context(), ref, auth, nil); !errdefs.IsUnauthorized(err) || !strings.Contains(err.Error(), "unauthorized: authentication required") {
			t.Errorf("auth %+v: %v", auth, err)
		}
	}
	auth := Auth{Username: "me", Password: "right"}
	if _, err := s.Pull(t.Context(), ref, auth, nil); err != nil {
		t.Error(err)
	}
	if _, _, err := s.Digest(t.Context(), ref, auth); err != nil {
		t.Error(err)
	}
}

func TestPullErrors(t *testing.T) {
	s, reg := open(t, Config{}), newRegistry(t)
	reg.push(t, "web:1", imageOf(t, here, baseLayer(t)))
	answer := func(status int, body string) func() {
		return func() {
			reg.intercept(func(w http.ResponseWriter, req *http.Request) bool {
				if req.URL.Path == "/v2/" {
					return false
				}
				w.WriteHeader(status)
				io.WriteString(w, body)
				return true
			})
		}
	}
	closed := httptest.NewServer(http.NotFoundHandler())
	gone := strings.TrimPrefix(closed.URL, "http://")
	closed.Close()
	for _, c := range []struct {
		ref    string
		before func()
		is     func(error) bool
		text   string
	}{
		{reg.host + "/web:2", nil, errdefs.IsNotFound, "manifest for " + reg.host + "/web:2 not found: manifest unknown"},
		{reg.host + "/none:1", nil, errdefs.IsNotFound, "repository " + reg.host + "/none not found: name unknown"},
		{reg.host + "/x:1", answer(403, `{"errors":[{"code":"DENIED","message":"no"}]}`), errdefs.IsNotFound,
			"pull access denied for " + reg.host + "/x, repository does not exist or may require 'docker login': denied: no"},
		{reg.host + "/x:1", answer(404, "nope"), errdefs.IsNotFound, "manifest for " + reg.host + "/x:1 not found"},
		{reg.host + "/x:1", answer(501, "nope"), errdefs.IsUnavailable, "unexpected status 501"},
		{reg.host + "/x:1", answer(429, `{"errors":[{"code":"TOOMANYREQUESTS","message":"slow down"}]}`), errdefs.IsUnavailable, "slow down"},
		{gone + "/x:1", nil, errdefs.IsUnavailable, "connection refused"},
		{"Bad Name", nil, errdefs.IsInvalidArgument, "invalid reference"},
	} {
		if c.before != nil {
			c.before()
		}
		start := time.Now()
		_, err := s.Pull(t.Context(), c.ref, Auth{}, nil)
		if err == nil || !c.is(err) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("pulling %s: %v, want %q", c.ref, err, c.text)
		}
		if took := time.Since(start); took > 10*time.Second {
			t.Errorf("pulling %s took %s", c.ref, took)
		}
	}
	if len(s.List()) != 0 {
		t.Error("there is an image")
	}
	tidy(t, s)
}

// TestPullBadLayers: wrong content leaves nothing, a broken connection is tried again.
func TestPullBadLayers(t *testing.T) {
	s, reg := open(t, Config{}), newRegistry(t)
	big := tarOf(t, file{name: "big", body: string(noise(1 << 20))})
	img := imageOf(t, here, baseLayer(t), big)
	ref := reg.push(t, "web:1", img)
	layers, _ := img.Layers()
	digest, _ := layers[1].Digest()
	path := "/v2/web/blobs/" + digest.String()
	rc, _ := layers[1].Compressed()
	blob, _ := io.ReadAll(rc)
	var tries atomic.Int32

	send := func(data []byte, drop bool) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, req *http.Request) bool {
			if req.URL.Path != path {
				return false
			}
			tries.Add(1)
			w.Header().Set("Content-Length", fmt.Sprint(len(blob)))
			w.Write(data)
			if drop {
				panic(http.ErrAbortHandler)
			}
			return true
		}
	}
	bad := bytes.Clone(blob)
	bad[len(bad)/2] ^= 0xff
	reg.intercept(send(bad, false))
	if _, err := s.Pull(t.Context(), ref, Auth{}, nil); err == nil {
		t.Error("a layer with wrong content was accepted")
	} else {
		t.Log(err)
	}
	if n := tries.Swap(0); n != 1 {
		t.Errorf("wrong content was asked for %d times", n)
	}
	tidy(t, s)

	hostileLayer := imageOf(t, here, tarOf(t, file{name: "../x"}))
	evil := reg.push(t, "evil:1", hostileLayer)
	if _, err := s.Pull(t.Context(), evil, Auth{}, nil); !errdefs.IsInvalidArgument(err) {
		t.Errorf("a hostile layer: %v", err)
	}
	tidy(t, s)

	reg.intercept(func(w http.ResponseWriter, req *http.Request) bool {
		if tries.Load() > 0 {
			return false
		}
		return send(blob[:len(blob)/2], true)(w, req)
	})
	var h heard
	if _, err := s.Pull(t.Context(), ref, Auth{}, h.tell); err != nil {
		t.Errorf("after one broken connection: %v", err)
	}
	h.has(t, digest.Hex[:12]+": Retrying in 1 second")
	tidy(t, s)
}

func TestPullIsCancelled(t *testing.T) {
	s, reg := open(t, Config{}), newRegistry(t)
	img := imageOf(t, here, baseLayer(t))
	ref := reg.push(t, "web:1", img)
	layers, _ := img.Layers()
	digest, _ := layers[0].Digest()
	asked := make(chan struct{})
	reg.intercept(func(w http.ResponseWriter, req *http.Request) bool {
		if !strings.HasSuffix(req.URL.Path, digest.String()) {
			return false
		}
		w.Header().Set("Content-Length", "100000")
		w.Write([]byte("\x1f\x8b"))
		w.(http.Flusher).Flush()
		close(asked)
		<-req.Context().Done()
		return true
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-asked; cancel() }()
	if _, err := s.Pull(ctx, ref, Auth{}, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled pull: %v", err)
	}
	tidy(t, s)
}

// TestPullOnce: pulls and loads of the same layers at once do the work once.
func TestPullOnce(t *testing.T) {
	s, reg := open(t, Config{}), newRegistry(t)
	img := imageOf(t, here, baseLayer(t), topLayer(t))
	layers, _ := img.Layers()
	for i := range 4 {
		reg.push(t, fmt.Sprintf("web%d:1", i), img)
	}
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			if _, err := s.Pull(t.Context(), fmt.Sprintf("%s/web%d:1", reg.host, i%4), Auth{}, nil); err != nil {
				t.Error(err)
			}
		})
	}
	group.Go(func() { load(t, s, twoLayers(t)) })
	group.Wait()
	for _, l := range layers {
		digest, _ := l.Digest()
		sum := 0
		for i := range 4 {
			sum += reg.requests(fmt.Sprintf("GET /v2/web%d/blobs/%s", i, digest))
		}
		if sum > 1 {
			t.Errorf("layer %s was fetched %d times", digest, sum)
		}
	}
	got, err := s.Get(reg.host + "/web0:1")
	if err != nil || len(got.RepoTags) != 4 {
		t.Errorf("%+v %v", got.RepoTags, err)
	}
	tidy(t, s)
}

// TestPlainHTTP: only this host itself may be without TLS, whatever the
// registry library thinks of private addresses.
func TestPlainHTTP(t *testing.T) {
	var mu sync.Mutex
	schemes := map[string]bool{}
	s := open(t, Config{Transport: roundTripper(func(req *http.Request) (*http.Response, error) {
		mu.Lock()
		defer mu.Unlock()
		schemes[req.URL.Scheme+"://"+req.URL.Host] = true
		return nil, errors.New("no network in this test")
	})})
	for _, host := range []string{"10.1.2.3:5000", "192.168.1.1", "printer.local", "registry.example.com:80", "127.0.0.1.example.com:5000"} {
		if _, err := s.Pull(t.Context(), host+"/web:1", Auth{Username: "me", Password: "secret"}, nil); err == nil {
			t.Errorf("%s: no error", host)
		}
		if schemes["http://"+host] || !schemes["https://"+host] {
			t.Errorf("%s: asked %v, want only https", host, schemes)
		}
	}
	for _, host := range []string{"127.0.0.1:5000", "127.9.9.9:5000", "[::1]:5000", "localhost:5000"} {
		s.Pull(t.Context(), host+"/web:1", Auth{}, nil)
		if !schemes["http://"+host] {
			t.Errorf("%s: asked %v, want http too", host, schemes)
		}
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// TestStalledAnswer: an answer that stops is ended.
func TestStalledAnswer(t *testing.T) {
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		w.Write([]byte("a"))
		w.(http.Flusher).Flush()
		<-release
	}))
	defer server.Close()
	defer close(release)
	client := http.Client{Transport: &registryTransport{base: http.DefaultTransport, stall: 50 * time.Millisecond}}
	resp, err := client.Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.ReadAll(resp.Body); !errors.Is(err, errStalled) {
		t.Errorf("reading a stalled answer: %v", err)
	}
}

// noise does not compress, and is the same each time.
func noise(n int) []byte {
	data := make([]byte, n)
	x := uint32(1)
	for i := range data {
		x = x*1664525 + 1013904223
		data[i] = byte(x >> 24)
	}
	return data
}
