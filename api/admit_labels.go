// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/docker/docker/api/types/swarm"

	"satld/apps"
	"satld/healthcheck"
	"satld/jail"
	"satld/platform"
)

// maxDrain is the longest wait between withdrawal and stop: more is a mistake
// of units, and a rollout that seems to hang.
const maxDrain = time.Hour

// jailPrefix begins the container labels that are parameters of a jail.
const jailPrefix = "satl.jail."

// ownPrefixes begin our labels; what begins with one and is not known is a
// mistake.
var ownPrefixes = []string{healthcheck.LabelPrefix, apps.LabelPrefix, "satl.traffic.", "satl.dns.", jailPrefix}

// serviceLabels are those of services, each with what says what is wrong with
// a value ("must be ..."), "" when nothing is. Those of containers are
// healthcheck's and jail's to judge.
var serviceLabels = map[string]func(value string) string{
	"satl.dns.not-ready":              checkBoolean,
	"satl.traffic.fail-open":          checkBoolean,
	"satl.traffic.drain":              checkDrain,
	"satl.health.replace-parallelism": checkParallelism,
}

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

// admitServiceLabels checks the labels of the service and the names of those
// of its containers, whose values are checked with what they are about.
func admitServiceLabels(spec *swarm.ServiceSpec) error {
	for _, name := range ownLabels(spec.Labels) {
		if strings.HasPrefix(name, apps.LabelPrefix) {
			if err := admitAppLabel(name, spec.Labels[name]); err != nil {
				return err
			}
			continue
		}
		check, ok := serviceLabels[name]
		switch {
		case !ok && isContainerLabel(name):
			return errInvalid("label %s is a container label, not a service label", name)
		case !ok:
			return errInvalid("unknown label %s", name)
		}
		if wrong := check(spec.Labels[name]); wrong != "" {
			return errInvalid("label %s %s", name, wrong)
		}
	}
	for _, name := range ownLabels(spec.TaskTemplate.ContainerSpec.Labels) {
		if strings.HasPrefix(name, apps.LabelPrefix) {
			if err := admitAppLabel(name, spec.TaskTemplate.ContainerSpec.Labels[name]); err != nil {
				return err
			}
			continue
		}
		switch _, ofService := serviceLabels[name]; {
		case ofService:
			return errInvalid("label %s is a service label, not a container label", name)
		case !isContainerLabel(name):
			return errInvalid("unknown label %s", name)
		}
	}
	return admitJail(spec.TaskTemplate.ContainerSpec.Labels, platform.OS)
}

// admitJail checks the labels that are parameters of a jail; system is the one
// that services run on.
func admitJail(labels map[string]string, system string) error {
	params := make(map[string]string)
	for name, value := range labels {
		if param, ok := strings.CutPrefix(name, jailPrefix); ok {
			params[param] = value
		}
	}
	if err := jail.CheckParams(params); err != nil {
		return errInvalid("%v", err)
	}
	if len(params) > 0 && system != "freebsd" {
		return errNotSupported("labels %s* are parameters of FreeBSD jails, and there are none on %s", jailPrefix, system)
	}
	return nil
}

// admitAppLabel checks a label of an application, which may stand on its
// services and on its containers.
func admitAppLabel(name, value string) error {
	if wrong := apps.CheckLabel(name, value); wrong != "" {
		return errInvalid("label %s %s", name, wrong)
	}
	return nil
}

// ownLabels are the names of our labels among others, in order, so that the
// error is the same each time.
func ownLabels(labels map[string]string) []string {
	var names []string
	for name := range labels {
		if slices.ContainsFunc(ownPrefixes, func(p string) bool { return strings.HasPrefix(name, p) }) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// isContainerLabel tells whether a label belongs to containers.
func isContainerLabel(name string) bool {
	return healthcheck.IsLabel(name) || strings.HasPrefix(name, jailPrefix) && name != jailPrefix
}
