// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"slices"
	"strings"

	"github.com/docker/docker/api/types/swarm"
)

// labelState is what may be done with one of our labels today.
type labelState int

const (
	labelLater   labelState = iota // known, and refused until what it asks for is built
	labelBoolean                   // accepted with true or false
)

// Our labels; a name that ends in a dot stands for all that begin with it.
// What is not listed here and begins with one of ownPrefixes is a mistake.
var (
	ownPrefixes   = []string{"satl.health.", "satl.traffic.", "satl.dns."}
	serviceLabels = map[string]labelState{
		"satl.dns.not-ready":              labelBoolean,
		"satl.traffic.fail-open":          labelLater, // an unhealthy task is always stopped today: there is nobody to fall back on
		"satl.traffic.drain":              labelLater,
		"satl.health.replace-parallelism": labelLater,
	}
	containerLabels = map[string]labelState{
		"satl.health.http":          labelLater,
		"satl.health.http.port":     labelLater,
		"satl.health.http.pass":     labelLater,
		"satl.health.http.header.":  labelLater,
		"satl.health.port":          labelLater,
		"satl.health.pass":          labelLater,
		"satl.health.header.":       labelLater,
		"satl.health.tcp":           labelLater,
		"satl.health.file":          labelLater,
		"satl.health.first":         labelLater,
		"satl.health.unroute-after": labelLater,
		"satl.health.replace-after": labelLater,
		"satl.health.start-limit":   labelLater,
		"satl.health.profile":       labelLater,
		"satl.health.action":        labelLater,
	}
)

func admitServiceLabels(spec *swarm.ServiceSpec) error {
	if err := admitLabels("service", spec.Labels, serviceLabels, "container", containerLabels); err != nil {
		return err
	}
	return admitLabels("container", spec.TaskTemplate.ContainerSpec.Labels, containerLabels, "service", serviceLabels)
}

// admitLabels checks the labels of one place (where); elsewhere are those
// that belong to the other place, to say so.
func admitLabels(where string, labels map[string]string, known map[string]labelState, other string, elsewhere map[string]labelState) error {
	names := make([]string, 0, len(labels))
	for name := range labels {
		names = append(names, name)
	}
	slices.Sort(names) // the same error each time
	for _, name := range names {
		if !slices.ContainsFunc(ownPrefixes, func(p string) bool { return strings.HasPrefix(name, p) }) {
			continue
		}
		state, ok := labelNamed(known, name)
		if !ok {
			if _, misplaced := labelNamed(elsewhere, name); misplaced {
				return errInvalid("label %s is a %s label, not a %s label", name, other, where)
			}
			return errInvalid("unknown label %s", name)
		}
		switch value := labels[name]; {
		case state == labelLater:
			return errNotSupported("label %s is not supported yet", name)
		case value != "true" && value != "false":
			return errInvalid("label %s must be true or false, not %q", name, value)
		}
	}
	return nil
}

func labelNamed(known map[string]labelState, name string) (labelState, bool) {
	if state, ok := known[name]; ok && !strings.HasSuffix(name, ".") {
		return state, true
	}
	for prefix, state := range known {
		if strings.HasSuffix(prefix, ".") && strings.HasPrefix(name, prefix) && name != prefix {
			return state, true
		}
	}
	return 0, false
}
