// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"satld/events"
)

// fixture is a server over fakes, listening on loopback.
type fixture struct {
	*httptest.Server
	server     *Server
	cluster    *fakeCluster
	containers *fakeContainers
	images     *fakeImages
	networks   *fakeNetworks
	events     *events.Log
}

// newFixture starts a server over fakes; change may adjust its Config.
func newFixture(t testing.TB, change ...func(*Config)) *fixture {
	t.Helper()
	f := &fixture{cluster: newFakeCluster(t), containers: &fakeContainers{}, images: &fakeImages{},
		networks: &fakeNetworks{}, events: new(events.Log)}
	cfg := Config{Cluster: f.cluster, Containers: f.containers, Images: f.images, Networks: f.networks, Events: f.events,
		Version: "0.1.0", BuildTime: "2026-11-29T00:00:00Z", Root: t.TempDir(), NodeName: "vm", NetworkName: "satl0", Runtime: "runc", Redirect: "nft"}
	for _, c := range change {
		c(&cfg)
	}
	f.server = New(cfg)
	f.server.portBusy = func(string, uint32) bool { return false }
	f.Server = httptest.NewServer(f.server)
	t.Cleanup(f.Close)
	return f
}

// do sends one request; a non-empty body is sent as JSON. It returns the
// status, the headers and the whole body.
func (f *fixture) do(t testing.TB, method, path, body string) (int, http.Header, string) {
	t.Helper()
	var rd io.Reader
	if body != "" {
		rd = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(t.Context(), method, f.URL+path, rd)
	if err != nil {
		t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := f.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(b)
}
