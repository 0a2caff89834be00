// SPDX-License-Identifier: BSD-2-Clause

package healthcheck

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// ExecProbe runs a command inside the container: exit code 0 passes.
type ExecProbe struct {
	runner      Runner
	containerID string
	argv        []string
	setupLimit  time.Duration
}

// NewExecProbe probes a container by running argv in it.
func NewExecProbe(runner Runner, containerID string, argv []string) *ExecProbe {
	return &ExecProbe{runner: runner, containerID: containerID, argv: argv, setupLimit: SetupLimit}
}

// Attempt implements Probe. What cannot be run, and what outlives a limit, is
// exit code -1: the set-up limit until the process runs, the timeout from then
// on. The two are worded apart, because the first says something about this
// node and the second about the workload.
func (p *ExecProbe) Attempt(ctx context.Context, timeout time.Duration) Result {
	start := time.Now()
	kill, cancel := context.WithCancel(ctx)
	defer cancel()
	limit := newLimit(cancel, p.setupLimit, fmt.Sprintf("Health check could not be started within %v", p.setupLimit))
	defer limit.stop()

	var out output
	code, err := p.runner.RunProbe(kill, p.containerID, p.argv, &out, func() {
		// Docker's words (its daemon/health.go).
		limit.move(timeout, fmt.Sprintf("Health check exceeded timeout (%v)", timeout))
	})
	r := Result{Start: start, End: time.Now(), ExitCode: code}
	switch reason := limit.outlived(r.End); {
	case reason != "":
		// Also where it ended well, but too late: late is no pass.
		r.ExitCode, r.Output = -1, reason
		if printed := out.String(); printed != "" {
			r.Output = clip(reason + ": " + printed)
		}
	case err != nil:
		r.ExitCode, r.Output = -1, clip(err.Error())
	default:
		r.Output = out.String()
	}
	return r
}

// limit kills an attempt when its time is over. It is moved once, from set-up
// to run, by which time its timer may be firing already: what counts is the
// time it stands for then.
type limit struct {
	kill  context.CancelFunc
	timer *time.Timer

	mu     sync.Mutex
	at     time.Time
	reason string // what it is to be over
	moved  bool
	hit    bool
}

func newLimit(kill context.CancelFunc, d time.Duration, reason string) *limit {
	l := &limit{kill: kill, at: time.Now().Add(d), reason: reason}
	l.timer = time.AfterFunc(d, l.fire)
	return l
}

func (l *limit) fire() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !time.Now().Before(l.at) {
		l.hit = true
		l.kill()
	}
}

// move replaces the limit, once, unless it was hit already.
func (l *limit) move(d time.Duration, reason string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.hit && !l.moved {
		l.moved, l.at, l.reason = true, time.Now().Add(d), reason
		l.timer.Reset(d)
	}
}

// outlived is the reason of the limit that an attempt which ended at end has
// outlived, "" where it has not.
func (l *limit) outlived(end time.Time) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hit || end.After(l.at) {
		return l.reason
	}
	return ""
}

func (l *limit) stop() { l.timer.Stop() }
