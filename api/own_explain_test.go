// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"satld/api/wire"
)

var update = flag.Bool("update", false, "write the golden files anew")

// TestExplainSpecTable is the table of spec/healthchecks.txt, "Trading
// detection latency for stability", row by row.
func TestExplainSpecTable(t *testing.T) {
	f := newFixture(t)
	for _, c := range []struct {
		health    string
		sustained time.Duration
		outOfPool time.Duration
		text      string
	}{
		{``, 10 * time.Second, 39 * time.Second, "3 x (5 + 3) + 10 + 5 = 39 s"},
		{`,"Retries":4`, 20 * time.Second, 55 * time.Second, "5 x (5 + 3) + 10 + 5 = 55 s"},
		{`,"Interval":10000000000,"Retries":3`, 30 * time.Second, 95 * time.Second, "4 x (10 + 10) + 10 + 5 = 95 s"},
		{`,"Interval":30000000000,"Timeout":30000000000,"Retries":3`, 90 * time.Second, 255 * time.Second, "4 x (30 + 30) + 10 + 5 = 255 s"},
	} {
		spec := `{"EndpointSpec":{"Ports":[{"TargetPort":80,"PublishedPort":8080}]},"TaskTemplate":{"ContainerSpec":{"Image":"bb:1","Healthcheck":{"Test":["CMD","x"]` + c.health + `}}}}`
		e := into[wire.Explanation](t, f.must(t, 200, "POST", "/satl/v1/health/explain", spec))
		b := e.Bounds
		if b == nil || b.Sustained != c.sustained || b.OutOfPool != c.outOfPool || b.OutOfPoolText != c.text || len(e.Warnings) > 0 {
			t.Errorf("%q: %+v, warnings %q", c.health, b, e.Warnings)
			continue
		}
		if r := e.Table[0]; r.Setting != "as it is" || r.OutOfPool != c.outOfPool || r.Text != c.text {
			t.Errorf("%q: first row %+v", c.health, r)
		}
	}
}

// TestExplainGolden: the whole answer for one service of each style.
func TestExplainGolden(t *testing.T) {
	f := newFixture(t)
	for name, container := range map[string]string{
		"exec":      `"StopGracePeriod":30000000000,"Healthcheck":{"Test":["CMD-SHELL","test -f /up"],"Interval":5000000000,"Timeout":2000000000,"Retries":3,"StartPeriod":20000000000}`,
		"http":      `"Labels":{"satl.health.http":"/up","satl.health.http.port":"8080","satl.health.replace-after":"10"},"Healthcheck":{"Interval":2000000000,"Timeout":1000000000,"Retries":2}`,
		"automatic": `"Labels":{"satl.health.http":"/health","satl.health.http.port":"80","satl.health.profile":"automatic"}`,
		"gate":      `"Labels":{"satl.health.http":"/health","satl.health.http.port":"80","satl.health.profile":"gate"}`,
		"file":      `"Labels":{"satl.health.file":"/run/health","satl.health.action":"unroute"}`,
		"shown":     `"Labels":{"satl.health.tcp":"5432","satl.health.action":"none"}`,
		"none":      `"StopGracePeriod":30000000000`,
	} {
		t.Run(name, func(t *testing.T) {
			spec := `{"Name":"web","Labels":{"satl.traffic.drain":"5s"},"TaskTemplate":{"ContainerSpec":{"Image":"bb:1",` + container + `}}}`
			e := into[wire.Explanation](t, f.must(t, 200, "POST", "/satl/v1/health/explain", spec))
			got, err := json.MarshalIndent(e, "", " ")
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, '\n')
			path := filepath.Join("testdata", "explain", name+".json")
			if *update {
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != string(want) {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// TestExplainChecks: a spec that would be refused is refused, what would be
// warned of is told, and nothing is stored.
func TestExplainChecks(t *testing.T) {
	f := newFixture(t)
	f.refused(t, 400, "Interval", "POST", "/satl/v1/health/explain", inContainer(`"Healthcheck":{"Test":["CMD","x"],"Interval":-1}`))
	f.refused(t, 400, "satl.health.http must", "POST", "/satl/v1/health/explain", inContainer(`"Labels":{"satl.health.http":"x"}`))
	f.refused(t, 400, "got EOF", "POST", "/satl/v1/health/explain", "")
	spec := `{"EndpointSpec":{"Ports":[{"TargetPort":80,"PublishedPort":8080}]},"TaskTemplate":{"ContainerSpec":{"Image":"bb:1"}}}`
	e := into[wire.Explanation](t, f.must(t, 200, "POST", "/satl/v1/health/explain", spec))
	if e.Probe != nil || e.Bounds != nil || len(e.Warnings) != 1 || !strings.Contains(e.Warnings[0], "service unnamed publishes 8080->80/tcp and has no healthcheck") {
		t.Errorf("%+v", e)
	}
	if list := f.must(t, 200, "GET", "/services", ""); strings.TrimSpace(list) != "[]" {
		t.Errorf("stored: %s", list)
	}
}
