// SPDX-License-Identifier: BSD-2-Clause

package orchestrator

import (
	"strconv"
	"strings"
	"time"

	"github.com/moby/swarmkit/v2/api"
)

// Labels that the orchestrator writes on tasks (Task.Annotations.Labels). They
// hold what must survive a change of leader and no field of a task can say.
// Times are RFC 3339 with nanoseconds, UTC.
const (
	// LabelCount is how many replacements caused by failure led to this task:
	// in its slot, of its spec version. Absent means 0.
	LabelCount = "satl.restart.count"
	// LabelTimes are the times of the failures behind LabelCount that are
	// younger than the policy's window, as Unix milliseconds, oldest first,
	// comma-separated. It is there only where a window is set.
	LabelTimes = "satl.restart.times"
	// LabelDue is when a task in desired state READY is to start at the
	// earliest: the failure of its predecessor, and the restart delay.
	LabelDue = "satl.restart.due"
	// LabelEnd says why the policy wants no successor of a task that ended:
	// "none" or "complete".
	LabelEnd = "satl.restart.end"
	// LabelExhausted says, on the last task of a slot, that its restart budget
	// is exhausted, in words for people: "3 attempts in 1m".
	LabelExhausted = "satl.restart.exhausted"
	// LabelRollout marks a task that a rollout made, and the restarts of it. It
	// names the rollout by its begin (UpdateStatus.StartedAt) and the spec
	// version that it goes to: "2006-01-02T15:04:05Z/42".
	LabelRollout = "satl.rollout"
	// LabelProven is on a task of a rollout that ran for max(Monitor, Delay),
	// and on the restarts of it: when that was seen.
	LabelProven = "satl.rollout.proven"
	// LabelFailed is on a task that failed as part of a rollout, and on the
	// restarts of it: the rollout's name.
	LabelFailed = "satl.rollout.failed"
	// LabelReason is why a task that did not end counts as failed.
	LabelReason = "satl.rollout.reason"
	// LabelStopped is when a task was told to stop.
	LabelStopped = "satl.stopped"
	// LabelGranted is when an unhealthy task was allowed to be replaced.
	LabelGranted = "satl.replace.granted"
)

// LabelParallelism is the service label that caps how many unhealthy tasks of
// the service are being replaced at a time (cases/budget.md, budget-7).
const LabelParallelism = "satl.health.replace-parallelism"

func label(t *api.Task, key string) string { return t.Annotations.Labels[key] }

func setLabel(t *api.Task, key, value string) {
	if t.Annotations.Labels == nil {
		t.Annotations.Labels = map[string]string{}
	}
	t.Annotations.Labels[key] = value
}

// inherit copies the labels that are there from one task to another.
func inherit(from, to *api.Task, keys ...string) {
	for _, key := range keys {
		if v, ok := from.Annotations.Labels[key]; ok {
			setLabel(to, key, v)
		}
	}
}

func formatTime(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// labelTime is the zero time where the label is absent or no time.
func labelTime(t *api.Task, key string) time.Time {
	at, err := time.Parse(time.RFC3339Nano, label(t, key))
	if err != nil {
		return time.Time{}
	}
	return at
}

func formatTimes(times []time.Time) string {
	var b strings.Builder
	for i, t := range times {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.FormatInt(t.UnixMilli(), 10))
	}
	return b.String()
}

func labelTimes(t *api.Task) []time.Time {
	var out []time.Time
	for field := range strings.SplitSeq(label(t, LabelTimes), ",") {
		if ms, err := strconv.ParseInt(field, 10, 64); err == nil {
			out = append(out, time.UnixMilli(ms).UTC())
		}
	}
	return out
}
