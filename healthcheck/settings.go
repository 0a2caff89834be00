// SPDX-License-Identifier: BSD-2-Clause

package healthcheck

import (
	"fmt"
	"strings"
	"time"

	"github.com/docker/docker/api/types/container"
)

// Settings is a probe's effective settings: defaults resolved, nothing zero
// that means something else.
type Settings struct {
	Argv          []string // what to run
	Interval      time.Duration
	Timeout       time.Duration
	Retries       int
	StartPeriod   time.Duration
	StartInterval time.Duration // the wait while never yet healthy
}

// FieldError is a healthcheck that cannot be meant, by the name of the field
// in Docker's API. It is an invalid argument (errdefs; HTTP 400).
type FieldError struct {
	Field   string // "Interval"
	Problem string // "must be 0 or >= 1ms, not -1ns"
}

func (e *FieldError) Error() string {
	return fmt.Sprintf("invalid healthcheck: %s %s", e.Field, e.Problem)
}

// InvalidParameter marks the error for errdefs.IsInvalidArgument.
func (e *FieldError) InvalidParameter() {}

// FromConfig resolves a spec's healthcheck. ok is false where it asks for no
// probe: nil, an empty Test, NONE, Docker's marker [""] for "as the image
// says" (an image's HEALTHCHECK is not inherited here), or an unknown kind.
// warnings are for whoever wrote the spec. err is a *FieldError.
//
// Rules: spec/healthchecks.txt, "Defining one" and "How a probe is judged".
func FromConfig(hc *container.HealthConfig) (s Settings, ok bool, warnings []string, err error) {
	if hc == nil {
		return Settings{}, false, nil, nil
	}
	if err := validate(hc); err != nil {
		return Settings{}, false, nil, err
	}
	argv, warnings, err := command(hc)
	if err != nil || argv == nil {
		return Settings{}, false, warnings, err
	}
	return resolve(hc, argv), true, warnings, nil
}

// HasProbe tells whether the healthcheck asks for a probe that can be run.
func HasProbe(hc *container.HealthConfig) bool {
	_, ok, _, err := FromConfig(hc)
	return ok && err == nil
}

// resolve fills in the defaults of a valid healthcheck.
func resolve(hc *container.HealthConfig, argv []string) Settings {
	s := Settings{
		Argv:          argv,
		Interval:      orDefault(hc.Interval, DefaultInterval),
		Timeout:       orDefault(hc.Timeout, DefaultTimeout),
		Retries:       orDefault(hc.Retries, DefaultRetries),
		StartPeriod:   orDefault(hc.StartPeriod, DefaultStartPeriod),
		StartInterval: hc.StartInterval,
	}
	if s.StartInterval == 0 {
		s.StartInterval = min(s.Interval, MaxStartInterval)
	}
	return s
}

func orDefault[T int | time.Duration](value, unset T) T {
	if value == 0 {
		return unset
	}
	return value
}

// command is the argument vector that Test asks for, nil where there is none.
func command(hc *container.HealthConfig) (argv, warnings []string, err error) {
	if len(hc.Test) == 0 || len(hc.Test) == 1 && hc.Test[0] == "" {
		if max(hc.Interval, hc.Timeout, hc.StartPeriod, hc.StartInterval) > 0 || hc.Retries > 0 {
			warnings = []string{"healthcheck has settings and no Test, and an image's HEALTHCHECK is not inherited: no probe is run"}
		}
		return nil, warnings, nil
	}
	switch kind, args := hc.Test[0], hc.Test[1:]; kind {
	case "NONE":
		return nil, nil, nil
	case "CMD":
		if len(args) == 0 || args[0] == "" {
			return nil, nil, &FieldError{"Test", "names no command after CMD"}
		}
		return args, nil, nil
	case "CMD-SHELL":
		if len(args) == 0 || strings.TrimSpace(args[0]) == "" {
			return nil, nil, &FieldError{"Test", "has an empty command after CMD-SHELL"}
		}
		return append([]string{"/bin/sh", "-c"}, args...), nil, nil
	default:
		return nil, []string{fmt.Sprintf("unknown healthcheck type %+q (expected CMD, CMD-SHELL or NONE): no probe is run", kind)}, nil
	}
}

// validate checks the numbers, whether or not there is a probe to use them,
// as Docker does (cases/verdict.md, verdict-7).
func validate(hc *container.HealthConfig) error {
	for _, d := range []struct {
		field string
		value time.Duration
	}{
		{"Interval", hc.Interval},
		{"Timeout", hc.Timeout},
		{"StartPeriod", hc.StartPeriod},
		{"StartInterval", hc.StartInterval},
	} {
		if d.value != 0 && d.value < MinDuration {
			return &FieldError{d.field, fmt.Sprintf("must be 0 or >= %v, not %s", MinDuration, ascii(d.value))}
		}
	}
	if hc.Retries < 0 {
		return &FieldError{"Retries", fmt.Sprintf("must be 0 or >= 1, not %d", hc.Retries)}
	}
	return nil
}

// ascii is a duration without the micro sign.
func ascii(d time.Duration) string {
	return strings.Replace(d.String(), "\u00b5s", "us", 1)
}
