// SPDX-License-Identifier: BSD-2-Clause

package healthcheck

import (
	"reflect"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
)

// tightened are the defaults that a healthcheck without labels was given.
func tightened(hc *container.HealthConfig) string {
	_, applied := TightenSpec(hc, nil)
	return applied
}

func TestTightenPublished(t *testing.T) {
	cmd := []string{"CMD", "true"}
	for _, c := range []struct {
		name    string
		hc      container.HealthConfig
		applied string
		want    container.HealthConfig
	}{
		{"all unset", container.HealthConfig{Test: cmd},
			"interval=5s timeout=3s retries=2", container.HealthConfig{Test: cmd, Interval: 5 * sec, Timeout: 3 * sec, Retries: 2}},
		{"interval explicit moves the timeout", container.HealthConfig{Test: cmd, Interval: 10 * sec},
			"timeout=10s retries=2", container.HealthConfig{Test: cmd, Interval: 10 * sec, Timeout: 10 * sec, Retries: 2}},
		{"a long interval's timeout is Docker's", container.HealthConfig{Test: cmd, Interval: time.Hour, Retries: 3},
			"timeout=30s", container.HealthConfig{Test: cmd, Interval: time.Hour, Timeout: 30 * sec, Retries: 3}},
		{"timeout explicit", container.HealthConfig{Test: cmd, Timeout: 30 * sec},
			"interval=5s retries=2", container.HealthConfig{Test: cmd, Interval: 5 * sec, Timeout: 30 * sec, Retries: 2}},
		{"retries explicit", container.HealthConfig{Test: cmd, Retries: 4},
			"interval=5s timeout=3s", container.HealthConfig{Test: cmd, Interval: 5 * sec, Timeout: 3 * sec, Retries: 4}},
		{"Docker's by asking for it", container.HealthConfig{Test: cmd, Interval: 30 * sec, Timeout: 30 * sec, Retries: 3},
			"", container.HealthConfig{Test: cmd, Interval: 30 * sec, Timeout: 30 * sec, Retries: 3}},
		{"start period and start interval are left", container.HealthConfig{Test: cmd, StartPeriod: sec, StartInterval: sec, Retries: 1, Timeout: sec},
			"interval=5s", container.HealthConfig{Test: cmd, Interval: 5 * sec, Timeout: sec, Retries: 1, StartPeriod: sec, StartInterval: sec}},
		{"no probe", container.HealthConfig{Test: []string{"NONE"}}, "", container.HealthConfig{Test: []string{"NONE"}}},
		{"inherit marker", container.HealthConfig{Test: []string{""}}, "", container.HealthConfig{Test: []string{""}}},
		{"empty", container.HealthConfig{}, "", container.HealthConfig{}},
		{"unknown kind", container.HealthConfig{Test: []string{"FOO"}}, "", container.HealthConfig{Test: []string{"FOO"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if applied := tightened(&c.hc); applied != c.applied {
				t.Errorf("applied %q, want %q", applied, c.applied)
			}
			if !reflect.DeepEqual(c.hc, c.want) {
				t.Errorf("got %+v, want %+v", c.hc, c.want)
			}
		})
	}
	if tightened(nil) != "" {
		t.Error("nil was given something")
	}
}

func TestNoProbeWarning(t *testing.T) {
	const want = "service web publishes 8080->80/tcp and has no healthcheck: its tasks are published" +
		" as soon as the jail starts, before the workload can answer, and stay published" +
		" while a dead container keeps its share of the traffic"
	if got := NoProbeWarning("web", PublishedText([]PublishedPort{{8080, 80, "tcp"}})); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestPublishedText(t *testing.T) {
	got := PublishedText([]PublishedPort{{8080, 80, ""}, {53, 5353, "udp"}, {0, 443, "tcp"}})
	if want := "8080->80/tcp,53->5353/udp,*->443/tcp"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
