// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"context"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/google/go-containerregistry/pkg/v1"

	"satld/image"
)

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
