// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"strings"
	"testing"

	"satld/image"
)

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
