// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	imagetypes "github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/registry"
	"github.com/google/go-containerregistry/pkg/v1"

	"satld/image"
)

func bbImage() image.Image {
	return image.Image{ID: bbID, RepoTags: []string{"bb:1"}, Created: time.Unix(1795979906, 5e8), Size: 1982319,
		Config: v1.ConfigFile{OS: "linux", Architecture: "amd64", Author: "me", Created: v1.Time{Time: time.Unix(1795979906, 0)},
			Config: v1.Config{Cmd: []string{"/bin/sleep", "1000"}, Env: []string{"PATH=/bin"},
				ExposedPorts: map[string]struct{}{"80/tcp": {}}},
			RootFS:  v1.RootFS{Type: "layers", DiffIDs: []v1.Hash{{Algorithm: "sha256", Hex: strings.Repeat("a", 64)}}},
			History: []v1.History{{CreatedBy: "import", Comment: "Imported from -"}, {CreatedBy: "CMD", EmptyLayer: true, Comment: "c"}}}}
}

func nginxImage() image.Image {
	return image.Image{ID: "sha256:" + strings.Repeat("b", 64), RepoTags: []string{"nginx:1", "registry.example.com/nginx:1"},
		RepoDigests: []string{"nginx@sha256:" + strings.Repeat("c", 64)}, Created: time.Unix(1795980000, 0), Size: 100,
		Config: v1.ConfigFile{Config: v1.Config{Labels: map[string]string{"tier": "front"}}}}
}

func danglingImage() image.Image {
	return image.Image{ID: "sha256:" + strings.Repeat("f", 64), Created: time.Unix(1795970000, 0), Size: 7}
}

// withImages fills a fixture with the three images above.
func withImages(f *fixture) {
	withContainers(f)
	f.images.layers = 1982319
	f.images.list = func() []image.Image { return []image.Image{danglingImage(), bbImage(), nginxImage()} }
	f.images.get = func(ref string) (image.Image, error) {
		for _, img := range f.images.list() {
			names := append([]string{img.ID, strings.TrimPrefix(img.ID, "sha256:"), shortID(img.ID)}, img.RepoTags...)
			for _, n := range names {
				if n == ref {
					return img, nil
				}
			}
		}
		return image.Image{}, noImage(ref)
	}
}

func TestImageListAsRecorded(t *testing.T) {
	f := newFixture(t)
	withImages(f)
	f.images.list = func() []image.Image { return []image.Image{bbImage()} }
	rec := readRecorded(t, "images-list")
	code, _, body := f.do(t, rec.Method, rec.URI, "")
	if code != rec.Status || !reflect.DeepEqual(decoded(t, rec.RespBody), decoded(t, []byte(body))) {
		t.Errorf("%d %s\nrecorded %s", code, body, rec.RespBody)
	}
	_, _, body = f.do(t, "GET", "/v1.51/images/json?shared-size=1", "")
	if !strings.Contains(body, `"Containers":2`) || !strings.Contains(body, `"RepoDigests":[]`) || !strings.Contains(body, `"SharedSize":0`) || strings.Contains(body, "VirtualSize") {
		t.Errorf("newest: %s", body)
	}
}

func TestImageFilters(t *testing.T) {
	f := newFixture(t)
	withImages(f)
	for _, c := range []struct {
		filter, want string
		code         int
	}{
		{``, "nginx:1,registry.example.com/nginx:1 bb:1 -", 200},
		{`{"dangling":["true"]}`, "-", 200},
		{`{"dangling":["false"]}`, "nginx:1,registry.example.com/nginx:1 bb:1", 200},
		{`{"dangling":["maybe"]}`, "invalid filter", 400},
		{`{"label":["tier=front"]}`, "nginx:1,registry.example.com/nginx:1", 200},
		{`{"label":["tier=back"]}`, "", 200},
		{`{"reference":["bb"]}`, "bb:1", 200},
		{`{"reference":["bb:*"]}`, "bb:1", 200},
		{`{"reference":["registry.example.com/*"]}`, "registry.example.com/nginx:1", 200},
		{`{"reference":["*"]}`, "nginx:1 bb:1", 200},
		{`{"reference":["[a"]}`, "reference", 400},
		{`{"before":["nginx:1"]}`, "bb:1 -", 200},
		{`{"since":["bb:1"]}`, "nginx:1,registry.example.com/nginx:1", 200},
		{`{"before":["nosuch"]}`, "No such image: nosuch:latest", 404},
		{`{"until":["1795975000"]}`, "-", 200},
		{`{"until":["soon"]}`, "invalid filter", 400},
		{`{"colour":["red"]}`, "invalid filter 'colour'", 400},
	} {
		code, _, body := f.do(t, "GET", "/images/json?filters="+url.QueryEscape(c.filter), "")
		if code != c.code {
			t.Errorf("%s: %d %s", c.filter, code, body)
			continue
		}
		if code != 200 {
			if !strings.Contains(body, c.want) {
				t.Errorf("%s: %s", c.filter, body)
			}
			continue
		}
		var list []imagetypes.Summary
		if err := json.Unmarshal([]byte(body), &list); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, s := range list {
			if len(s.RepoTags) == 0 {
				s.RepoTags = []string{"-"}
			}
			got = append(got, strings.Join(s.RepoTags, ","))
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: %q, want %q", c.filter, strings.Join(got, " "), c.want)
		}
	}
	if _, _, body := f.do(t, "GET", "/v1.40/images/json?filter=bb", ""); strings.Count(body, `"Id"`) != 1 {
		t.Errorf("the old filter: %s", body)
	}
	if _, _, body := f.do(t, "GET", "/v1.42/images/json?filters="+url.QueryEscape(`{"dangling":["true"]}`), ""); !strings.Contains(body, "\\u003cnone\\u003e:") && !strings.Contains(body, "<none>:<none>") {
		t.Errorf("old dangling: %s", body)
	}
	if code, _, _ := f.do(t, "GET", "/images/json?manifests=1", ""); code != 501 {
		t.Errorf("manifests: %d", code)
	}
}

func TestImageInspect(t *testing.T) {
	f := newFixture(t)
	withImages(f)
	for version, want := range map[string]string{
		"1.41": `{"Id":"` + bbID + `","RepoTags":["bb:1"],"RepoDigests":[],"Parent":"","Comment":"c","Created":"2026-11-29T19:18:26.5Z","ContainerConfig":`,
		"1.51": `{"Id":"` + bbID + `","RepoTags":["bb:1"],"RepoDigests":[],"Parent":"","Comment":"c","Created":"2026-11-29T19:18:26.5Z","DockerVersion":"","Author":"me","Architecture":"amd64","Os":"linux","Size":1982319,"GraphDriver":{"Data":null,"Name":"` + storageDriver + `"},"RootFS":{"Type":"layers","Layers":["sha256:` + strings.Repeat("a", 64) + `"]},"Metadata":{"LastTagTime":"0001-01-01T00:00:00Z"},"Config":{"Cmd":["/bin/sleep","1000"],"Entrypoint":null,"Env":["PATH=/bin"],"ExposedPorts":{"80/tcp":{}},"Labels":null,"OnBuild":null,"User":"","Volumes":null,"WorkingDir":""}}` + "\n",
	} {
		code, _, body := f.do(t, "GET", "/v"+version+"/images/bb:1/json", "")
		if code != 200 || !strings.HasPrefix(body, want) {
			t.Errorf("%s: %d %s\nwant %s", version, code, body, want)
		}
	}
	if _, _, body := f.do(t, "GET", "/v1.41/images/bb:1/json", ""); !strings.Contains(body, `"VirtualSize":1982319`) || !strings.Contains(body, `"Hostname":""`) {
		t.Errorf("%s", body)
	}
	if code, _, body := f.do(t, "GET", "/images/nosuch/json", ""); code != 404 || body != `{"message":"No such image: nosuch:latest"}`+"\n" {
		t.Errorf("%d %s", code, body)
	}
	if code, _, _ := f.do(t, "GET", "/images/bb:1/json?manifests=1", ""); code != 501 {
		t.Errorf("%d", code)
	}
	// A name of several parts is one name.
	if code, _, body := f.do(t, "GET", "/images/registry.example.com/nginx:1/json", ""); code != 200 {
		t.Errorf("%d %s", code, body)
	}
}

func TestImageHistory(t *testing.T) {
	f := newFixture(t)
	withImages(f)
	_, _, body := f.do(t, "GET", "/images/bb:1/history", "")
	var items []imagetypes.HistoryResponseItem
	if err := json.Unmarshal([]byte(body), &items); err != nil {
		t.Fatal(err)
	}
	if len(items) != 2 || items[0].ID != bbID || items[0].CreatedBy != "CMD" || items[0].Size != 0 || !reflect.DeepEqual(items[0].Tags, []string{"bb:1"}) ||
		items[1].ID != "<missing>" || items[1].Size != 1982319 {
		t.Errorf("%s", body)
	}
	if _, _, body := f.do(t, "GET", "/images/nginx:1/history", ""); !strings.Contains(body, `"Size":100`) {
		t.Errorf("without a history: %s", body)
	}
}

// actions lists the events published since it was made.
func actions(f *fixture) (list func() []string, cancel func()) {
	_, live, cancel := f.events.Subscribe(time.Time{})
	return func() []string {
		var out []string
		for {
			select {
			case m := <-live:
				out = append(out, fmt.Sprintf("%s %s %s %s", m.Type, m.Action, shortID(m.Actor.ID), shortID(m.Actor.Attributes["name"])))
			default:
				return out
			}
		}
	}, cancel
}

func TestImageTagAndRemove(t *testing.T) {
	f := newFixture(t)
	withImages(f)
	happened, cancel := actions(f)
	defer cancel()
	var got []string
	f.images.tag = func(ref, target string) error { got = append(got, ref+" as "+target); return nil }
	for _, c := range []struct {
		query string
		code  int
	}{
		{"repo=other", 201},
		{"repo=registry.example.com:5000/a/b&tag=v2", 201},
		{"repo=UPPER", 400},
		{"repo=x&tag=bad/tag", 400},
		{"repo=", 400},
		{"repo=sha256", 400},
		{"repo=x@sha256:" + strings.Repeat("a", 64), 400},
	} {
		if code, _, body := f.do(t, "POST", "/images/bb:1/tag?"+c.query, ""); code != c.code {
			t.Errorf("%s: %d %s", c.query, code, body)
		}
	}
	if want := []string{bbID + " as other:latest", bbID + " as registry.example.com:5000/a/b:v2"}; !reflect.DeepEqual(got, want) {
		t.Errorf("%v", got)
	}
	if code, _, _ := f.do(t, "POST", "/images/nosuch/tag?repo=x", ""); code != 404 {
		t.Errorf("%d", code)
	}
	f.images.remove = func(_ context.Context, ref string, force bool) ([]string, []string, error) {
		if !force {
			return nil, nil, errdefs.ErrConflict.WithMessage("conflict: unable to remove repository reference \"bb:1\" (must force) - container 8fec38066fee is using its referenced image 1f812eb4ce04")
		}
		return []string{"bb:1"}, []string{bbID, "sha256:layer"}, nil
	}
	if code, _, body := f.do(t, "DELETE", "/images/bb:1", ""); code != 409 || !strings.Contains(body, "must force") {
		t.Errorf("%d %s", code, body)
	}
	code, _, body := f.do(t, "DELETE", "/images/bb:1?force=1&noprune=1", "")
	if code != 200 || body != `[{"Untagged":"bb:1"},{"Deleted":"`+bbID+`"},{"Deleted":"sha256:layer"}]`+"\n" {
		t.Errorf("%d %s", code, body)
	}
	if code, _, _ := f.do(t, "DELETE", "/images/nosuch", ""); code != 404 {
		t.Errorf("%d", code)
	}
	want := []string{"image tag 1f812eb4ce04 other:latest", "image tag 1f812eb4ce04 registry.exa", "image untag 1f812eb4ce04 1f812eb4ce04", "image delete 1f812eb4ce04 1f812eb4ce04"}
	if got := happened(); !reflect.DeepEqual(got, want) {
		t.Errorf("%q", got)
	}
}

func TestImagePrune(t *testing.T) {
	f := newFixture(t)
	withImages(f)
	var removed []string
	f.images.remove = func(_ context.Context, ref string, force bool) ([]string, []string, error) {
		removed = append(removed, shortID(ref))
		f.images.layers -= 10
		return nil, []string{ref}, nil
	}
	for _, c := range []struct {
		filter string
		want   []string
		code   int
	}{
		{``, []string{"ffffffffffff"}, 200},
		{`{"dangling":["true"]}`, []string{"ffffffffffff"}, 200},
		{`{"dangling":["false"]}`, []string{"ffffffffffff", "nginx:1", "registry.exa"}, 200}, // bb:1 is used
		{`{"dangling":["false"],"label!":["tier"]}`, []string{"ffffffffffff"}, 200},
		{`{"until":["1h"],"x":["y"]}`, nil, 400},
	} {
		removed = nil
		code, _, body := f.do(t, "POST", "/images/prune?filters="+url.QueryEscape(c.filter), "")
		if code != c.code || !reflect.DeepEqual(removed, c.want) {
			t.Errorf("%s: %d %s %v", c.filter, code, body, removed)
		}
		if code == 200 && !strings.Contains(body, fmt.Sprintf(`"SpaceReclaimed":%d`, 10*len(c.want))) {
			t.Errorf("%s: %s", c.filter, body)
		}
	}
}

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

func TestImageLoad(t *testing.T) {
	f := newFixture(t)
	withImages(f)
	happened, cancel := actions(f)
	defer cancel()
	f.images.load = func(_ context.Context, r io.Reader, p image.Progress) ([]image.Image, error) {
		raw, err := io.ReadAll(r)
		switch {
		case err != nil:
			return nil, err
		case string(raw) == "evil":
			return nil, errdefs.ErrInvalidArgument.WithMessage("entry ../x climbs out of the root")
		case string(raw) == "empty":
			return nil, nil
		}
		if p != nil {
			p("Loading layer", "aaaaaaaaaaaa", 1, 2)
		}
		return []image.Image{nginxImage(), danglingImage()}, nil
	}
	post := func(query, body string) (int, string) {
		resp, err := f.Client().Post(f.URL+"/images/load?"+query, "application/x-tar", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		raw, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(raw)
	}
	code, body := post("quiet=1", "archive")
	got := lines(t, body)
	if code != 200 || len(got) != 3 || got[0]["stream"] != "Loaded image: nginx:1\n" || got[1]["stream"] != "Loaded image: registry.example.com/nginx:1\n" ||
		got[2]["stream"] != "Loaded image ID: "+danglingImage().ID+"\n" {
		t.Errorf("%d %s", code, body)
	}
	if code, body := post("quiet=0", "archive"); code != 200 || len(lines(t, body)) != 4 || !strings.Contains(body, "Loading layer") {
		t.Errorf("%d %s", code, body)
	}
	if code, body := post("", "evil"); code != 400 || !strings.Contains(body, `"message":"entry ../x climbs out of the root"`) {
		t.Errorf("%d %s", code, body)
	}
	if code, body := post("", "empty"); code != 400 || !strings.Contains(body, "holds no image") {
		t.Errorf("%d %s", code, body)
	}
	if code, body := post("platform=linux/arm64", "archive"); code != 501 {
		t.Errorf("%d %s", code, body)
	}
	if got := happened(); len(got) != 4 || got[0] != "image load bbbbbbbbbbbb bbbbbbbbbbbb" {
		t.Errorf("%q", got)
	}
}

func TestImageSave(t *testing.T) {
	f := newFixture(t)
	withImages(f)
	broken := 0 // bytes after which it breaks; 0 never
	f.images.save = func(_ context.Context, refs []string, w io.Writer) error {
		if broken == 1 {
			return errors.New("broken at once")
		}
		if _, err := io.WriteString(w, strings.Join(refs, "+")); err != nil {
			return err
		}
		if broken > 1 {
			_, _ = w.Write(make([]byte, 1<<20))
			return errors.New("broken later")
		}
		return nil
	}
	code, h, body := f.do(t, "GET", "/images/registry.example.com/nginx:1/get", "")
	if code != 200 || body != "registry.example.com/nginx:1" || h.Get("Content-Type") != "application/x-tar" {
		t.Errorf("%d %q %v", code, body, h)
	}
	if code, _, body := f.do(t, "GET", "/images/get?names=bb:1&names=nginx:1", ""); code != 200 || body != "bb:1+nginx:1" {
		t.Errorf("%d %q", code, body)
	}
	for path, want := range map[string]int{"/images/get": 400, "/images/get?names=bb:1&names=nosuch": 404, "/images/nosuch/get": 404} {
		if code, _, body := f.do(t, "GET", path, ""); code != want {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	broken = 1
	if code, h, body := f.do(t, "GET", "/images/bb:1/get", ""); code != 500 || !strings.Contains(body, `"message":"broken at once"`) || h.Get("Content-Type") != "application/json" {
		t.Errorf("%d %s %v", code, body, h)
	}
	broken = 2
	resp, err := http.Get(f.URL + "/images/bb:1/get")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.ReadAll(resp.Body); err == nil {
		t.Error("half an archive looks like a whole one")
	}
}

func TestImageImport(t *testing.T) {
	f := newFixture(t)
	withImages(f)
	var got string
	f.images.imp = func(_ context.Context, r io.Reader, ref, message string, changes []string) (image.Image, error) {
		raw, err := io.ReadAll(r)
		got = fmt.Sprintf("%s|%s|%s|%q", raw, ref, message, changes)
		return bbImage(), err
	}
	resp, err := f.Client().Post(f.URL+"/v1.41/images/create?changes="+url.QueryEscape(`CMD ["/bin/sleep","1000"]`)+"&changes=ENV+PATH%3D%2Fbin&fromSrc=-&repo=bb%3A1",
		"text/plain", strings.NewReader("tar"))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, _ := io.ReadAll(resp.Body)
	if l := lines(t, string(raw)); resp.StatusCode != 200 || len(l) != 1 || l[0]["status"] != bbID {
		t.Errorf("%d %s", resp.StatusCode, raw)
	}
	if want := `tar|bb:1|Imported from -|["CMD [\"/bin/sleep\",\"1000\"]" "ENV PATH=/bin"]`; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	f.images.imp = func(context.Context, io.Reader, string, string, []string) (image.Image, error) {
		return image.Image{}, errdefs.ErrInvalidArgument.WithMessage("unknown instruction")
	}
	if code, _, body := f.do(t, "POST", "/images/create?fromSrc=-", ""); code != 400 || !strings.Contains(body, "unknown instruction") {
		t.Errorf("%d %s", code, body)
	}
}

func TestImageNotSupported(t *testing.T) {
	f := newFixture(t)
	withImages(f)
	for _, c := range []struct {
		method, path string
		code         int
	}{
		{"GET", "/images/search?term=x", 501},
		{"POST", "/images/bb:1/push", 501},
		{"POST", "/images/registry.example.com/nginx:1/push?tag=1", 501},
	} {
		if code, _, body := f.do(t, c.method, c.path, ""); code != c.code || !strings.Contains(body, `"message"`) {
			t.Errorf("%s: %d %s", c.path, code, body)
		}
	}
}

func TestDistributionInspect(t *testing.T) {
	f := newFixture(t)
	var asked string
	var auth image.Auth
	f.images.digest = func(_ context.Context, ref string, a image.Auth) (v1.Descriptor, []v1.Platform, error) {
		asked, auth = ref, a
		if strings.HasPrefix(ref, "private") {
			return v1.Descriptor{}, nil, errdefs.ErrUnauthenticated.WithMessage("unauthorized: authentication required")
		}
		return v1.Descriptor{MediaType: "application/vnd.oci.image.index.v1+json", Size: 5, Digest: v1.Hash{Algorithm: "sha256", Hex: strings.Repeat("a", 64)}},
			[]v1.Platform{{OS: "linux", Architecture: "arm", Variant: "v7"}}, nil
	}
	code, _, body := f.do(t, "GET", "/v1.51/distribution/registry.example.com/a/b/json", "")
	want := `{"Descriptor":{"mediaType":"application/vnd.oci.image.index.v1+json","digest":"sha256:` + strings.Repeat("a", 64) + `","size":5},"Platforms":[{"architecture":"arm","os":"linux","variant":"v7"}]}` + "\n"
	if code != 200 || body != want || asked != "registry.example.com/a/b:latest" || auth != (image.Auth{}) {
		t.Errorf("%d %s %s", code, body, asked)
	}
	if code, _, body := f.do(t, "GET", "/distribution/private:1/json", ""); code != 401 || !strings.Contains(body, "unauthorized") {
		t.Errorf("%d %s", code, body)
	}
	for path, want := range map[string]int{"/distribution/UPPER/json": 400, "/distribution/" + strings.Repeat("a", 64) + "/json": 400} {
		if code, _, body := f.do(t, "GET", path, ""); code != want {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
}

func TestDiskUsageAsRecorded(t *testing.T) {
	f := newFixture(t)
	withImages(f)
	f.images.list = func() []image.Image { return []image.Image{bbImage()} }
	rec := readRecorded(t, "system-df")
	code, _, body := f.do(t, rec.Method, rec.URI, "")
	if code != rec.Status {
		t.Fatalf("%d %s", code, body)
	}
	sameShape(t, "", decoded(t, rec.RespBody), decoded(t, []byte(body)),
		set(".BuilderSize", ".Containers[].NetworkSettings.Networks", ".Containers[].Labels.com.docker.stack.namespace", ".Images[].Containers"),
		set(".LayersSize", ".Images[].Id", ".Images[].Size", ".Images[].SharedSize", ".Images[].VirtualSize", ".Images[].Created", ".Containers[].ImageID"))
	if !strings.Contains(body, `"Containers":2,"Created"`) || strings.Count(body, `"SizeRw":10`) != 3 {
		t.Errorf("%s", body)
	}
	for _, c := range []struct {
		query, want string
		code        int
	}{
		{"type=image", `"Containers":null,"Volumes":null,"BuildCache":null}`, 200},
		{"type=container&type=volume", `{"LayersSize":0,"Images":null,`, 200},
		{"type=build-cache", `"BuildCache":[]`, 200},
		{"type=cats", `unknown object type: cats`, 400},
	} {
		if code, _, body := f.do(t, "GET", "/v1.42/system/df?"+c.query, ""); code != c.code || !strings.Contains(body, c.want) {
			t.Errorf("%s: %d %s", c.query, code, body)
		}
	}
	if code, _, body := f.do(t, "GET", "/v1.41/system/df?type=image", ""); code != 200 || strings.Contains(body, `"Containers":null`) {
		t.Errorf("before 1.42: %d %s", code, body)
	}
	if code, _, body := f.do(t, "POST", "/v1.51/build/prune", ""); code != 200 || body != `{"CachesDeleted":null,"SpaceReclaimed":0}`+"\n" {
		t.Errorf("build prune: %d %s", code, body)
	}
}
