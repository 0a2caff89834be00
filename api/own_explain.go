// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/docker/docker/api/types/swarm"

	"satld/api/wire"
	"satld/executor"
	"satld/healthcheck"
)

// never is the bound of what does not happen.
const never = time.Duration(1<<63 - 1)

// healthExplain says what a spec's probe amounts to before it is deployed. The
// spec is checked as at create; nothing is stored.
func (s *Server) healthExplain(w http.ResponseWriter, r *http.Request) error {
	var spec swarm.ServiceSpec
	if err := decodeJSON(w, r, &spec); err != nil {
		return err
	}
	if spec.Name == "" {
		spec.Name = "unnamed"
	}
	e, err := explain(&spec)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, &e)
}

// explain admits a spec and computes what its probe amounts to.
func explain(spec *swarm.ServiceSpec) (wire.Explanation, error) {
	admitted, err := admit(spec)
	if err != nil {
		return wire.Explanation{}, err
	}
	e := wire.Explanation{Warnings: append([]string{}, admitted.warnings...), Table: []wire.Row{}}
	probe, err := effectiveProbe(spec)
	if err != nil || probe == nil {
		return e, err
	}
	grace := executor.DefaultGrace
	if g := spec.TaskTemplate.ContainerSpec.StopGracePeriod; g != nil {
		grace = *g
	}
	e.Probe = shownProbe(*probe, grace)
	bounds := boundsOf(*probe, grace)
	bounds.Drain, _ = time.ParseDuration(spec.Labels["satl.traffic.drain"]) // admitted, or 0
	e.Bounds = &bounds
	e.Table = tradeOffs(*probe, grace)
	return e, nil
}

func shownProbe(s healthcheck.Settings, grace time.Duration) *wire.Probe {
	p := &wire.Probe{
		Kind: s.Kind.String(), Text: probeText(s), Profile: s.Profile.String(), Action: s.Action.String(),
		Interval: s.Interval, Timeout: s.Timeout, StartPeriod: s.StartPeriod, StartInterval: s.StartInterval,
		First: firstProbe(s), StartLimit: s.StartLimit, UnrouteAfter: s.Retries, StopGrace: grace,
	}
	switch s.Action {
	case healthcheck.Replace:
		p.ReplaceAfter = max(s.Retries, s.ReplaceAfter)
	case healthcheck.None:
		p.UnrouteAfter = 0
	}
	if s.Profile == healthcheck.Gate {
		p.StartLimit = healthcheck.GateBound
	}
	return p
}

// probeText says in words what a probe does.
func probeText(s healthcheck.Settings) string {
	switch s.Kind {
	case healthcheck.HTTP:
		return fmt.Sprintf("GET %s on port %d, %v passes", s.Path, s.Port, s.Pass)
	case healthcheck.TCP:
		return fmt.Sprintf("a connection to port %d opens", s.Port)
	case healthcheck.File:
		return fmt.Sprintf("status file %s says healthy and is fresh", s.Path)
	}
	return "exit code 0 of: " + strings.Join(s.Argv, " ")
}

// firstProbe is the wait from the start of the main process to the first probe.
func firstProbe(s healthcheck.Settings) time.Duration {
	if s.First == healthcheck.AtOnce {
		return 0
	}
	return healthcheck.NextDelay(healthcheck.Health{}, s)
}

func boundsOf(s healthcheck.Settings, grace time.Duration) wire.Bounds {
	b := wire.Bounds{
		Sustained: healthcheck.Sustained(s), OutOfPool: healthcheck.WorstCase(s, grace),
		FirstPass: firstProbe(s), StartFailed: healthcheck.WorstStart(s),
	}
	if s.Action == healthcheck.None {
		b.Sustained = 0
	}
	b.OutOfPoolText = formula(s, s.Retries, graceInPool(s, grace), healthcheck.PoolRepair, b.OutOfPool)
	b.Replaced = healthcheck.WorstReplace(s, grace)
	b.ReplacedText = formula(s, max(s.Retries, s.ReplaceAfter), grace, 0, b.Replaced)
	for _, d := range []*time.Duration{&b.OutOfPool, &b.Replaced, &b.StartFailed} {
		if *d == never {
			*d = 0
		}
	}
	return b
}

// graceInPool is the stop grace period where it is a part of the worst case
// out of the pool: not where a task leaves traffic before it is stopped.
func graceInPool(s healthcheck.Settings, grace time.Duration) time.Duration {
	if s.Action == healthcheck.Unroute || s.ReplaceAfter > s.Retries {
		return 0
	}
	return grace
}

// formula writes a bound as the table of spec/healthchecks.txt does:
// "3 x (5 + 3) + 10 + 5 = 39 s".
func formula(s healthcheck.Settings, failures int, grace, repair, total time.Duration) string {
	if total == never {
		return "never"
	}
	cycle := fmt.Sprintf("(%s + %s)", seconds(s.Interval), seconds(s.Timeout))
	if s.FixedRate {
		cycle = seconds(max(s.Interval, s.Timeout))
	}
	text := fmt.Sprintf("%d x %s", failures+1, cycle)
	for _, more := range []time.Duration{grace, repair} {
		if more > 0 {
			text += " + " + seconds(more)
		}
	}
	return text + " = " + seconds(total) + " s"
}

func seconds(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) }

// tradeOffs is the table of spec/healthchecks.txt ("Trading detection latency
// for stability") for a probe: itself first, then what else it could be.
func tradeOffs(s healthcheck.Settings, grace time.Duration) []wire.Row {
	rows := []wire.Row{row("as it is", s, grace)}
	if s.Action == healthcheck.None { // it never leaves, whatever the settings
		return rows
	}
	add := func(setting string, change func(*healthcheck.Settings)) {
		other := s
		if change(&other); other.Interval == s.Interval && other.Timeout == s.Timeout && other.Retries == s.Retries {
			return
		}
		rows = append(rows, row(setting, other, grace))
	}
	if s.FixedRate { // spec/replica-health.txt, "Check interval"
		for _, timeout := range []time.Duration{10 * time.Second, 15 * time.Second, 30 * time.Second, time.Minute} {
			add(fmt.Sprintf("timeout %v", timeout), func(o *healthcheck.Settings) {
				o.Timeout, o.Interval = timeout, max(healthcheck.AutomaticInterval, timeout)
			})
		}
		return rows
	}
	add(fmt.Sprintf("retries %d", 2*s.Retries), func(o *healthcheck.Settings) { o.Retries = 2 * s.Retries })
	add(fmt.Sprintf("interval %v", 2*s.Interval), func(o *healthcheck.Settings) { o.Interval = 2 * s.Interval })
	add("defaults of a published service", func(o *healthcheck.Settings) {
		o.Interval, o.Timeout, o.Retries = healthcheck.PublishedInterval, healthcheck.PublishedTimeout, healthcheck.PublishedRetries
	})
	add("Docker's defaults", func(o *healthcheck.Settings) {
		o.Interval, o.Timeout, o.Retries = healthcheck.DefaultInterval, healthcheck.DefaultTimeout, healthcheck.DefaultRetries
	})
	return rows
}

func row(setting string, s healthcheck.Settings, grace time.Duration) wire.Row {
	b := boundsOf(s, grace)
	return wire.Row{
		Setting: setting, Interval: s.Interval, Timeout: s.Timeout, Retries: s.Retries,
		Sustained: b.Sustained, OutOfPool: b.OutOfPool, Text: b.OutOfPoolText,
	}
}
