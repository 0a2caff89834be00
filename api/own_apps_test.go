// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"maps"
	"testing"
	"time"

	"satld/api/wire"
	"satld/apps"
)

// fakeApps are verdicts by name; of any other name there is none.
type fakeApps map[string]apps.Verdict

func (f fakeApps) Get(name string) apps.Verdict {
	if v, ok := f[name]; ok {
		return v
	}
	return apps.Verdict{Name: name, Gated: true, Rule: "no containers"}
}

func (f fakeApps) All() []apps.Verdict { return []apps.Verdict{f["blog"], f["shop"]} }

func TestApps(t *testing.T) {
	at := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	f := newFixture(t, func(c *Config) {
		c.Apps = fakeApps{
			"blog": {Name: "blog", Rule: "a container with a probe is unhealthy", Gated: true, Checked: at},
			"shop": {Name: "shop", Healthy: true, Rule: "every container with a probe is healthy", Gated: true, Checked: at},
		}
	})
	all := into[[]wire.App](t, f.must(t, 200, "GET", "/satl/v1/apps", ""))
	if len(all) != 2 || all[0].Name != "blog" || all[0].Healthy || !all[1].Healthy || !all[1].Checked.Equal(at) {
		t.Errorf("%+v", all)
	}
	for name, healthy := range map[string]bool{"blog": false, "shop": true, "nope": false} {
		one := into[wire.App](t, f.must(t, 200, "GET", "/satl/v1/apps/"+name, ""))
		status := map[bool]int{true: 200, false: 503}[healthy]
		gate := into[wire.App](t, f.must(t, status, "GET", "/satl/v1/apps/"+name+"/health", ""))
		if one.Name != name || one.Healthy != healthy || one.Rule == "" || gate != one {
			t.Errorf("%s: %+v, %+v", name, one, gate)
		}
		if body := f.must(t, status, "HEAD", "/satl/v1/apps/"+name+"/health", ""); body != "" {
			t.Errorf("HEAD has a body: %q", body)
		}
	}
	f.refused(t, 404, "page not found", "POST", "/satl/v1/apps/shop/health", "")
	newFixture(t).refused(t, 501, "does not judge applications", "GET", "/satl/v1/apps", "")
}

// TestDeclaredApps: stacks by the label of their services, opted in by any.
func TestDeclaredApps(t *testing.T) {
	f := newFixture(t)
	for name, labels := range map[string]string{
		"a_web": `"Labels":{"com.docker.stack.namespace":"a"}`,
		"a_db":  `"Labels":{"com.docker.stack.namespace":"a","satl.app.health":"true"}`,
		"b_web": `"Labels":{"com.docker.stack.namespace":"b","satl.app.health":"false"}`,
		"c_web": `"Labels":{"com.docker.stack.namespace":"c"}`,
		"alone": `"Labels":{"satl.app.health":"true"}`,
	} {
		container := ""
		if name == "c_web" {
			container = `,"Labels":{"satl.app.health.file":"/run/health"}`
		}
		f.create(t, `{"Name":"`+name+`",`+labels+`,"TaskTemplate":{"ContainerSpec":{"Image":"bb:1"`+container+`}}}`)
	}
	want := map[string]apps.Declared{"a": apps.OptedIn, "b": apps.OptedOut, "c": apps.OptedIn}
	if got := DeclaredApps(f.cluster.store); !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := DeclaredApps(nil); got != nil {
		t.Errorf("without a store: %v", got)
	}
}
