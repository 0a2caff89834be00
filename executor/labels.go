// SPDX-License-Identifier: BSD-2-Clause

package executor

import (
	"fmt"
	"time"
)

// Service labels that a node acts on. The API admits their values.
const (
	labelFailOpen    = "satl.traffic.fail-open"
	labelDrain       = "satl.traffic.drain"
	labelNotReady    = "satl.dns.not-ready"
	labelParallelism = "satl.health.replace-parallelism"
)

// labelReady on a task or a node is an operator's word: "false" takes it out
// of traffic, anything else and its absence let it in.
const labelReady = "satl.ready"

// takeServiceLabels reads what a service asks of the node for its tasks.
func (r *Record) takeServiceLabels(labels map[string]string) error {
	drain := time.Duration(0)
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
