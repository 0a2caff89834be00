// SPDX-License-Identifier: BSD-2-Clause

package orchestrator

import (
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/moby/swarmkit/v2/api"

	"satld/healthcheck"
)

// startLimit is how long a task may be STARTING: until its first pass at the
// latest possible time, StartPeriod and then retries failures of interval and
// timeout each (or longer, where the waits while never yet healthy are), and the
// time that sets up the container and each probe.
func startLimit(t *api.Task) time.Duration {
	c := t.Spec.GetContainer()
	if c == nil {
		return StartLimit
	}
	h := c.Healthcheck
	if h == nil { // its labels may ask for a probe
		h = &api.HealthConfig{}
	}
	settings, ok, _, err := healthcheck.FromSpec(&container.HealthConfig{
		Test:          h.Test,
		Interval:      duration(h.Interval, 0),
		Timeout:       duration(h.Timeout, 0),
		Retries:       int(h.Retries),
		StartPeriod:   duration(h.StartPeriod, 0),
		StartInterval: duration(h.StartInterval, 0),
	}, c.Labels)
	if err != nil || !ok {
		return StartLimit // the API refuses what cannot be meant
	}
	longest := 30 * 24 * time.Hour // beyond which sums would overflow
	worst := min(healthcheck.WorstStart(settings), longest)
	if settings.Profile != healthcheck.Docker || settings.StartLimit > 0 || settings.ReplaceAfter > 0 || settings.Action != healthcheck.Replace {
		return StartLimit + worst
	}
	cycle := min(settings.Interval, longest) + min(settings.Timeout, longest)
	return StartLimit + max(worst, min(settings.StartPeriod, longest)+time.Duration(min(settings.Retries, 1000))*cycle)
}
