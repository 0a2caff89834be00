// SPDX-License-Identifier: BSD-2-Clause

// Package wire is what satld's own API, /satl/v1, carries: values alone, for
// the daemon that writes them and the client that shows them. Durations are
// nanoseconds and times RFC 3339, as everywhere in the Docker API.
// docs/api.md is its reference.
package wire

import (
	"encoding/json"
	"time"

	"github.com/docker/docker/api/types/swarm"
)

// Service is GET /satl/v1/services/{id}: what of a service Docker's own
// answer has no field for.
type Service struct {
	ID       string
	Name     string
	Version  uint64 // as Version.Index of `service inspect`
	Explain  Explanation
	Budget   Budget
	Update   *swarm.UpdateStatus `json:",omitempty"`
	FailOpen bool                // service label satl.traffic.fail-open
}

// Explanation is what a spec's probe amounts to: POST /satl/v1/health/explain,
// before it is deployed.
type Explanation struct {
	Probe    *Probe   // nil: no probe, and so no bound
	Bounds   *Bounds  // nil without a probe
	Table    []Row    // the same spec with other settings; the first row is the spec itself
	Warnings []string // those of create and update
}

// Probe is the effective settings of a probe.
type Probe struct {
	Kind    string // "exec", "http", "tcp", "file"
	Text    string // "GET /health on port 8080, 200-399 passes"
	Profile string // "docker", "automatic", "manual", "gate"
	Action  string // "replace", "unroute", "none"

	Interval      time.Duration
	Timeout       time.Duration
	StartPeriod   time.Duration
	StartInterval time.Duration // the wait while never yet healthy
	First         time.Duration // from the start of the main process to the first probe
	StartLimit    time.Duration // longest start; 0 is no limit of its own
	UnrouteAfter  int           // failures in a row until it leaves traffic
	ReplaceAfter  int           // failures in a row until it is replaced; 0 is never
	StopGrace     time.Duration
}

// Bounds are how long things take at most, computed from the settings.
type Bounds struct {
	Sustained     time.Duration // failing without a break until it leaves traffic
	OutOfPool     time.Duration // a task that stops answering has left traffic
	OutOfPoolText string        // "3 x (5 + 3) + 10 + 5 = 39 s"
	Replaced      time.Duration // and has ended, for its successor to start; 0 is never
	ReplacedText  string
	FirstPass     time.Duration // a task that is ready at once may get traffic
	StartFailed   time.Duration // a task that never passes is given up
	Drain         time.Duration // wait between withdrawal and stop
}

// Row is one row of the trade-off table of spec/healthchecks.txt.
type Row struct {
	Setting   string // what is different: "as it is", "retries 4", "interval 10s"
	Interval  time.Duration
	Timeout   time.Duration
	Retries   int
	Sustained time.Duration
	OutOfPool time.Duration
	Text      string
}

// Budget is what is left of a service's restarts.
type Budget struct {
	Condition   string        // "any", "on-failure", "none"
	MaxAttempts uint64        // 0 is no limit
	Window      time.Duration // 0 counts all of the spec's version
	Delay       time.Duration
	Exhausted   bool
	Text        string // "restart budget exhausted (5/5) in slot 1"
	Slots       []SlotBudget
}

// SlotBudget is the budget of one slot, or of one node of a global service.
type SlotBudget struct {
	Slot      uint64 `json:",omitempty"`
	NodeID    string `json:",omitempty"`
	Used      uint64
	Exhausted bool
}

// Health is GET /satl/v1/services/{id}/health: the live table.
type Health struct {
	ID          string
	Name        string
	Desired     uint64 // tasks that are to run
	Serving     uint64 // tasks that may be sent traffic now
	FailOpen    bool   // the service asks for it
	FailingOpen bool   // and nobody passes, so that all that run are sent traffic
	Probed      bool
	Budget      Budget
	Tasks       []TaskHealth
}

// TaskHealth is one task of the live table.
type TaskHealth struct {
	ID           string
	Name         string // "web.1"
	Slot         uint64 `json:",omitempty"`
	NodeID       string
	Node         string // host name
	State        string // "running"
	DesiredState string
	Since        time.Time // of State
	Error        string    // why it ended

	Ready    bool   // no operator's word is against it
	Serving  bool   // may be sent traffic now
	FailOpen bool   // and is so only because no task of the service passes
	Why      string // why it does not serve, or would not; "" when it passes

	// Verdict is "starting", "healthy" or "unhealthy"; "none" without a probe,
	// "unknown" where only another node could say, and "unknown (gating off)"
	// where this node does not ask others (node_health.enabled = false).
	Verdict       string
	FailingStreak int
	UnrouteAfter  int
	ReplaceAfter  int
	Flapping      string      // a warning before its restart budget is used up, "" without one
	Dips          []time.Time `json:",omitempty"` // begins of the last streaks of failures that a pass ended
	NextProbe     *time.Time  // nil while one runs and where there is none
	Log           []Result    // the last results, oldest first
}

// Result is the outcome of one probe.
type Result struct {
	Start    time.Time
	End      time.Time
	ExitCode int
	Output   string
}

// Versions is GET /satl/v1/services/{id}/versions.
type Versions struct {
	ID       string
	Name     string
	Versions []Version // newest first
}

// Version is one version of a service's spec that is still known: the current
// one, the one before it, those that tasks are left of, and those that failed.
type Version struct {
	Version uint64 // as Version.Index of `service inspect` showed it
	Image   string
	State   string              // "current", "previous", "earlier"
	Failed  bool                // tasks of its rollout failed, and left reports
	Running uint64              // tasks of it that run now
	Update  *swarm.UpdateStatus `json:",omitempty"` // of the current one
	Reports []Report            // in the order of their arrival
}

// Report is why one task of a rollout failed.
type Report struct {
	TaskID string
	Slot   uint64
	NodeID string
	Node   string
	At     time.Time
	Record json.RawMessage // docs/api.md, "The record of a failed deploy"
}

// App is one application of GET /satl/v1/apps, and GET /satl/v1/apps/{name}/health.
type App struct {
	Name    string
	Healthy bool
	Rule    string    // what decided, in words that quote nothing of the app's
	Gated   bool      // it opted in; one that did not is always healthy
	Checked time.Time // zero before the first refresh
}
