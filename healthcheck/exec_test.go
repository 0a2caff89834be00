// SPDX-License-Identifier: BSD-2-Clause

package healthcheck

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

var _ Probe = (*ExecProbe)(nil)

// runner is a Runner made of a function.
type runner func(kill context.Context, argv []string, out io.Writer, started func()) (int, error)

func (f runner) RunProbe(kill context.Context, _ string, argv []string, out io.Writer, started func()) (int, error) {
	return f(kill, argv, out, started)
}

// process is a runner whose process runs after setup, prints, and ends with
// code after run, or 100 ms after it is killed.
func process(setup, run time.Duration, print string, code int) runner {
	return func(kill context.Context, _ []string, out io.Writer, started func()) (int, error) {
		if !sleep(kill, setup) {
			return -1, errors.New("runtime: killed while setting up")
		}
		started()
		io.WriteString(out, print)
		if !sleep(kill, run) {
			time.Sleep(100 * time.Millisecond)
			return 137, nil
		}
		return code, nil
	}
}

// sleep sleeps for d and tells whether it was not killed before.
func sleep(kill context.Context, d time.Duration) bool {
	select {
	case <-kill.Done():
		return false
	case <-time.After(d):
		return true
	}
}

func TestExecProbe(t *testing.T) {
	fails := func(err error) runner {
		return func(context.Context, []string, io.Writer, func()) (int, error) { return 0, err }
	}
	stubborn := func(kill context.Context, _ []string, out io.Writer, started func()) (int, error) {
		started()
		<-kill.Done()
		time.Sleep(3 * sec) // its kill takes effect late
		return 0, nil       // and it even claims to have ended well
	}
	for _, c := range []struct {
		name    string
		run     runner
		timeout time.Duration
		code    int
		output  string
		took    time.Duration
	}{
		{"pass", process(0, sec, "ok\n", 0), 2 * sec, 0, "ok\n", sec},
		{"fail", process(0, sec, "no\n", 22), 2 * sec, 22, "no\n", sec},
		{"timeout", process(0, time.Hour, "", 0), 2 * sec, -1, "Health check exceeded timeout (2s)", 2100 * time.Millisecond},
		{"timeout with what was printed so far (probe-1)", process(0, time.Hour, "dialing", 0), 5 * sec, -1, "Health check exceeded timeout (5s): dialing", 5100 * time.Millisecond},
		{"timeout is from the process's start (probe-5)", process(2*sec, sec/2, "ok", 0), sec, 0, "ok", 2500 * time.Millisecond},
		{"timeout after a slow set-up", process(29*sec, time.Hour, "", 0), sec, -1, "Health check exceeded timeout (1s)", 30100 * time.Millisecond},
		{"set-up limit has its own words (probe-5)", process(time.Hour, 0, "", 0), sec, -1, "Health check could not be started within 30s", 30 * sec},
		{"cannot run", fails(errors.New("exec /hc: no such file or directory")), sec, -1, "exec /hc: no such file or directory", 0},
		{"an error's text is bounded", fails(errors.New(strings.Repeat("x", 9999))), sec, -1, strings.Repeat("x", MaxOutput), 0},
		{"a pass after its deadline is none", stubborn, sec, -1, "Health check exceeded timeout (1s)", 4 * sec},
		{"a pass that nothing killed, after its deadline", func(_ context.Context, _ []string, _ io.Writer, started func()) (int, error) {
			started()
			time.Sleep(2 * sec)
			return 0, nil
		}, sec, -1, "Health check exceeded timeout (1s)", 2 * sec},
		{"timed out with a full buffer", process(0, time.Hour, strings.Repeat("y", 9999), 0), sec, -1,
			("Health check exceeded timeout (1s): " + strings.Repeat("y", 9999))[:MaxOutput], 1100 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begun := time.Now()
				r := NewExecProbe(c.run, "id", nil).Attempt(t.Context(), c.timeout)
				if r.ExitCode != c.code || r.Output != c.output {
					t.Errorf("exit code %d, output %.100q; want %d, %.100q", r.ExitCode, r.Output, c.code, c.output)
				}
				if !r.Start.Equal(begun) || r.End.Sub(begun) != c.took {
					t.Errorf("began after %v, took %v; want 0, %v", r.Start.Sub(begun), r.End.Sub(begun), c.took)
				}
			})
		})
	}
}

// TestExecProbeKillIsFirst: the kill comes at the timeout exactly, through a
// context that was live until then (probe-1's fault was one already dead).
func TestExecProbeKillIsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		var killed time.Duration
		probe := NewExecProbe(runner(func(kill context.Context, argv []string, _ io.Writer, started func()) (int, error) {
			if kill.Err() != nil || strings.Join(argv, " ") != "sleep 3600" {
				t.Errorf("kill %v, argv %q", kill.Err(), argv)
			}
			started()
			time.Sleep(sec)
			started() // a second call moves nothing
			<-kill.Done()
			killed = time.Since(begun)
			return 137, nil
		}), "id", []string{"sleep", "3600"})
		probe.Attempt(t.Context(), 5*sec)
		if killed != 5*sec {
			t.Errorf("killed after %v", killed)
		}
	})
}

func TestExecProbeAbandoned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), sec)
		defer cancel()
		begun := time.Now()
		r := NewExecProbe(process(0, time.Hour, "", 0), "id", nil).Attempt(ctx, time.Minute)
		if took := time.Since(begun); took != 1100*time.Millisecond || r.Passed() {
			t.Errorf("took %v, result %+v", took, r)
		}
	})
}

// TestLimitWithALateTimer: on a busy machine the timer may fire after the
// result; what counts is the time.
func TestLimitWithALateTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimit(func() { t.Error("killed") }, sec, "too late")
		l.stop()
		if got := l.outlived(time.Now().Add(sec)); got != "" {
			t.Errorf("in time: %q", got)
		}
		if got := l.outlived(time.Now().Add(sec + 1)); got != "too late" {
			t.Errorf("late: %q", got)
		}
		// A timer that fires for the limit before the move is no hit.
		l.move(sec, "later")
		l.stop()
		l.fire()
		if got := l.outlived(time.Now()); got != "" {
			t.Errorf("moved: %q", got)
		}
	})
}
