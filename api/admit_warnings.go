// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"fmt"
	"math"
	"time"

	"github.com/docker/docker/api/types/swarm"
	gogotypes "github.com/gogo/protobuf/types"
	"github.com/moby/swarmkit/v2/api/defaults"

	"satld/healthcheck"
	"satld/orchestrator"
)

// longGrace is the stop grace period above which a wedged task of a probed
// service is worth a warning: it is withdrawn at once, but its replacement
// waits for the grace to end (cases/budget.md, budget-8).
const longGrace = 60 * time.Second

// specWarnings are of specs that are valid and cannot work as written. probe
// is the effective settings, defaults included; nil without a probe.
func specWarnings(spec *swarm.ServiceSpec, probe *healthcheck.Settings) []string {
	var warnings []string
	note := func(warning string) {
		if warning != "" {
			warnings = append(warnings, warning)
		}
	}
	if probe != nil {
		note(monitorWarning(spec.Name, "update", spec.UpdateConfig, *probe))
		note(monitorWarning(spec.Name, "rollback", spec.RollbackConfig, *probe))
		note(graceWarning(spec))
	}
	note(windowWarning(spec))
	note(orderWarning(spec))
	return warnings
}

// monitorWarning warns of a rollout that stops watching a new task before its
// probe can have failed often enough: such an update completes, and its tasks
// fail afterwards (cases/update.md, update-3). A task is watched for
// max(Monitor, Delay); a rollout that nothing is said about is left alone, for
// its 5 s are nobody's decision.
func monitorWarning(service, kind string, c *swarm.UpdateConfig, probe healthcheck.Settings) string {
	if c == nil || probe.Action != healthcheck.Replace { // what is never replaced fails no rollout
		return ""
	}
	monitor := c.Monitor
	if monitor == 0 {
		monitor = protoDuration(defaults.Service.Update.Monitor)
	}
	failures := max(probe.Retries, probe.ReplaceAfter)
	needed := healthcheck.SustainedReplace(probe)
	needed += min(probe.StartPeriod, math.MaxInt64-needed)
	if max(monitor, c.Delay) >= needed {
		return ""
	}
	return fmt.Sprintf("service %s: %s monitor %v is shorter than the %v that its probe needs to fail "+
		"(start period %v + %d x interval %v): a bad %s may complete before its tasks turn unhealthy; use --%s-monitor %v or more",
		service, kind, monitor, needed, probe.StartPeriod, failures, probe.Interval, kind, kind, needed)
}

// windowWarning warns of a budget whose failures leave the window before they
// add up to its limit (cases/budget.md, budget-1), and of one that is not counted
// as far as it goes.
func windowWarning(spec *swarm.ServiceSpec) string {
	p := spec.TaskTemplate.RestartPolicy
	if p == nil || p.MaxAttempts == nil || *p.MaxAttempts == 0 || p.Window == nil || *p.Window == 0 {
		return ""
	}
	delay := protoDuration(defaults.Service.Task.Restart.Delay)
	if p.Delay != nil {
		delay = *p.Delay
	}
	if *p.MaxAttempts > orchestrator.MaxWindowed {
		return fmt.Sprintf("service %s: at most %d restart attempts are counted in a window, so that many within %v, and not %d, are the limit",
			spec.Name, orchestrator.MaxWindowed, *p.Window, *p.MaxAttempts)
	}
	// Window > MaxAttempts x Delay, without a product that may overflow.
	if delay == 0 || uint64((*p.Window-1)/delay) >= *p.MaxAttempts {
		return ""
	}
	return fmt.Sprintf("service %s: restart window %v is not longer than max attempts x delay (%d x %v): "+
		"failures leave the window before they reach the limit, so restarts may never stop; use a longer --restart-window, or 0 to count all",
		spec.Name, *p.Window, *p.MaxAttempts, delay)
}

// orderWarning warns of a new task that could not start beside the old one,
// because both want the same port of the host. The old one is then stopped
// first (cases/update.md, update-7).
func orderWarning(spec *swarm.ServiceSpec) string {
	if spec.EndpointSpec == nil || !startsFirst(spec.UpdateConfig) && !startsFirst(spec.RollbackConfig) {
		return ""
	}
	for _, p := range spec.EndpointSpec.Ports {
		if p.PublishMode == swarm.PortConfigPublishModeHost && p.PublishedPort != 0 {
			return fmt.Sprintf("service %s: order start-first cannot work on one node with port %d published in mode host, "+
				"which two tasks there cannot share: where no other node is free the old task is stopped first", spec.Name, p.PublishedPort)
		}
	}
	return ""
}

func startsFirst(c *swarm.UpdateConfig) bool {
	return c != nil && c.Order == swarm.UpdateOrderStartFirst
}

// graceWarning warns of a wedged task that is replaced late.
func graceWarning(spec *swarm.ServiceSpec) string {
	grace := spec.TaskTemplate.ContainerSpec.StopGracePeriod
	if grace == nil || *grace <= longGrace {
		return ""
	}
	return fmt.Sprintf("service %s: an unhealthy task that ignores its stop signal is replaced only after the stop grace period of %v "+
		"(it is out of traffic at once)", spec.Name, *grace)
}

// protoDuration is one of SwarmKit's own defaults, which are all valid.
func protoDuration(d *gogotypes.Duration) time.Duration {
	v, err := gogotypes.DurationFromProto(d)
	if err != nil {
		panic(err)
	}
	return v
}
