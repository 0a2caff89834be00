// SPDX-License-Identifier: BSD-2-Clause

package apps

import (
	"fmt"
	"slices"
	"time"

	"satld/healthcheck"
)

// Container is a container of this node, as far as a verdict needs it.
type Container struct {
	Labels  map[string]string
	Created time.Time
	Running bool
	Ended   time.Time // zero while it runs and before

	Probed bool // it has a probe, whether or not it was asked yet
	Health healthcheck.Status

	// Of a task of a service; the zero values of any other container.
	Slot     string // which of the service's slots it fills
	Stopping bool   // it was told to stop

	// FileProblem is the rule that its status file fails, "" where it passes.
	// It is that of a container with LabelFile that runs.
	FileProblem string
}

// Declared is what is known of an application beside its containers here.
type Declared int

const (
	Unheard  Declared = iota // nothing
	OptedOut                 // its services do not opt in
	OptedIn                  // its services opt in
)

// Verdict is what is answered of an application. Rule names the rule that
// decided, and quotes nothing of the application's: it is served to anybody.
type Verdict struct {
	Name    string
	Healthy bool
	Rule    string
	Gated   bool      // it opted in; one that did not is always healthy
	Checked time.Time // zero before the first refresh
}

// The rules, in the words of the answer.
const (
	ruleUngated    = "the application did not opt in to be gated by its health"
	ruleHealthy    = "every container with a probe is healthy"
	ruleFile       = "the status file says healthy"
	ruleNone       = "no containers"
	ruleNoProbe    = "no container has a probe"
	ruleNotRunning = "a container with a probe is not running"
	ruleStarting   = "a container with a probe is starting"
	ruleUnhealthy  = "a container with a probe is unhealthy"
	ruleNoFile     = "the container with the status file is not running"
	ruleNotYet     = "not checked yet"
)

// endedFor is how long a task that ended by itself counts against its
// application where no successor of it is here. It is replaced within seconds,
// perhaps on another node; what is left of it here stays for as long as its
// service's history does, and must not hold the application out of traffic.
const endedFor = time.Minute

// Judge gives the verdict on an application from all containers of this node.
//
// Rules: spec/application-health.txt, "Where the verdict comes from". A slot of
// a service counts as one container: where a new task of it starts beside the
// old one that still serves, it is that one.
func Judge(name string, declared Declared, all []Container, now time.Time) Verdict {
	v := Verdict{Name: name, Checked: now}
	var own []Container
	for _, c := range all {
		if slices.Contains(names(c.Labels), name) {
			own = append(own, c)
		}
	}
	counts := current(own, now)
	v.Gated = gated(declared, own, counts)
	if !v.Gated {
		v.Healthy, v.Rule = true, ruleUngated
		return v
	}
	if v.Rule = byFile(counts); v.Rule == "" {
		v.Rule = byProbes(counts)
	}
	v.Healthy = v.Rule == ruleHealthy || v.Rule == ruleFile
	return v
}

// gated tells whether an application opted in, by its services or by a
// container that counts (by any, where none does). One that nobody has heard
// of is, so that it is not taken for healthy.
func gated(declared Declared, own, counts []Container) bool {
	if len(counts) == 0 {
		counts = own
	}
	return declared == OptedIn || declared == Unheard && len(own) == 0 ||
		slices.ContainsFunc(counts, func(c Container) bool { return optsIn(c.Labels) })
}

// byFile judges an application that answers for itself, "" for one that does not.
func byFile(own []Container) (rule string) {
	for _, c := range own {
		switch {
		case c.Labels[LabelFile] == "":
		case !c.Running, c.condemned():
			return ruleNoFile
		case c.FileProblem != "":
			return "status file: " + c.FileProblem
		default:
			rule = ruleFile
		}
	}
	return rule
}

// byProbes judges by the containers with a probe; the worst finding is named.
func byProbes(own []Container) (rule string) {
	if len(own) == 0 {
		return ruleNone
	}
	found := make(map[string]bool)
	for _, c := range own {
		switch {
		case !c.Probed:
		case !c.Running:
			found[ruleNotRunning] = true
		case c.Health == healthcheck.Unhealthy:
			found[ruleUnhealthy] = true
		case c.Health == healthcheck.Starting:
			found[ruleStarting] = true
		default:
			found[ruleHealthy] = true
		}
	}
	for _, rule := range []string{ruleNotRunning, ruleUnhealthy, ruleStarting, ruleHealthy} {
		if found[rule] {
			return rule
		}
	}
	return ruleNoProbe
}

// current are the containers that count now: every one that is no task, and of
// each slot the task that stands for it, if there is one.
func current(own []Container, now time.Time) (out []Container) {
	slots := make(map[string]Container)
	var order []string
	for _, c := range own {
		switch best, seen := slots[c.Slot]; {
		case c.Slot == "":
			out = append(out, c)
		case c.Stopping && !c.condemned(), !c.Running && !c.Ended.IsZero() && now.Sub(c.Ended) > endedFor:
			// On its way out, or history. One that is stopped for its health
			// counts until its successor does.
		case !seen:
			order = append(order, c.Slot)
			slots[c.Slot] = c
		case c.serves() != best.serves() && c.serves(), c.serves() == best.serves() && c.Created.After(best.Created):
			slots[c.Slot] = c
		}
	}
	for _, slot := range order {
		out = append(out, slots[slot])
	}
	return out
}

// serves tells whether a task is as healthy as it can be.
func (c Container) serves() bool {
	return c.Running && (!c.Probed || c.Health == healthcheck.Healthy) && c.FileProblem == ""
}

// condemned tells whether a task is stopped because it is unhealthy.
func (c Container) condemned() bool {
	return c.Stopping && c.Probed && c.Health == healthcheck.Unhealthy
}

// notChecked is the verdict while there is none, or none that is fresh.
func notChecked(name string, age time.Duration) Verdict {
	v := Verdict{Name: name, Gated: true, Rule: ruleNotYet}
	if age > 0 {
		v.Rule = fmt.Sprintf("not checked for %v", age.Round(time.Second))
	}
	return v
}
