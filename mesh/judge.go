// SPDX-License-Identifier: BSD-2-Clause

package mesh

import (
	"maps"
	"time"

	"satld/traffic"
)

// Settings are how a node watches the others: the keys and defaults of
// spec/application-health.txt, "How the gateway uses it".
type Settings struct {
	Enabled     bool          // false: every RUNNING task stays in traffic
	Interval    time.Duration // between questions to a node
	Timeout     time.Duration // of one question
	Concurrency int           // questions at a time
	// FailureThreshold is how many questions in a row must fail before a node's
	// tasks are sent no traffic. What a node says is believed on the spot.
	FailureThreshold int
}

// DefaultSettings are the specification's.
func DefaultSettings() Settings {
	return Settings{Enabled: true, Interval: 5 * time.Second, Timeout: 2 * time.Second, Concurrency: 16, FailureThreshold: 2}
}

// Node is another node of the cluster, as the store has it.
type Node struct {
	ID   string
	Addr string // host:port that it answers at
	Down bool   // it is not asked, and its tasks get no traffic
	// Said is what it said last to whom the view is of; zero where that is the
	// observer itself.
	Said Report
}

// Task is a task of another node, as the store has it. Its member's Serving
// says RUNNING and to go on running.
type Task struct {
	NodeID string
	Member traffic.Member
}

// observation is what this observer knows of a node.
type observation struct {
	report Report // zero before the first
	former string // the Boot of the report of the daemon before
	misses int    // questions in a row without an answer
	asked  time.Time
	// ended are tasks that the node told of before and tells of no more: they
	// have ended, whatever the store says yet. It is never changed in place.
	ended map[string]bool
}

func (o observation) known() bool { return o.report.Boot != "" }

// hear accepts what the node itself said.
func (o observation) hear(r Report) observation {
	o.misses = 0
	return o.take(r, true)
}

// hearsay accepts what somebody else passes on of what the node said. It is no
// sign that the node can be reached from here, and it may be of a daemon that
// was followed by another.
func (o observation) hearsay(r Report) observation {
	if r.Boot == "" || r.Boot == o.former {
		return o
	}
	return o.take(r, r.Boot == o.report.Boot)
}

// take accepts a report, unless it is older than the one there is. newer says
// that it cannot be, so that what is not in it any more has ended.
func (o observation) take(r Report, newer bool) observation {
	if r.Boot == o.report.Boot && r.Seq <= o.report.Seq {
		return o
	}
	if r.Boot != o.report.Boot {
		o.former = o.report.Boot
	}
	ended := make(map[string]bool)
	if newer {
		for id := range o.report.Tasks {
			ended[id] = true
		}
		maps.Copy(ended, o.ended)
		maps.DeleteFunc(ended, func(id string, _ bool) bool { return r.Tasks[id] != "" })
	}
	o.report, o.ended = r, ended
	return o
}

// forget drops of the tasks that have ended those that the store has no more.
func (o observation) forget(there map[string]bool) observation {
	ended := maps.Clone(o.ended)
	maps.DeleteFunc(ended, func(id string, _ bool) bool { return !there[id] })
	o.ended = ended
	return o
}

// Verdict is what an observer makes of a task of another node.
type Verdict string

const (
	Passes   Verdict = "healthy"
	Fails    Verdict = "unhealthy"
	Unknown  Verdict = "unknown"              // not told yet: it stays in traffic
	Ungated  Verdict = "unknown (gating off)" // never asked for: it stays in traffic
	Ended    Verdict = "ended"                // its node says so, and the store not yet
	Silent   Verdict = "node does not answer"
	NodeDown Verdict = "node is down"
)

// judge is the rule for one task of a node.
func judge(s Settings, n Node, o observation, t Task) (m traffic.Member, v Verdict) {
	m = t.Member
	m.Unhealthy = false
	wanted := m.Serving
	switch {
	case n.Down:
		m.Serving, m.Process = false, false
		return m, NodeDown
	case !s.Enabled:
		return m, Ungated
	case o.misses >= s.FailureThreshold:
		m.Serving = false
		return m, Silent
	}
	if o.ended[t.Member.TaskID] {
		m.Serving, m.Process = false, false
		return m, Ended
	}
	state, told := o.report.Tasks[t.Member.TaskID]
	if !o.known() || !told {
		return m, Unknown
	}
	switch state {
	case Serving:
		return m, Passes
	case Unhealthy:
		m.Serving, m.Unhealthy = false, wanted
	default:
		m.Serving = false
	}
	return m, Fails
}
