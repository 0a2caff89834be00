// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/swarm"
	"github.com/docker/docker/api/types/system"

	"satld/executor"
	"satld/image"
)

func TestInfo(t *testing.T) {
	trouble := ""
	var limits []string
	f := newFixture(t, func(c *Config) {
		c.TrafficStatus = func() string { return trouble }
		c.Warnings = func() []string { return limits }
	})
	f.containers.list = func() []executor.Snapshot {
		return []executor.Snapshot{{State: executor.Running}, {State: executor.Running}, {State: executor.Paused}, {State: executor.Exited}, {State: executor.Created}}
	}
	f.images.list = func() []image.Image { return make([]image.Image, 3) }
	info := into[system.Info](t, f.must(t, 200, "GET", "/info", ""))
	if info.Containers != 5 || info.ContainersRunning != 2 || info.ContainersPaused != 1 || info.ContainersStopped != 2 || info.Images != 3 {
		t.Errorf("counts %+v", info)
	}
	sw := info.Swarm
	if sw.LocalNodeState != swarm.LocalNodeStateActive || !sw.ControlAvailable || sw.NodeID != fakeNodeID || sw.NodeAddr != "127.0.0.1" ||
		sw.Nodes != 1 || sw.Managers != 1 || len(sw.RemoteManagers) != 1 || sw.RemoteManagers[0].Addr != "127.0.0.1:2377" ||
		sw.Cluster == nil || sw.Cluster.ID != fakeClusterID || sw.Error != "" {
		t.Errorf("swarm %+v", sw)
	}
	if len(info.Warnings) != 0 || info.OSType != runtime.GOOS || info.MemTotal == 0 || info.KernelVersion == "" || info.DefaultRuntime != "runc" ||
		info.FirewallBackend == nil || info.FirewallBackend.Driver != "nft" || info.Name != "vm" {
		t.Errorf("%+v", info)
	}
	if body := f.must(t, 200, "GET", "/v1.41/info", ""); strings.Contains(body, "FirewallBackend") || strings.Contains(body, "SWMTKN") {
		t.Error(body)
	}
	trouble, limits = "nft: not written for 12s", []string{"limits are accepted and not enforced"}
	if info = into[system.Info](t, f.must(t, 200, "GET", "/info", "")); len(info.Warnings) != 2 || info.Warnings[0] != "WARNING: "+limits[0] || !strings.Contains(info.Warnings[1], trouble) {
		t.Errorf("warnings %q", info.Warnings)
	}
	f.server.cfg.Cluster = worker{f.cluster}
	if info = into[system.Info](t, f.must(t, 200, "GET", "/info", "")); info.Swarm.ControlAvailable || info.Swarm.Cluster != nil {
		t.Errorf("worker %+v", info.Swarm)
	}
}

func TestVersion(t *testing.T) {
	f := newFixture(t)
	v := into[types.Version](t, f.must(t, 200, "GET", "/v1.30/version", ""))
	if v.Version != "0.1.0" || v.APIVersion != "1.51" || v.MinAPIVersion != "1.24" || v.Os != runtime.GOOS || len(v.Components) == 0 || v.Components[0].Name != "Engine" {
		t.Errorf("%+v", v)
	}
	if code, _, _ := f.do(t, "OPTIONS", "/v1.51/containers/json", ""); code != 200 {
		t.Errorf("OPTIONS: %d", code)
	}
}

func TestOSRelease(t *testing.T) {
	name, version := osRelease(strings.NewReader("NAME=x\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\nVERSION_ID='12'\n"), "linux")
	if name != "Debian GNU/Linux 12 (bookworm)" || version != "12" {
		t.Error(name, version)
	}
	if name, version = osRelease(strings.NewReader(""), "linux"); name != "linux" || version != "" {
		t.Error(name, version)
	}
}

func TestAuth(t *testing.T) {
	f := newFixture(t)
	basic := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, ok := r.BasicAuth(); !ok || user != "u" || password != "p" {
			w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	defer basic.Close()
	mux := http.NewServeMux()
	token := httptest.NewServer(mux)
	defer token.Close()
	mux.HandleFunc("/v2/", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer good" {
			w.Header().Set("WWW-Authenticate", `Bearer realm="`+token.URL+`/token",service="x"`)
			w.WriteHeader(http.StatusUnauthorized)
		}
	})
	mux.HandleFunc("/token", func(w http.ResponseWriter, r *http.Request) {
		if user, password, ok := r.BasicAuth(); ok && user == "u" && password == "p" {
			_, _ = fmt.Fprint(w, `{"token":"good"}`)
			return
		}
		w.WriteHeader(http.StatusUnauthorized)
	})
	for _, registry := range []*httptest.Server{basic, token} {
		login := func(password string) string {
			return fmt.Sprintf(`{"username":"u","password":%q,"serveraddress":%q}`, password, registry.URL)
		}
		if body := f.must(t, 200, "POST", "/auth", login("p")); !strings.Contains(body, "Login Succeeded") {
			t.Error(body)
		}
		f.refused(t, 401, "incorrect username or password", "POST", "/auth", login("wrong"))
	}
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	f.refused(t, 503, "login attempt to", "POST", "/auth", fmt.Sprintf(`{"username":"u","password":"p","serveraddress":%q}`, gone.URL))
	f.refused(t, 400, "invalid registry address", "POST", "/auth", `{"serveraddress":"a b"}`)
	f.refused(t, 400, "EOF", "POST", "/auth", "")
}
