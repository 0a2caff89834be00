// SPDX-License-Identifier: BSD-2-Clause

package executor

import (
	"fmt"
	"strconv"
	"time"
)

// Service labels that a node acts on. The API admits their values.
const (
	labelFailOpen    = "satl.traffic.fail-open"
	labelDrain       = "satl.traffic.drain"
	labelNotReady    = "satl.dns.not-ready"
	labelParallelism = "satl.health.replace-parallelism"
)

// labelJail heads the container labels that are parameters of its jail.
const labelJail = "satl.jail."

// labelReady on a task or a node is an operator's word: "false" takes it out
// of traffic, anything else and its absence let it in.
const labelReady = "satl.ready"

// What the orchestrator writes on a task, as far as a node reads it (package
// orchestrator, labels.go).
const (
	labelRollout  = "satl.rollout"        // a rollout made it
	labelProven   = "satl.rollout.proven" // and has seen it run for long enough
	labelRestarts = "satl.restart.count"  // failures in its slot that led to it
)

// takeTaskLabels reads what the cluster says of a task beside its spec.
func (r *Record) takeTaskLabels(labels map[string]string) {
	r.Unready = labels[labelReady] == "false"
	r.InRollout = labels[labelRollout] != "" && labels[labelProven] == ""
	if n, err := strconv.Atoi(labels[labelRestarts]); err == nil {
		r.Restarts = n
	}
}

// PublishedDrain is the drain of a task that publishes a port, where its
// service asks for none. A client's connection is decided by its first packet,
// and is one that the server can accept only a round trip later: a server that
// closes its listener meanwhile would refuse what was sent to it in good faith.
const PublishedDrain = 500 * time.Millisecond

// takeServiceLabels reads what a service asks of the node for its tasks.
func (r *Record) takeServiceLabels(labels map[string]string) error {
	drain := time.Duration(0)
	if len(r.Ports) > 0 {
		drain = PublishedDrain
	}
	if v := labels[labelDrain]; v != "" {
		var err error
		if drain, err = time.ParseDuration(v); err != nil || drain < 0 {
			return fmt.Errorf("service label %s=%q is not a duration of 0 or more", labelDrain, v)
		}
	}
	r.Drain = drain
	r.FailOpen = labels[labelFailOpen] == "true"
	r.NotReady = labels[labelNotReady] == "true"
	r.InTurn = labels[labelParallelism] != ""
	return nil
}
