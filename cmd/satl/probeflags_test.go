// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/swarm"
)

// TestLabelFlagsOfCreate: satl's flags become the labels that the daemon knows.
func TestLabelFlagsOfCreate(t *testing.T) {
	d, body := answering(t, map[string]any{"POST /services/create": swarm.ServiceCreateResponse{ID: "svc"}})
	create := func(args ...string) swarm.ServiceSpec {
		t.Helper()
		expect(t, d, 0, []string{"svc\n"}, nil, append([]string{"service", "create", "-d", "--no-resolve-image"}, append(args, "app:1")...)...)
		var spec swarm.ServiceSpec
		if err := json.Unmarshal([]byte(body("POST /services/create")), &spec); err != nil {
			t.Fatal(err)
		}
		return spec
	}
	spec := create("--health-http", "/up", "--health-port", "8080", "--health-pass", "200-299,301", "--health-profile", "automatic", "--health-first", "0s",
		"--health-start-limit", "2m", "--health-unroute-after", "5", "--health-replace-after", "5m", "--health-action", "unroute",
		"--drain", "5s", "--fail-open", "--replace-parallelism", "2", "--container-label", "a=b", "--label", "c=d")
	if want := (map[string]string{"a": "b", "satl.health.http": "/up", "satl.health.http.port": "8080", "satl.health.http.pass": "200-299,301", "satl.health.profile": "automatic",
		"satl.health.first": "0s", "satl.health.start-limit": "2m", "satl.health.unroute-after": "5", "satl.health.replace-after": "5m", "satl.health.action": "unroute"}); !maps.Equal(spec.TaskTemplate.ContainerSpec.Labels, want) {
		t.Errorf("container labels %v", spec.TaskTemplate.ContainerSpec.Labels)
	}
	if want := (map[string]string{"c": "d", "satl.traffic.drain": "5s", "satl.traffic.fail-open": "true", "satl.health.replace-parallelism": "2"}); !maps.Equal(spec.Labels, want) {
		t.Errorf("labels %v", spec.Labels)
	}
	for flag, label := range map[string]string{"--health-tcp": "satl.health.tcp", "--health-file": "satl.health.file"} {
		if got := create(flag, "x").TaskTemplate.ContainerSpec.Labels; !maps.Equal(got, map[string]string{label: "x"}) {
			t.Errorf("%s: %v", flag, got)
		}
	}
	if got := create().TaskTemplate.ContainerSpec.Labels; len(got) > 0 {
		t.Errorf("without a flag: %v", got)
	}
	expect(t, d, 1, nil, []string{"--health-http and --health-tcp: a service has one probe"}, "service", "create", "--health-tcp", "80", "--health-http", "/", "app:1")
	expect(t, d, 1, nil, []string{"--health-cmd and --health-file: a service has one probe"}, "service", "create", "--health-cmd", "x", "--health-file", "/h", "app:1")
}

// TestLabelFlagsOfUpdate: labels are added and taken back, a new probe takes
// the place of the old one, and a new profile begins from its own timings.
func TestLabelFlagsOfUpdate(t *testing.T) {
	service := func(labels, container map[string]string, hc *container.HealthConfig) swarm.Service {
		return swarm.Service{ID: "svc", Spec: swarm.ServiceSpec{Annotations: swarm.Annotations{Name: "web", Labels: labels},
			TaskTemplate: swarm.TaskSpec{ContainerSpec: &swarm.ContainerSpec{Image: "app:1", Labels: container, Healthcheck: hc}}}}
	}
	type labels = map[string]string
	command := func() *container.HealthConfig {
		return &container.HealthConfig{Test: []string{"CMD-SHELL", "x"}, Interval: 5 * time.Second, Timeout: 3 * time.Second, Retries: 2}
	}
	http := labels{"a": "b", "satl.health.http": "/up", "satl.health.port": "80", "satl.health.http.header.X-A": "1", "satl.health.action": "unroute"}
	for i, c := range []struct {
		had        swarm.Service
		args       []string
		service    labels
		containers labels
		health     *container.HealthConfig
	}{
		{service(labels{"c": "d"}, nil, command()), []string{"--drain", "5s"}, labels{"c": "d", "satl.traffic.drain": "5s"}, nil, command()},
		{service(labels{"satl.traffic.drain": "5s", "satl.traffic.fail-open": "true"}, nil, nil), []string{"--drain", "", "--fail-open=false"}, labels{"satl.traffic.fail-open": "false"}, nil, nil},
		{service(nil, labels{"a": "b"}, command()), []string{"--health-http", "/up", "--health-port", "80"}, nil,
			labels{"a": "b", "satl.health.http": "/up", "satl.health.http.port": "80"}, &container.HealthConfig{Interval: 5 * time.Second, Timeout: 3 * time.Second, Retries: 2}},
		{service(nil, http, nil), []string{"--health-port", "81"}, nil,
			labels{"a": "b", "satl.health.http": "/up", "satl.health.http.port": "81", "satl.health.http.header.X-A": "1", "satl.health.action": "unroute"}, nil},
		{service(nil, http, nil), []string{"--health-tcp", "5432"}, nil, labels{"a": "b", "satl.health.tcp": "5432", "satl.health.action": "unroute"}, &container.HealthConfig{}},
		{service(nil, http, nil), []string{"--health-http", "/v2"}, nil,
			labels{"a": "b", "satl.health.http": "/v2", "satl.health.port": "80", "satl.health.http.header.X-A": "1", "satl.health.action": "unroute"}, &container.HealthConfig{}},
		{service(nil, http, nil), []string{"--no-healthcheck"}, nil, labels{"a": "b"}, &container.HealthConfig{Test: []string{"NONE"}}},
		{service(nil, nil, command()), []string{"--health-profile", "gate", "--health-timeout", "4s"}, nil, labels{"satl.health.profile": "gate"},
			&container.HealthConfig{Test: []string{"CMD-SHELL", "x"}, Timeout: 4 * time.Second}},
		{service(nil, labels{"satl.health.profile": "gate"}, command()), []string{"--health-profile", ""}, nil, labels{}, command()},
		{service(nil, http, nil), []string{"--env-add", "A=1"}, nil, http, nil},
	} {
		t.Run(fmt.Sprint(i, c.args), func(t *testing.T) {
			d, body := answering(t, map[string]any{"GET /services/web": c.had, "POST /services/svc/update": swarm.ServiceUpdateResponse{}, "POST /services/web/update": swarm.ServiceUpdateResponse{}})
			expect(t, d, 0, []string{"web\n"}, nil, append(append([]string{"service", "update", "-d", "--no-resolve-image"}, c.args...), "web")...)
			var spec swarm.ServiceSpec
			if err := json.Unmarshal([]byte(body("POST /services/svc/update")), &spec); err != nil {
				t.Fatal(err)
			}
			if !maps.Equal(spec.Labels, c.service) || !maps.Equal(spec.TaskTemplate.ContainerSpec.Labels, c.containers) {
				t.Errorf("labels %v, container labels %v", spec.Labels, spec.TaskTemplate.ContainerSpec.Labels)
			}
			got, err := json.Marshal(spec.TaskTemplate.ContainerSpec.Healthcheck)
			if err != nil {
				t.Fatal(err)
			}
			if want, _ := json.Marshal(c.health); string(got) != string(want) {
				t.Errorf("healthcheck %s, want %s", got, want)
			}
		})
	}
}
