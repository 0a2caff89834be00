// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/swarm"
)

// TestSpecWarnings is cases/update.md, update-3 and update-7, and
// cases/budget.md, budget-1 and budget-8.
func TestSpecWarnings(t *testing.T) {
	const (
		probe = `"ContainerSpec":{"Image":"bb:1","Healthcheck":{"Test":["CMD","x"],"Interval":15000000000,"Timeout":5000000000,"Retries":3}}`
		boots = `"ContainerSpec":{"Image":"bb:1","Healthcheck":{"Test":["CMD","x"],"Interval":15000000000,"Retries":3,"StartPeriod":30000000000}}`
		none  = `"ContainerSpec":{"Image":"bb:1"}`
	)
	service := func(task, rest string) string { return `{"Name":"web","TaskTemplate":{` + task + `}` + rest + `}` }
	grace := func(health, ns string) string {
		return service(`"ContainerSpec":{"Image":"bb:1","StopGracePeriod":`+ns+health+`}`, "")
	}
	const healthcheck = `,"Healthcheck":{"Test":["CMD","x"]}`
	hostPort := func(mode, port string) string {
		return `,"EndpointSpec":{"Ports":[{"Protocol":"tcp","TargetPort":80,"PublishMode":"` + mode + `","PublishedPort":` + port + `}]}`
	}
	restart := func(policy string) string { return service(none+`,"RestartPolicy":{`+policy+`}`, "") }

	for _, c := range []struct {
		name, spec string
		want       []string // parts of the one warning; none where nothing is wrong
	}{
		{"monitor too short", service(probe, `,"UpdateConfig":{"Monitor":5000000000}`), []string{"service web: update monitor 5s is shorter than the 45s", "--update-monitor 45s"}},
		{"monitor just short", service(probe, `,"UpdateConfig":{"Monitor":44999999999}`), []string{"45s"}},
		{"monitor long enough", service(probe, `,"UpdateConfig":{"Monitor":45000000000}`), nil},
		{"monitor by default", service(probe, `,"UpdateConfig":{"Parallelism":1}`), []string{"update monitor 5s"}},
		{"monitor and start period", service(boots, `,"UpdateConfig":{"Monitor":45000000000}`), []string{"1m15s", "start period 30s + 3 x interval 15s"}},
		{"the delay watches as long", service(probe, `,"UpdateConfig":{"Monitor":5000000000,"Delay":45000000000}`), nil},
		{"nothing said of updates", service(probe, ""), nil},
		{"monitor and a sum too large to say", service(strings.Replace(probe, `"Test"`, `"StartPeriod":9223372036854775807,"Test"`, 1), `,"UpdateConfig":{"Monitor":9000000000}`), []string{"start period"}},
		{"monitor of a rollback", service(probe, `,"RollbackConfig":{"Monitor":5000000000}`), []string{"rollback monitor 5s", "--rollback-monitor 45s"}},
		{"monitor without a probe", service(none, `,"UpdateConfig":{"Monitor":1000000000}`), nil},
		{"monitor and tightened defaults", `{"Name":"web","TaskTemplate":{"ContainerSpec":{"Image":"bb:1"` + healthcheck + `}},"UpdateConfig":{"Monitor":9000000000}` + hostPort("ingress", "8080") + `}`, []string{"than the 10s"}},

		{"monitor and two thresholds", service(`"ContainerSpec":{"Image":"bb:1","Labels":{"satl.health.tcp":"80","satl.health.profile":"automatic"}}`, `,"UpdateConfig":{"Monitor":60000000000}`), []string{"than the 5m0s", "30 x interval 10s"}},
		{"monitor and a probe that replaces nobody", service(`"ContainerSpec":{"Image":"bb:1","Labels":{"satl.health.tcp":"80","satl.health.action":"unroute"}}`, `,"UpdateConfig":{"Monitor":1000000000}`), nil},

		{"window equal", restart(`"MaxAttempts":3,"Delay":10000000000,"Window":30000000000`), []string{"restart window 30s is not longer than max attempts x delay (3 x 10s)"}},
		{"window above", restart(`"MaxAttempts":3,"Delay":10000000000,"Window":30000000001`), nil},
		{"window zero", restart(`"MaxAttempts":3,"Delay":10000000000,"Window":0`), nil},
		{"window, delay unset", restart(`"MaxAttempts":3,"Window":15000000000`), []string{"3 x 5s"}},
		{"window, delay zero", restart(`"MaxAttempts":3,"Delay":0,"Window":1000000000`), nil},
		{"window, attempts unlimited", restart(`"Delay":10000000000,"Window":10000000000`), nil},
		{"window, a product too large to say", restart(`"MaxAttempts":18446744073709551615,"Delay":10000000000,"Window":9000000000000000000`), []string{"at most 1024 restart attempts", "18446744073709551615"}},
		{"window, as many as are counted", restart(`"MaxAttempts":1024,"Delay":1000000000,"Window":1025000000000`), nil},
		{"window, more than are counted", restart(`"MaxAttempts":1025,"Delay":0,"Window":1000000000`), []string{"at most 1024 restart attempts", "within 1s"}},

		{"start-first and a port of the host", service(none, `,"UpdateConfig":{"Order":"start-first"}`+hostPort("host", "8080")), []string{"start-first", "port 8080", "stopped first"}},
		{"rollback start-first and a port of the host", service(none, `,"RollbackConfig":{"Order":"start-first"}`+hostPort("host", "8080")), []string{"start-first"}},
		{"start-first and a port to be chosen", service(none, `,"UpdateConfig":{"Order":"start-first"}`+hostPort("host", "0")), nil},
		{"stop-first and a port of the host", service(none, `,"UpdateConfig":{"Order":"stop-first"}`+hostPort("host", "8080")), nil},

		{"grace", grace(healthcheck, "61000000000"), []string{"stop grace period of 1m1s"}},
		{"grace of a minute", grace(healthcheck, "60000000000"), nil},
		{"grace without a probe", grace("", "3600000000000"), nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, err := admit(specOf(t, c.spec))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, w := range a.warnings {
				if !strings.Contains(w, "has no healthcheck") {
					got = append(got, w)
				}
			}
			if c.want == nil {
				if len(got) > 0 {
					t.Errorf("warnings %q", got)
				}
				return
			}
			if len(got) != 1 {
				t.Fatalf("warnings %q", got)
			}
			for _, part := range c.want {
				if !strings.Contains(got[0], part) {
					t.Errorf("%q does not say %q", got[0], part)
				}
			}
		})
	}
}

// TestWarningsAreAnsweredAndLogged: at create and at update.
func TestWarningsAreAnsweredAndLogged(t *testing.T) {
	var logged bytes.Buffer
	f := newFixture(t, func(c *Config) { c.Logger = slog.New(slog.NewTextHandler(&logged, nil)) })
	const spec = `{"Name":"web","TaskTemplate":{"ContainerSpec":{"Image":"bb:1"},"RestartPolicy":{"MaxAttempts":3,"Delay":10000000000,"Window":10000000000}}}`
	const says = "restart window 10s is not longer than max attempts x delay (3 x 10s)"
	_, warnings := f.create(t, spec)
	if len(warnings) != 1 || !strings.Contains(warnings[0], says) || strings.Count(logged.String(), says) != 1 {
		t.Errorf("create: %q, log %s", warnings, &logged)
	}
	resp := into[swarm.ServiceUpdateResponse](t, f.must(t, 200, "POST", "/services/web/update?version=1", spec))
	if len(resp.Warnings) != 1 || !strings.Contains(resp.Warnings[0], says) || strings.Count(logged.String(), says) != 2 {
		t.Errorf("update: %q, log %s", resp.Warnings, &logged)
	}
}
