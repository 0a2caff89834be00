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
// timeout each, and the time that sets up the container and each probe.
func startLimit(t *api.Task) time.Duration {
	c := t.Spec.GetContainer()
	if c == nil || c.Healthcheck == nil {
		return StartLimit
	}
	h := c.Healthcheck
	settings, ok, _, err := healthcheck.FromConfig(&container.HealthConfig{
		Test:          h.Test,
		Interval:      duration(h.Interval, 0),
		Timeout:       duration(h.Timeout, 0),
		Retries:       int(h.Retries),
		StartPeriod:   duration(h.StartPeriod, 0),
		StartInterval: duration(h.StartInterval, 0),
	})
	if err != nil || !ok {
		return StartLimit // the API refuses what cannot be meant
	}
	longest := 30 * 24 * time.Hour // beyond which sums would overflow
	cycle := min(settings.Interval, longest) + min(settings.Timeout, longest)
	return StartLimit + min(settings.StartPeriod, longest) + time.Duration(min(settings.Retries, 1000))*cycle
}
