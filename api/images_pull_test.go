// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	imagetypes "github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/registry"

	"satld/image"
)

// lines decodes a JSON stream.
func lines(t testing.TB, body string) []map[string]any {
	t.Helper()
	var out []map[string]any
	dec := json.NewDecoder(strings.NewReader(body))
	for {
		var m map[string]any
		if err := dec.Decode(&m); errors.Is(err, io.EOF) {
			return out
		} else if err != nil {
			t.Fatalf("%v in %s", err, body)
		}
		out = append(out, m)
	}
}

func TestImagePull(t *testing.T) {
	f := newFixture(t)
	withImages(f)
	happened, cancel := actions(f)
	defer cancel()
	var ref string
	var auth image.Auth
	f.images.pull = func(_ context.Context, r string, a image.Auth, p image.Progress) (image.Image, error) {
		ref, auth = r, a
		p("Pulling from library/nginx", "1", 0, 0)
		for i := range int64(1000) { // as fast as a local registry is
			p("Downloading", "aaaaaaaaaaaa", i, 1000)
		}
		p("Downloading", "aaaaaaaaaaaa", 1000, 1000)
		p("Pull complete", "aaaaaaaaaaaa", 0, 0)
		p("Digest: sha256:c", "", 0, 0)
		p("Status: Image is up to date for nginx:1", "", 0, 0)
		return nginxImage(), nil
	}
	req, _ := http.NewRequest("POST", f.URL+"/v1.51/images/create?fromImage=nginx&tag=1&platform="+runtime.GOOS+"/"+runtime.GOARCH, nil)
	encoded, _ := registry.EncodeAuthConfig(registry.AuthConfig{Username: "u", Password: "p"})
	req.Header.Set("X-Registry-Auth", encoded)
	resp, err := f.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	raw, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "application/json" || ref != "nginx:1" || auth != (image.Auth{Username: "u", Password: "p"}) {
		t.Fatalf("%d %v %s %+v", resp.StatusCode, resp.Header, ref, auth)
	}
	got := lines(t, string(raw))
	if len(got) < 6 || len(got) > 100 {
		t.Fatalf("%d lines of progress", len(got))
	}
	if got[0]["status"] != "Pulling from library/nginx" || got[0]["id"] != "1" || got[1]["status"] != "Downloading" || got[1]["id"] != "aaaaaaaaaaaa" {
		t.Errorf("%v", got[:2])
	}
	last := got[len(got)-4:]
	if d := last[0]["progressDetail"].(map[string]any); d["current"] != 1000.0 || d["total"] != 1000.0 {
		t.Errorf("the last step was left out: %v", last[0])
	}
	if last[1]["status"] != "Pull complete" || last[2]["status"] != "Digest: sha256:c" || last[3]["status"] != "Status: Image is up to date for nginx:1" {
		t.Errorf("%v", last)
	}
	if got := happened(); !reflect.DeepEqual(got, []string{"image pull nginx:1 nginx"}) {
		t.Errorf("%q", got)
	}
}

func TestImagePullFails(t *testing.T) {
	f := newFixture(t)
	withImages(f)
	early := true
	f.images.pull = func(_ context.Context, _ string, _ image.Auth, p image.Progress) (image.Image, error) {
		if !early {
			p("Downloading", "aaaaaaaaaaaa", 1, 10)
		}
		return image.Image{}, errdefs.ErrNotFound.WithMessage("manifest for nginx:9 not found: manifest unknown")
	}
	code, _, body := f.do(t, "POST", "/images/create?fromImage=nginx&tag=9", "")
	if code != 404 || body != `{"message":"manifest for nginx:9 not found: manifest unknown"}`+"\n" {
		t.Errorf("early: %d %s", code, body)
	}
	early = false
	code, _, body = f.do(t, "POST", "/images/create?fromImage=nginx&tag=9", "")
	got := lines(t, body)
	if code != 200 || len(got) != 2 || got[1]["error"] != "manifest for nginx:9 not found: manifest unknown" ||
		got[1]["errorDetail"].(map[string]any)["message"] != got[1]["error"] {
		t.Errorf("late: %d %s", code, body)
	}
	f.images.pull = func(context.Context, string, image.Auth, image.Progress) (image.Image, error) {
		return image.Image{}, errdefs.ErrUnauthenticated.WithMessage("unauthorized: authentication required")
	}
	code, _, body = f.do(t, "POST", "/images/create?fromImage=registry.example.com/x&tag=1", "")
	if code != 404 || !strings.Contains(body, "pull access denied for registry.example.com/x, repository does not exist or may require 'docker login': unauthorized") {
		t.Errorf("unauthorized: %d %s", code, body)
	}
	for query, want := range map[string]int{
		"fromImage=UPPER:1":                         400,
		"fromImage=nginx&tag=bad/tag":               400,
		"fromImage=nginx":                           501, // every tag
		"fromImage=scratch&tag=x":                   403,
		"fromImage=nginx&tag=1&platform=plan9/mips": 501,
		"fromImage=nginx&tag=1&platform=a/b/c/d/e":  400,
		"":                                 400,
		"fromSrc=http://example.com/x.tar": 501,
		"fromSrc=-&repo=UPPER":             400,
		"fromSrc=-&repo=x@sha256:" + strings.Repeat("a", 64): 400,
	} {
		if code, _, body := f.do(t, "POST", "/images/create?"+query, ""); code != want {
			t.Errorf("%s: %d %s", query, code, body)
		}
	}
	for _, ref := range []string{"nginx@sha256:" + strings.Repeat("a", 64), "nginx&tag=sha256:" + strings.Repeat("a", 64)} {
		var got string
		f.images.pull = func(_ context.Context, r string, _ image.Auth, _ image.Progress) (image.Image, error) {
			got = r
			return nginxImage(), nil
		}
		if code, _, body := f.do(t, "POST", "/images/create?fromImage="+ref, ""); code != 200 || got != "nginx@sha256:"+strings.Repeat("a", 64) {
			t.Errorf("%s: %d %s %s", ref, code, body, got)
		}
	}
}

// A client that leaves ends its pull.
func TestImagePullLeft(t *testing.T) {
	noLeak(t)
	f := newSocketFixture(t, "")
	withImages(f.fixture)
	ended := make(chan error, 1)
	f.images.pull = func(ctx context.Context, _ string, _ image.Auth, p image.Progress) (image.Image, error) {
		p("Downloading", "aaaaaaaaaaaa", 1, 10)
		<-ctx.Done()
		ended <- ctx.Err()
		return image.Image{}, ctx.Err()
	}
	ctx, cancel := context.WithCancel(t.Context())
	body, err := f.client.ImagePull(ctx, "nginx:1", imagetypes.PullOptions{})
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	body.Close()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestRequestAuth(t *testing.T) {
	encode := func(s string) string { return base64.URLEncoding.EncodeToString([]byte(s)) }
	for header, want := range map[string]image.Auth{
		"":                              {},
		"!!":                            {},
		encode(`{}`):                    {},
		encode(`{"identitytoken":"t"}`): {IdentityToken: "t"},
		encode(`{"registrytoken":"t"}`): {RegistryToken: "t"},
		encode(`{"auth":"` + base64.StdEncoding.EncodeToString([]byte("u:p:q")) + `"}`): {Username: "u", Password: "p:q"},
	} {
		r, _ := http.NewRequest("GET", "/", nil)
		r.Header.Set("X-Registry-Auth", header)
		if got := requestAuth(r); got != want {
			t.Errorf("%q: %+v", header, got)
		}
	}
}
