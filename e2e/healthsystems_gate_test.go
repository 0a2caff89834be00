// SPDX-License-Identifier: BSD-2-Clause

package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"satld/api/wire"
)

// failure is the record of a failed deploy, as docs/api.md has it.
type failure struct {
	State  string `json:"state"`
	Step   string `json:"step"`
	Name   string `json:"name"`
	Detail string `json:"detail"`
	Gate   struct {
		ProbeSequence []struct {
			Result string `json:"result"`
			Count  int    `json:"count"`
		} `json:"probe_sequence"`
		Last *struct {
			Status      int    `json:"status"`
			ContentType string `json:"content_type"`
			Body        string `json:"body"`
			ExitCode    *int   `json:"exit_code"`
			Output      string `json:"output"`
		} `json:"last"`
		AnsweredBy string `json:"answered_by"`
		Compute    *struct {
			State    string `json:"state"`
			ExitCode *int   `json:"exit_code"`
			Restarts int    `json:"restarts"`
		} `json:"compute"`
		Console *struct {
			Lines     []string `json:"lines"`
			Truncated bool     `json:"truncated"`
		} `json:"console"`
		EndedEarly bool `json:"ended_early"`
	} `json:"gate"`
}

// versions are those of a service, by our own API.
func (d *daemon) versions(service string) (v wire.Versions) {
	d.t.Helper()
	d.must("GET", "/satl/v1/services/"+service+"/versions", nil, &v)
	return v
}

// awaitRecord waits for the record of a service's failed deploy, and holds its
// detail to what none may have in it.
func (d *daemon) awaitRecord(within time.Duration, service string) (version wire.Version, f failure) {
	d.t.Helper()
	eventually(d.t, within, "a record of "+service, func() bool {
		all := d.versions(service).Versions
		i := slices.IndexFunc(all, func(v wire.Version) bool { return v.Failed })
		if i < 0 {
			return false
		}
		version = all[i]
		return true
	})
	report := version.Reports[0]
	if err := json.Unmarshal(report.Record, &f); err != nil {
		d.t.Fatalf("record of %s: %v: %s", service, err, report.Record)
	}
	if f.State != "failed" || f.Name != f.Step+"_failed" || f.Detail == "" {
		d.t.Errorf("%s: record %s", service, report.Record)
	}
	for _, never := range []string{d.subnet + ".", "127.0.0.1", "hunter2", "admin", "db.internal", "postgres", report.Node, report.NodeID, "http://", "/status", "/secret"} {
		if strings.Contains(f.Detail, never) {
			d.t.Errorf("%s: the detail has %q in it: %s", service, never, f.Detail)
		}
	}
	out, code := d.satl("service", "versions", service)
	opening, _, _ := strings.Cut(f.Detail, ":")
	if code != 0 || !strings.Contains(out, opening) || !strings.Contains(out, f.Step) {
		d.t.Errorf("satl service versions %s: exit %d, no %q in\n%s", service, code, opening, out)
	}
	return version, f
}

// sequence is what the probes met, in one line.
func (f failure) sequence() string {
	var runs []string
	for _, r := range f.Gate.ProbeSequence {
		runs = append(runs, fmt.Sprintf("%s x %d", r.Result, r.Count))
	}
	return strings.Join(runs, ", ")
}

// The gate of a rollout and the records of those that failed
// (spec/deploy-check.txt).
func TestGateOfADeploy(t *testing.T) {
	t.Parallel()
	shared := loaded(t)
	for i, c := range []struct {
		name string
		f    func(t *testing.T, d *daemon, port int)
	}{
		{"no route", gateNoRoute},
		{"redirects", gateRedirects},
		{"secrets", recordKeepsSecrets},
		{"a command", recordOfACommand},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.f(t, shared.in(t), shared.port(i))
		})
	}
}

// gateNoRoute: a version that passes serves; one that answers 404 is given up
// after twenty of them, is rolled back and leaves its record, and the old one
// serves all the while.
func gateNoRoute(t *testing.T, d *daemon, port int) {
	d.docker(append(append([]string{"service", "create", "-q", "--no-resolve-image", "--name", "shop", "--update-order", "start-first", "--update-failure-action", "rollback",
		"--update-monitor", "1s", "--rollback-monitor", "1s", "--stop-grace-period", "1s", "--container-label", "satl.health.http=/health", "--container-label", "satl.health.profile=gate"},
		publishes(port)...), "app:1")...)
	old := d.slots("shop", 1)[1]
	d.awaitReached("served", port, old)
	good := d.service("shop").Version.Index
	d.docker("service", "update", "-d", "-q", "--no-resolve-image", "--image", "app:2", "--container-label-add", "satl.health.http=/status?code=404", "shop")
	deadline := time.Now().Add(3 * time.Minute)
	for {
		if seen := reached(port); len(seen) != 1 || !seen[old[:12]] {
			t.Fatalf("while the new version is judged %v serve, want the old one", seen)
		}
		if u := d.service("shop").UpdateStatus; u != nil && strings.HasPrefix(string(u.State), "rollback_completed") {
			break
		} else if time.Now().After(deadline) {
			t.Fatalf("not rolled back: %+v", u)
		}
		time.Sleep(100 * time.Millisecond)
	}
	version, f := d.awaitRecord(30*time.Second, "shop")
	if version.Version == good || version.Image != "app:2" || version.State == "current" || len(version.Reports) != 1 {
		t.Errorf("the version that failed: %+v", version)
	}
	if f.Step != "health_gate" || !strings.HasPrefix(f.Detail, "No route at the health path") || !strings.Contains(f.Detail, "ended early") {
		t.Errorf("step %s, detail %s", f.Step, f.Detail)
	}
	if got := f.sequence(); !strings.HasSuffix(got, "404 x 20") || !f.Gate.EndedEarly || f.Gate.AnsweredBy != "application" {
		t.Errorf("probes met %s, ended early %v, answered by %s", got, f.Gate.EndedEarly, f.Gate.AnsweredBy)
	}
	if f.Gate.Last == nil || f.Gate.Last.Status != 404 || f.Gate.Compute == nil || f.Gate.Compute.State != "running" {
		t.Errorf("last %+v, compute %+v", f.Gate.Last, f.Gate.Compute)
	}
	if c := f.Gate.Console; c == nil || len(c.Lines) != 1 || !strings.Contains(c.Lines[0], "listening on") || c.Truncated {
		t.Errorf("console %+v", c)
	}
	// The same by our own client, whole.
	out, code := d.satl("service", "versions", "--reports", "shop")
	if code != 0 || !strings.Contains(out, `"ended_early": true`) {
		t.Errorf("versions --reports: exit %d\n%s", code, out)
	}
	// What the gate gave up is told by the task as well.
	x := d.awaitTask(10*time.Second, "shop", "failed", failed)
	if !strings.Contains(x.Status.Err, "health gate ended early: 20 probes in a row were answered 404") {
		t.Errorf("failed with %q", x.Status.Err)
	}
}

// gateRedirects: a path that redirects is no pass of a gate and is not
// followed, whatever else would pass; the record says so.
func gateRedirects(t *testing.T, d *daemon, _ int) {
	port, came := stranger(t)
	d.docker("service", "create", "-d", "-q", "--no-resolve-image", "--name", "moved", "--restart-condition", "none",
		"--container-label", fmt.Sprintf("satl.health.http=/redirect?to=http://%s.0.1:%d/", d.subnet, port), "--container-label", "satl.health.http.port=80",
		"--container-label", "satl.health.profile=gate", "app:1", "sh", "-c", "/app & sleep 20; exit 3")
	_, f := d.awaitRecord(90*time.Second, "moved")
	if !strings.HasPrefix(f.Detail, "The process ended with exit code 3") || !strings.Contains(f.Detail, "The last response was a redirect (302), and the check does not follow it.") {
		t.Errorf("detail %s", f.Detail)
	}
	if got := f.sequence(); !strings.Contains(got, "302 x ") || f.Gate.EndedEarly || f.Gate.Last == nil || f.Gate.Last.Status != 302 || !strings.Contains(f.Gate.Last.ContentType, "text/html") {
		t.Errorf("probes met %s, ended early %v, last %+v", got, f.Gate.EndedEarly, f.Gate.Last)
	}
	if c := f.Gate.Compute; c == nil || c.State != "exited" || c.ExitCode == nil || *c.ExitCode != 3 {
		t.Errorf("compute %+v", c)
	}
	if n := came.Load(); n > 0 {
		t.Errorf("the other host was contacted %d times", n)
	}
	d.awaitTask(10*time.Second, "moved", "failed", failed)
}

// recordKeepsSecrets: what the application says and prints is evidence, bounded,
// and the detail has nothing of it.
func recordKeepsSecrets(t *testing.T, d *daemon, _ int) {
	d.probed("talks", "http=/secret http.port=80", "--health-retries", "3", "--restart-condition", "none", "--", "app:1",
		"sh", "-c", "for i in $(seq 60); do echo line $i; done; exec /app")
	_, f := d.awaitRecord(60*time.Second, "talks")
	if !strings.HasPrefix(f.Detail, "The application said until the end that it is not ready (503)") || !strings.HasSuffix(f.sequence(), "503 x 3") {
		t.Errorf("detail %s, probes met %s", f.Detail, f.sequence())
	}
	if l := f.Gate.Last; l == nil || l.Status != 503 || !strings.HasPrefix(l.ContentType, "text/plain") || !strings.Contains(l.Body, "hunter2") || len(l.Body) > 512 {
		t.Errorf("last %+v", l)
	}
	if c := f.Gate.Console; c == nil || len(c.Lines) != 40 || !c.Truncated || !slices.ContainsFunc(c.Lines, func(l string) bool { return strings.Contains(l, "hunter2") }) {
		t.Errorf("console %+v", c)
	}
}

// recordOfACommand: a service that is probed by a command leaves the same
// record, with exit codes in place of statuses.
func recordOfACommand(t *testing.T, d *daemon, _ int) {
	d.docker("service", "create", "-d", "-q", "--no-resolve-image", "--name", "job", "--restart-condition", "none", "--health-interval", "1s", "--health-retries", "2",
		"--health-cmd", "echo postgres://admin:hunter2@db.internal; exit 7", "app:1")
	_, f := d.awaitRecord(60*time.Second, "job")
	if f.Step != "health_gate" || !strings.HasPrefix(f.Detail, "The probe command fails with exit code 7") || f.sequence() != "exit 7 x 2" {
		t.Errorf("step %s, detail %s, probes met %s", f.Step, f.Detail, f.sequence())
	}
	if l := f.Gate.Last; l == nil || l.ExitCode == nil || *l.ExitCode != 7 || !strings.Contains(l.Output, "hunter2") || f.Gate.AnsweredBy != "unknown" || f.Gate.EndedEarly {
		t.Errorf("last %+v, answered by %s", l, f.Gate.AnsweredBy)
	}
}
