// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/docker/docker/api/types/swarm"
)

// maxDrain is the longest wait between withdrawal and stop: more is a mistake
// of units, and a rollout that seems to hang.
const maxDrain = time.Hour

// labelCheck says what is wrong with a label's value ("must be ..."), "" when
// nothing is. nil is for a label that is known, and refused until what it asks
// for is built.
type labelCheck func(value string) string

// Our labels; a name that ends in a dot stands for all that begin with it.
// What is not listed here and begins with one of ownPrefixes is a mistake.
var (
	ownPrefixes   = []string{"satl.health.", "satl.traffic.", "satl.dns.", "satl.jail."}
	serviceLabels = map[string]labelCheck{
		"satl.dns.not-ready":              checkBoolean,
		"satl.traffic.fail-open":          checkBoolean,
		"satl.traffic.drain":              checkDrain,
		"satl.health.replace-parallelism": checkParallelism,
	}
	containerLabels = map[string]labelCheck{
		"satl.health.http":          nil,
		"satl.health.http.port":     nil,
		"satl.health.http.pass":     nil,
		"satl.health.http.header.":  nil,
		"satl.health.port":          nil,
		"satl.health.pass":          nil,
		"satl.health.header.":       nil,
		"satl.health.tcp":           nil,
		"satl.health.file":          nil,
		"satl.health.first":         nil,
		"satl.health.unroute-after": nil,
		"satl.health.replace-after": nil,
		"satl.health.start-limit":   nil,
		"satl.health.profile":       nil,
		"satl.health.action":        nil,
		"satl.jail.":                nil,
	}
)

func checkBoolean(value string) string {
	if value == "true" || value == "false" {
		return ""
	}
	return fmt.Sprintf("must be true or false, not %q", value)
}

// checkDrain reads a wait between withdrawal and stop (DESIGN.md, section 5).
func checkDrain(value string) string {
	if d, err := time.ParseDuration(value); err == nil && d >= 0 && d <= maxDrain {
		return ""
	}
	return fmt.Sprintf("must be a duration from 0s to %v, such as 5s, not %q", maxDrain, value)
}

// checkParallelism reads how many tasks may be replaced at a time (DESIGN.md,
// section 6).
func checkParallelism(value string) string {
	if n, err := strconv.ParseInt(value, 10, 32); err == nil && n >= 1 && strconv.FormatInt(n, 10) == value {
		return ""
	}
	return fmt.Sprintf("must be a whole number from 1, not %q", value)
}

func admitServiceLabels(spec *swarm.ServiceSpec) error {
	if err := admitLabels("service", spec.Labels, serviceLabels, "container", containerLabels); err != nil {
		return err
	}
	return admitLabels("container", spec.TaskTemplate.ContainerSpec.Labels, containerLabels, "service", serviceLabels)
}

// admitLabels checks the labels of one place (where); elsewhere are those
// that belong to the other place, to say so.
func admitLabels(where string, labels map[string]string, known map[string]labelCheck, other string, elsewhere map[string]labelCheck) error {
	for _, name := range slices.Sorted(maps.Keys(labels)) { // the same error each time
		if !slices.ContainsFunc(ownPrefixes, func(p string) bool { return strings.HasPrefix(name, p) }) {
			continue
		}
		check, ok := labelNamed(known, name)
		if !ok {
			if _, misplaced := labelNamed(elsewhere, name); misplaced {
				return errInvalid("label %s is a %s label, not a %s label", name, other, where)
			}
			return errInvalid("unknown label %s", name)
		}
		if check == nil {
			return errNotSupported("label %s is not supported yet", name)
		}
		if wrong := check(labels[name]); wrong != "" {
			return errInvalid("label %s %s", name, wrong)
		}
	}
	return nil
}

func labelNamed(known map[string]labelCheck, name string) (labelCheck, bool) {
	if check, ok := known[name]; ok && !strings.HasSuffix(name, ".") {
		return check, true
	}
	for prefix, check := range known {
		if strings.HasSuffix(prefix, ".") && strings.HasPrefix(name, prefix) && name != prefix {
			return check, true
		}
	}
	return nil, false
}
