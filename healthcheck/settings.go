// SPDX-License-Identifier: BSD-2-Clause

package healthcheck

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/docker/docker/api/types/container"
)

// Settings is a probe's effective settings: defaults and profile resolved,
// nothing zero that means something else. The zero values of the fields after
// StartInterval are Docker's semantics of a command.
type Settings struct {
	Argv          []string // what to run, of kind Exec
	Interval      time.Duration
	Timeout       time.Duration
	Retries       int // failures in a row until unhealthy, and so out of traffic
	StartPeriod   time.Duration
	StartInterval time.Duration // the wait while never yet healthy

	Profile Profile // the preset they were made from
	Kind    Kind
	Path    string   // the request target of HTTP, or the status file of File
	Port    uint16   // of HTTP and TCP; 0 is the service's first target port: see WithPort
	Pass    Codes    // which status codes of HTTP pass
	Header  []Header // what HTTP sends besides its own, by name

	First        time.Duration // from the main process's start to the first probe; 0 is one wait, AtOnce none
	FixedRate    bool          // waits run from the begin of a probe, not from its end
	ReplaceAfter int           // failures in a row until it is to be replaced; 0 is Retries
	StartLimit   time.Duration // from the first probe: without a pass until then it is to be replaced; 0 is no limit
	Action       Action
}

// AtOnce is the Settings.First of a first probe with no wait before it.
const AtOnce = time.Nanosecond

// GatesRunning tells whether a task is RUNNING only once a probe has passed.
// Without it a task is RUNNING, and served, from its start: what its probes
// say is only shown.
func (s Settings) GatesRunning() bool { return s.Action != None }

// WithPort fills in the port of a probe that names none: first is the first
// target port of the service, 0 where it has none. err is a *FieldError.
func (s Settings) WithPort(first uint16) (Settings, error) {
	if s.Kind != HTTP || s.Port != 0 {
		return s, nil
	}
	if first == 0 {
		return s, &FieldError{labelPort, "is needed: the service publishes no port whose target could be asked"}
	}
	s.Port = first
	return s, nil
}

// Shown is what inspect shows of a healthcheck, which may be nil: the settings
// in effect in place of what was left unset.
func (s Settings) Shown(hc *container.HealthConfig) *container.HealthConfig {
	shown := &container.HealthConfig{
		Interval: s.Interval, Timeout: s.Timeout, Retries: s.Retries,
		StartPeriod: s.StartPeriod, StartInterval: s.StartInterval,
	}
	if hc != nil {
		shown.Test = hc.Test
	}
	return shown
}

// replaceAfter is how many failures in a row condemn.
func (s Settings) replaceAfter() int { return max(s.ReplaceAfter, s.Retries) }

// FieldError is a healthcheck that cannot be meant, by the name of the field
// in Docker's API or of the label. It is an invalid argument (errdefs; HTTP 400).
type FieldError struct {
	Field   string // "Interval", "satl.health.http"
	Problem string // "must be 0 or >= 1ms, not -1ns"
}

func (e *FieldError) Error() string {
	return plain(fmt.Sprintf("invalid healthcheck: %s %s", e.Field, e.Problem))
}

// InvalidParameter marks the error for errdefs.IsInvalidArgument.
func (e *FieldError) InvalidParameter() {}

// FromSpec resolves a spec's healthcheck and its container labels; those that
// do not begin with "satl.health." are none of its business. ok is false where
// they ask for no probe: no satl.health.http, .tcp or .file, and no Healthcheck
// or one whose Test is empty, NONE, Docker's marker [""] for "as the image
// says" (an image's HEALTHCHECK is not inherited here), or of an unknown kind;
// or the profile off. warnings are for whoever wrote the spec. err is a
// *FieldError.
//
// Rules: spec/healthchecks.txt, "Defining one" and "How a probe is judged";
// DESIGN.md section 7.
func FromSpec(hc *container.HealthConfig, labels map[string]string) (s Settings, ok bool, warnings []string, err error) {
	l, err := parseLabels(labels)
	if err != nil {
		return Settings{}, false, nil, err
	}
	if hc == nil {
		hc = &container.HealthConfig{}
	}
	if err := validate(hc); err != nil {
		return Settings{}, false, nil, err
	}
	argv, warnings, err := command(hc)
	if err != nil {
		return Settings{}, false, warnings, err
	}
	switch named := l.kindLabel != ""; {
	case named && argv != nil:
		return Settings{}, false, nil, &FieldError{"Test", fmt.Sprintf("contradicts %s: a task has one probe", l.kindLabel)}
	case named && len(hc.Test) > 0 && hc.Test[0] == "NONE":
		return Settings{}, false, nil, &FieldError{"Test", fmt.Sprintf("is NONE, which contradicts %s", l.kindLabel)}
	case named:
		warnings = nil // they say that there is no probe
	case argv == nil && l.any != "" && l.profile != Off:
		return Settings{}, false, nil, &FieldError{l.any, fmt.Sprintf("needs a probe: a Test, %s, %s or %s", labelHTTP, labelTCP, labelFile)}
	case argv == nil:
		return Settings{}, false, warnings, nil
	}
	if l.profile == Off && l.kind != TCP {
		return Settings{}, false, append(warnings, fmt.Sprintf("%s is off: no probe is run", labelProfile)), nil
	}
	s, err = l.settings(hc, argv)
	if err != nil {
		return Settings{}, false, nil, err
	}
	return s, true, warnings, nil
}

// fill gives the settings the values of a valid healthcheck, defaults filled in.
func (s *Settings) fill(hc *container.HealthConfig) {
	s.Interval = orDefault(hc.Interval, DefaultInterval)
	s.Timeout = orDefault(hc.Timeout, DefaultTimeout)
	s.Retries = orDefault(hc.Retries, DefaultRetries)
	s.StartPeriod = orDefault(hc.StartPeriod, DefaultStartPeriod)
	s.StartInterval = orDefault(hc.StartInterval, min(s.Interval, MaxStartInterval))
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
	switch {
	case hc.Retries < 0:
		return &FieldError{"Retries", fmt.Sprintf("must be 0 or >= 1, not %d", hc.Retries)}
	case hc.Retries > math.MaxInt32: // the store would keep another number
		return &FieldError{"Retries", fmt.Sprintf("must be at most %d, not %d", math.MaxInt32, hc.Retries)}
	}
	return nil
}

// ascii is a duration without the micro sign.
func ascii(d time.Duration) string {
	return strings.Replace(d.String(), "\u00b5s", "us", 1)
}
