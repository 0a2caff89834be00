// SPDX-License-Identifier: BSD-2-Clause

package healthcheck

import (
	"fmt"
	"strings"
)

// Withdrawn begins the Status.Err of a RUNNING task that is sent no traffic. What
// follows is the reason, which begins with Unhealthy's word if it is its health.
const Withdrawn = "withdrawn: "

// Restarted ends the Status.Err of a task that ended with its machine. That is
// no failure of the task's own.
const Restarted = "the machine was started anew"

// String is the health as the STATUS column of `docker ps` words it:
// "health: starting", "healthy" or "unhealthy".
func (h Health) String() string {
	if h.Status == Starting {
		return "health: starting"
	}
	return h.Status.String()
}

// Progress says in words how a task that has not passed yet is doing, for the
// message of a STARTING task: "starting (health: 1/3 probes failed)".
func (h Health) Progress(retries int) string {
	switch {
	case h.Status != Starting:
		return h.Status.String()
	case len(h.Log) == 0:
		return "starting (health: not probed yet)"
	case !h.StartBound.IsZero():
		return fmt.Sprintf("starting (health: not passed yet, last %s)", h.Evidence.ProbeSequence[len(h.Evidence.ProbeSequence)-1].Result)
	case h.FailingStreak == 0:
		return "starting (health: failures not counted, inside the start period)"
	}
	return fmt.Sprintf("starting (health: %d/%d probes failed)", h.FailingStreak, retries)
}

// Reason says on one line of ASCII why the container was found unhealthy, for
// Status.Err: the failed count, the last exit code, and the first ReasonOutput
// bytes of what the last probe printed. It is Health.Condemned where that is set.
//
//	unhealthy: 3/3 probes failed, last exit code 1: connection refused
func (t Transition) Reason() string {
	if t.Health.Condemned != "" {
		return t.Health.Condemned
	}
	return fmt.Sprintf("%v: %d/%d probes failed, %s", t.To, t.Streak, t.Retries, t.Last.words())
}

// excerpt is the head of a probe's output as one line of ASCII.
func excerpt(output string) string {
	line := plain(strings.TrimSpace(output))
	return strings.TrimSpace(line[:min(len(line), ReasonOutput)])
}

// plain is a text as one line of ASCII: what cannot be printed is a space,
// what is not ASCII a question mark.
func plain(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r < ' ' || r == 0x7f:
			return ' '
		case r > 0x7f:
			return '?'
		}
		return r
	}, text)
}
