// SPDX-License-Identifier: BSD-2-Clause

package healthcheck

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/docker/docker/api/types/container"
)

// TightenSpec writes the tighter defaults of a service that publishes a port
// into its healthcheck, field by field and only where a field is unset, and
// names what it wrote: "interval=5s timeout=3s retries=2", or "" where nothing
// was (no probe, or every field explicit). Container labels have a say: a probe
// that they name gets these defaults too, in a Healthcheck with an empty Test
// that is made where there is none; one whose profile has timings of its own is
// left alone, and so are retries that a label gives. What cannot be meant is for
// FromSpec to refuse afterwards, by the values that labels meet then.
//
// The values then look explicit, on purpose: removing the port later restores
// nothing (spec/healthchecks.txt, "The values are written into the stored spec").
func TightenSpec(hc *container.HealthConfig, labels map[string]string) (tightened *container.HealthConfig, applied string) {
	l, err := parseLabels(labels)
	if err != nil || l.profile != Docker && l.profile != Gate {
		return hc, ""
	}
	tight := cmp.Or(hc, &container.HealthConfig{})
	argv, _, err := command(tight)
	if err != nil || validate(tight) != nil || argv == nil && l.kindLabel == "" {
		return hc, ""
	}
	return tight, tighten(tight, tight.Retries != 0 || l.unroute != nil)
}

// tighten fills in what is unset; retries tells whether those are set.
func tighten(hc *container.HealthConfig, retries bool) (applied string) {
	var names []string
	if hc.Timeout == 0 {
		hc.Timeout = PublishedTimeout
		if hc.Interval != 0 {
			hc.Timeout = min(DefaultTimeout, hc.Interval)
		}
		names = append(names, fmt.Sprintf("timeout=%v", hc.Timeout))
	}
	if hc.Interval == 0 {
		hc.Interval = PublishedInterval
		names = append([]string{fmt.Sprintf("interval=%v", hc.Interval)}, names...)
	}
	if !retries {
		hc.Retries = PublishedRetries
		names = append(names, fmt.Sprintf("retries=%d", hc.Retries))
	}
	return strings.Join(names, " ")
}

// NoProbeWarning warns of a service that publishes a port and has nothing to
// gate it by. published is PublishedText's. The words are the specification's
// ("A published service with no probe at all is a warning").
func NoProbeWarning(service, published string) string {
	return fmt.Sprintf("service %s publishes %s and has no healthcheck: its tasks are published "+
		"as soon as the jail starts, before the workload can answer, and stay published "+
		"while a dead container keeps its share of the traffic", service, published)
}

// PublishedPort is one published port of a service.
type PublishedPort struct {
	Published uint32 // 0 is one yet to be chosen
	Target    uint32
	Proto     string // "" is tcp
}

// PublishedText renders ports as Docker does: "8080->80/tcp,8443->443/tcp"; a
// port yet to be chosen is "*->80/tcp".
func PublishedText(ports []PublishedPort) string {
	texts := make([]string, len(ports))
	for i, p := range ports {
		published, proto := "*", "tcp"
		if p.Published != 0 {
			published = fmt.Sprint(p.Published)
		}
		if p.Proto != "" {
			proto = p.Proto
		}
		texts[i] = fmt.Sprintf("%s->%d/%s", published, p.Target, proto)
	}
	return strings.Join(texts, ",")
}
