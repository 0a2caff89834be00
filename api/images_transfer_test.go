// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/containerd/errdefs"

	"satld/image"
)

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
