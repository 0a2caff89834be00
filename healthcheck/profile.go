// SPDX-License-Identifier: BSD-2-Clause

package healthcheck

import (
	"fmt"
	"time"

	"github.com/docker/docker/api/types/container"
)

// The timings of the profiles automatic and manual (spec/replica-health.txt).
const (
	AutomaticFirst    = 10 * time.Second // to the first check, where not set
	AutomaticTimeout  = 5 * time.Second  // where not set
	AutomaticInterval = 10 * time.Second // or the timeout, if that is longer
	// AutomaticUnroute is how many failures in a row end the traffic.
	AutomaticUnroute = 5
	// AutomaticReplace is the time that the failures in a row which have a task
	// replaced cover; they are never fewer than AutomaticUnroute.
	AutomaticReplace = 5 * time.Minute
	// AutomaticStart is how long after its first check a task may take to pass.
	AutomaticStart = 10 * time.Minute

	minTimeout, maxTimeout = time.Second, time.Minute
	maxFirst               = 10 * time.Minute
)

// The gate (spec/deploy-check.txt).
const (
	// GateInterval is the wait from the begin of a probe to the next.
	GateInterval = 3 * time.Second
	// GateBound is how long after the main process's start a task may pass.
	GateBound = 180 * time.Second
	// GateTimeout is how long a response may take to begin; near the bound it
	// is what is left of it, but never less than GateMinTimeout.
	GateTimeout    = 10 * time.Second
	GateMinTimeout = time.Second
	// GateRun is how many equal client errors in a row end it early, if the
	// task itself gave them.
	GateRun = 20
)

// What passes an HTTP probe where the label does not say: a gate's own code
// also once it has been passed, else what spec/replica-health.txt says.
var (
	defaultPass = Codes{{200, 399}}
	gatePass    = Codes{{200, 200}}
)

// settings resolves what the labels and a valid healthcheck ask for. argv is
// that of a Test, where the labels name no probe.
func (l labelled) settings(hc *container.HealthConfig, argv []string) (Settings, error) {
	s := Settings{
		Argv: argv, Profile: l.profile, Kind: l.kind, Action: l.action,
		Path: l.path, Port: l.port, Pass: l.pass, Header: l.header,
	}
	if s.Kind == HTTP && s.Pass == nil {
		if s.Pass = defaultPass; l.profile == Gate {
			s.Pass = gatePass
		}
	}
	switch l.profile {
	case Automatic, Manual, Off:
		err := l.automatic(&s, hc)
		return s, err
	case Gate:
		err := l.gate(&s, hc)
		return s, err
	}
	err := l.docker(&s, hc)
	return s, err
}

// docker is Docker's semantics with what the labels change of it.
func (l labelled) docker(s *Settings, hc *container.HealthConfig) error {
	s.fill(hc)
	if l.first != nil {
		if s.First = *l.first; s.First == 0 {
			return wrong(labelFirst, "must be at least %v in profile %v", MinDuration, l.profile)
		}
	}
	if s.StartLimit = l.startLimit; s.StartLimit != 0 && hc.StartPeriod != 0 {
		return wrong(labelStartLimit, "contradicts StartPeriod: until the limit failures are not counted")
	}
	return l.thresholds(s, hc, 1)
}

// gate is the deploy check until the first pass, Docker's semantics after it.
func (l labelled) gate(s *Settings, hc *container.HealthConfig) error {
	switch {
	case l.action == None:
		return wrong(labelAction, "is none, which contradicts profile gate")
	case l.first != nil:
		return wrong(labelFirst, "contradicts profile gate, which says when it probes")
	case l.startLimit != 0:
		return wrong(labelStartLimit, "contradicts profile gate, which has a bound of %v", GateBound)
	case hc.StartPeriod != 0:
		return wrong("StartPeriod", "contradicts profile gate, which has a bound of %v", GateBound)
	case hc.StartInterval != 0:
		return wrong("StartInterval", "contradicts profile gate, which probes every %v", GateInterval)
	}
	s.fill(hc)
	s.StartInterval = GateInterval
	return l.thresholds(s, hc, 1)
}

// automatic is spec/replica-health.txt, "Health check settings" and "Check
// interval", and what is left of it when it is off.
func (l labelled) automatic(s *Settings, hc *container.HealthConfig) error {
	for _, fixed := range []struct {
		field string
		set   bool
		use   string
	}{
		{"Interval", hc.Interval != 0, fmt.Sprintf("it is %v or the timeout, if that is longer", AutomaticInterval)},
		{"StartInterval", hc.StartInterval != 0, "there is one interval"},
		{"StartPeriod", hc.StartPeriod != 0, "use " + labelStartLimit},
		{"Retries", hc.Retries != 0, "use " + labelUnroute + " and " + labelReplace},
	} {
		if fixed.set {
			return wrong(fixed.field, "cannot be set in profile %v: %s", l.profile, fixed.use)
		}
	}
	s.Timeout = orDefault(hc.Timeout, AutomaticTimeout)
	if s.Timeout < minTimeout || s.Timeout > maxTimeout {
		return wrong("Timeout", "must be %v to %v in profile %v, not %s", minTimeout, maxTimeout, l.profile, ascii(s.Timeout))
	}
	s.First = AutomaticFirst
	if l.first != nil {
		if s.First = *l.first; s.First > maxFirst {
			return wrong(labelFirst, "must be 0s to %v in profile %v, not %s", maxFirst, l.profile, ascii(s.First))
		}
		s.First = max(s.First, AtOnce)
	}
	s.Interval = max(AutomaticInterval, s.Timeout)
	s.StartInterval = s.Interval
	s.FixedRate = true
	s.Retries = AutomaticUnroute
	s.StartLimit = orDefault(l.startLimit, AutomaticStart)
	s.ReplaceAfter = threshold{cover: AutomaticReplace}.count(s.Interval, AutomaticUnroute)
	return l.thresholds(s, hc, AutomaticUnroute)
}

// thresholds applies unroute-after and replace-after; a time of the latter is
// never fewer failures than least.
func (l labelled) thresholds(s *Settings, hc *container.HealthConfig, least int) error {
	if l.unroute != nil {
		if hc.Retries != 0 {
			return wrong(labelUnroute, "says the same as Retries")
		}
		s.Retries = l.unroute.count(s.Interval, 1)
	}
	if l.replace != nil {
		if l.action != Replace {
			return wrong(labelReplace, "contradicts %s=%v", labelAction, l.action)
		}
		s.ReplaceAfter = l.replace.count(s.Interval, least)
	}
	if s.ReplaceAfter != 0 && s.ReplaceAfter < s.Retries {
		field := labelReplace
		if l.replace == nil {
			field = labelUnroute
		}
		return wrong(field, "has it replaced after %d failures in a row and out of traffic only after %d", s.ReplaceAfter, s.Retries)
	}
	if s.ReplaceAfter == s.Retries || s.Action != Replace {
		s.ReplaceAfter = 0
	}
	return nil
}

func wrong(field, problem string, args ...any) error {
	return &FieldError{field, fmt.Sprintf(problem, args...)}
}
