// SPDX-License-Identifier: BSD-2-Clause

package apps

import (
	"maps"
	"testing"
	"time"

	"pgregory.net/rapid"

	"satld/healthcheck"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// compose are the labels of a container of a compose project that opted in.
func compose(project string, more ...string) map[string]string {
	labels := map[string]string{labelProject: project, LabelHealth: "true"}
	for i := 0; i < len(more); i += 2 {
		labels[more[i]] = more[i+1]
	}
	return labels
}

// with are labels but those named.
func with(labels map[string]string, drop ...string) map[string]string {
	labels = maps.Clone(labels)
	for _, d := range drop {
		delete(labels, d)
	}
	return labels
}

func TestJudge(t *testing.T) {
	const (
		healthy   = healthcheck.Healthy
		starting  = healthcheck.Starting
		unhealthy = healthcheck.Unhealthy
	)
	shop := compose("shop")
	quiet := with(shop, LabelHealth)
	file := compose("shop", LabelFile, "/run/health")
	up := func(h healthcheck.Status) Container {
		return Container{Labels: shop, Running: true, Probed: true, Health: h}
	}
	bare := Container{Labels: shop, Running: true}
	ended := Container{Labels: shop, Probed: true, Health: healthy, Ended: now.Add(-time.Hour)}
	task := func(slot string, born time.Duration, c Container) Container {
		c.Slot, c.Created = slot, now.Add(born)
		return c
	}
	over := func(age time.Duration) Container {
		return Container{Labels: shop, Probed: true, Health: healthy, Ended: now.Add(-age)}
	}
	leaving := up(healthy)
	leaving.Stopping = true
	condemned := up(unhealthy)
	condemned.Stopping = true
	dead := over(time.Second)
	dead.Stopping, dead.Health = true, unhealthy
	for _, c := range []struct {
		name     string
		declared Declared
		all      []Container
		healthy  bool
		rule     string
		ungated  bool
	}{
		// Only containers with a probe are judged.
		{"healthy", Unheard, []Container{up(healthy), up(healthy)}, true, ruleHealthy, false},
		{"one without a probe is no evidence", Unheard, []Container{up(healthy), bare}, true, ruleHealthy, false},
		{"one without a probe that has ended is none either", Unheard, []Container{up(healthy), {Labels: shop}}, true, ruleHealthy, false},
		{"starting is not healthy", Unheard, []Container{up(healthy), up(starting)}, false, ruleStarting, false},
		{"unhealthy", Unheard, []Container{up(healthy), up(starting), up(unhealthy)}, false, ruleUnhealthy, false},
		{"running, but none with a probe", Unheard, []Container{bare, bare}, false, ruleNoProbe, false},
		{"a probed one that is not running, whatever was last said of it", Unheard, []Container{up(healthy), ended}, false, ruleNotRunning, false},
		{"one that is created and does not run yet", Unheard, []Container{up(healthy), {Labels: shop, Probed: true}}, false, ruleNotRunning, false},
		{"none at all", Unheard, nil, false, ruleNone, false},
		{"none of it", Unheard, []Container{{Labels: compose("blog"), Running: true, Probed: true, Health: healthy}}, false, ruleNone, false},

		// Other projects are ignored.
		{"another project's is down", Unheard, []Container{up(healthy), {Labels: compose("blog"), Probed: true}, {Labels: compose("shop2"), Probed: true}, {Probed: true}}, true, ruleHealthy, false},
		{"another project opted in", Unheard, []Container{{Labels: quiet, Running: true, Probed: true, Health: unhealthy}, {Labels: compose("blog"), Running: true}}, true, ruleUngated, true},
		{"a stack", Unheard, []Container{{Labels: map[string]string{labelNamespace: "shop", LabelHealth: "true"}, Running: true, Probed: true}}, false, ruleStarting, false},
		{"both labels", Unheard, []Container{{Labels: compose("x", labelNamespace, "shop"), Running: true, Probed: true}}, false, ruleStarting, false},

		// Who did not opt in is never gated.
		{"not opted in", Unheard, []Container{{Labels: quiet, Probed: true}}, true, ruleUngated, true},
		{"opted in with false", Unheard, []Container{{Labels: compose("shop", LabelHealth, "false"), Probed: true}}, true, ruleUngated, true},
		{"not opted in, and nothing here", OptedOut, nil, true, ruleUngated, true},
		{"opted in by its services, and nothing here", OptedIn, nil, false, ruleNone, false},
		{"opted in by its services", OptedIn, []Container{{Labels: quiet, Running: true, Probed: true, Health: unhealthy}}, false, ruleUnhealthy, false},
		{"opted in by a container alone", OptedOut, []Container{up(unhealthy)}, false, ruleUnhealthy, false},
		{"one container opts in for all", Unheard, []Container{bare, {Labels: quiet, Running: true, Probed: true, Health: unhealthy}}, false, ruleUnhealthy, false},
		{"an older version of its tasks had opted in", Unheard, []Container{
			task("web/1", 0, over(time.Hour)), task("web/1", 1, Container{Labels: quiet, Running: true, Probed: true, Health: unhealthy})}, true, ruleUngated, true},

		// An application may answer for itself.
		{"its file says healthy, whatever its containers", Unheard, []Container{{Labels: file, Running: true}, up(unhealthy)}, true, ruleFile, false},
		{"its file does not pass", Unheard, []Container{{Labels: file, Running: true, FileProblem: "line 1 says unhealthy"}, up(healthy)}, false, "status file: line 1 says unhealthy", false},
		{"who writes it does not run", Unheard, []Container{{Labels: file, Ended: now}, up(healthy)}, false, ruleNoFile, false},
		{"the file alone opts in", Unheard, []Container{{Labels: with(file, LabelHealth), Running: true, FileProblem: "it does not exist"}}, false, "status file: it does not exist", false},
		{"two that write one each", Unheard, []Container{{Labels: file, Running: true}, {Labels: file, Running: true, FileProblem: "x"}}, false, "status file: x", false},

		// Tasks of services: a slot is one container.
		{"a new task starts beside the old one", Unheard, []Container{task("web/1", 1, up(healthy)), task("web/1", 2, up(starting))}, true, ruleHealthy, false},
		{"the old one is gone", Unheard, []Container{task("web/1", 1, over(0)), task("web/1", 2, up(starting))}, false, ruleStarting, false},
		{"the old one has failed, the new one is healthy", Unheard, []Container{task("web/1", 2, up(healthy)), task("web/1", 1, over(0))}, true, ruleHealthy, false},
		{"another slot starts", Unheard, []Container{task("web/1", 1, up(healthy)), task("web/2", 1, up(starting))}, false, ruleStarting, false},
		{"a task failed, and its successor is not here yet", Unheard, []Container{task("web/1", 1, up(healthy)), task("db/1", 1, over(time.Minute))}, false, ruleNotRunning, false},
		{"a slot that has moved away", Unheard, []Container{task("web/1", 1, up(healthy)), task("db/1", 1, over(time.Minute+1))}, true, ruleHealthy, false},
		{"one that is told to stop is no evidence", Unheard, []Container{task("web/1", 1, up(healthy)), task("db/1", 1, leaving)}, true, ruleHealthy, false},
		{"one that is stopped for its health counts", Unheard, []Container{task("web/1", 1, up(healthy)), task("db/1", 1, condemned)}, false, ruleUnhealthy, false},
		{"and has ended", Unheard, []Container{task("web/1", 1, up(healthy)), task("db/1", 1, dead)}, false, ruleNotRunning, false},
		{"until its successor is here", Unheard, []Container{task("web/1", 1, condemned), task("web/1", 2, up(healthy))}, true, ruleHealthy, false},
		{"all are told to stop", Unheard, []Container{task("web/1", 1, leaving)}, false, ruleNone, false},
		{"nothing but history", Unheard, []Container{task("web/1", 1, over(time.Hour))}, false, ruleNone, false},
		{"a task whose image is pulled", Unheard, []Container{task("web/1", 1, Container{Labels: shop, Probed: true})}, false, ruleNotRunning, false},
		{"of a slot's tasks one has a bad file", Unheard, []Container{
			task("web/1", 1, Container{Labels: file, Running: true}), task("web/1", 2, Container{Labels: file, Running: true, FileProblem: "x"})}, true, ruleFile, false},
	} {
		got := Judge("shop", c.declared, c.all, now)
		if want := (Verdict{"shop", c.healthy, c.rule, !c.ungated, now}); got != want {
			t.Errorf("%s:\n got %+v\nwant %+v", c.name, got, want)
		}
	}
}

// TestJudgeProperties: what holds of any set of containers.
func TestJudgeProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		labels := rapid.SampledFrom([]map[string]string{nil, compose("shop"), compose("blog"), with(compose("shop"), LabelHealth),
			compose("shop", LabelFile, "/h"), {labelNamespace: "shop", LabelHealth: "true"}})
		one := rapid.Custom(func(t *rapid.T) Container {
			c := Container{
				Labels: labels.Draw(t, "labels"), Running: rapid.Bool().Draw(t, "running"), Probed: rapid.Bool().Draw(t, "probed"),
				Health:  healthcheck.Status(rapid.IntRange(0, 2).Draw(t, "health")),
				Created: now.Add(time.Duration(rapid.IntRange(-9, 0).Draw(t, "born")) * time.Second),
			}
			if rapid.Bool().Draw(t, "task") {
				c.Slot = rapid.SampledFrom([]string{"web/1", "web/2", "db/1"}).Draw(t, "slot")
				c.Stopping = rapid.Bool().Draw(t, "stopping")
			}
			if !c.Running {
				c.Ended = now.Add(-time.Duration(rapid.IntRange(0, 99).Draw(t, "ended")) * time.Second)
			}
			return c
		})
		all := rapid.SliceOfN(one, 0, 8).Draw(t, "containers")
		v := Judge("shop", Unheard, all, now)
		var own []Container
		for _, c := range all {
			if c.Labels[labelProject] == "shop" || c.Labels[labelNamespace] == "shop" {
				own = append(own, c)
			}
		}
		if alone := Judge("shop", Unheard, own, now); alone != v {
			t.Fatalf("others have a say: %+v, without them %+v", v, alone)
		}
		if !v.Gated && !v.Healthy {
			t.Fatalf("one that did not opt in is gated: %+v", v)
		}
		if v.Gated && v.Healthy {
			for _, c := range own {
				if c.Running && !c.Stopping && (c.Health == healthcheck.Healthy && c.Probed || c.Labels[LabelFile] != "") {
					return
				}
			}
			t.Fatalf("healthy with nothing that says so: %+v of %+v", v, own)
		}
	})
}

func TestCheckLabel(t *testing.T) {
	for _, c := range []struct{ name, value, problem string }{
		{"satl.app.health", "true", ""},
		{"satl.app.health", "false", ""},
		{"satl.app.health", "yes", `must be true or false, not "yes"`},
		{"satl.app.health.file", "/run/health", ""},
		{"satl.app.health.file", "run/health", `must start with / and cannot contain spaces, or what is not printable ASCII, not "run/health"`},
		{"satl.app.health.file", "/a b", `must start with / and cannot contain spaces, or what is not printable ASCII, not "/a b"`},
		{"satl.app.wealth", "true", "is unknown"},
		{"satl.health.http", "x", ""},
		{"com.example", "x", ""},
	} {
		if got := CheckLabel(c.name, c.value); got != c.problem {
			t.Errorf("%s=%s: %q", c.name, c.value, got)
		}
	}
}
