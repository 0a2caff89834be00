// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	imagetypes "github.com/docker/docker/api/types/image"
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
