// SPDX-License-Identifier: BSD-2-Clause

package e2e

import (
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// A registry on loopback that asks for a login, by plain HTTP: pull with and
// without it, and a service whose image comes from there.
func TestRegistryWithLogin(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	archive, err := appImage()
	if err != nil {
		t.Fatal(err)
	}
	app := tag("app:1")
	img, err := tarball.ImageFromPath(archive, &app)
	if err != nil {
		t.Fatal(err)
	}
	behind := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, pass, ok := r.BasicAuth(); !ok || user != "me" || pass != "secret" {
			w.Header().Set("WWW-Authenticate", `Basic realm="here"`)
			http.Error(w, `{"errors":[{"code":"UNAUTHORIZED"}]}`, http.StatusUnauthorized)
			return
		}
		behind.ServeHTTP(w, r)
	}))
	if srv.Listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	srv.Start()
	defer srv.Close()
	host := strings.TrimPrefix(srv.URL, "http://")
	ref, err := name.ParseReference(host+"/team/app:1", name.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(ref, img, remote.WithAuth(&authn.Basic{Username: "me", Password: "secret"})); err != nil {
		t.Fatal(err)
	}

	d.refused("", "pull", ref.String())
	d.refused("unauthorized", "login", "-u", "me", "-p", "wrong", host)
	d.docker("login", "-u", "me", "-p", "secret", host)
	if out := d.docker("pull", ref.String()); !strings.Contains(out, "Downloaded newer image") {
		t.Errorf("pull:\n%s", out)
	}
	d.docker("rmi", ref.String())
	// The CLI resolves the tag to a digest by our distribution endpoint, and
	// the node pulls with the credentials that came with the spec.
	d.docker("service", "create", "-q", "--with-registry-auth", "--name", "web", ref.String())
	if image, _ := path(d.inspect("service", "web"), "Spec", "TaskTemplate", "ContainerSpec", "Image").(string); !strings.Contains(image, "@sha256:") {
		t.Errorf("image of the service is %q, want a digest", image)
	}
	if n := len(d.running("web")); n != 1 {
		t.Errorf("%d tasks run", n)
	}
	d.docker("service", "rm", "web")
}
