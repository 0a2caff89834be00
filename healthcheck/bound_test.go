// SPDX-License-Identifier: BSD-2-Clause

package healthcheck

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
)

// TestBoundsOfProfiles: the bounds of what is not Docker's form; those are
// TestBounds'.
func TestBoundsOfProfiles(t *testing.T) {
	const never = forever
	for _, c := range []struct {
		hc                                       *container.HealthConfig
		labels                                   string
		sustained, worst, replace, stopped, born time.Duration
	}{
		{nil, "http=/ profile=automatic", 50 * sec, 65 * sec, 300 * sec, 320 * sec, 615 * sec},
		{timeoutOf(15 * sec), "http=/ profile=manual", 75 * sec, 95 * sec, 300 * sec, 325 * sec, 625 * sec},
		{timeoutOf(60 * sec), "http=/ profile=manual first=300", 300 * sec, 375 * sec, 300 * sec, 370 * sec, 960 * sec},
		{nil, "http=/ profile=gate", 90 * sec, 255 * sec, 90 * sec, 250 * sec, 181 * sec},
		{timeoutOf(10 * sec), "http=/ replace-after=10", 90 * sec, 165 * sec, 300 * sec, 450 * sec, 5*sec + 9*15*sec + 10*sec},
		{timeoutOf(10 * sec), "http=/ action=unroute", 90 * sec, 165 * sec, never, never, never},
		{timeoutOf(10 * sec), "http=/ action=none", 90 * sec, never, never, never, 0},
		{&container.HealthConfig{Interval: 5 * sec, Timeout: 3 * sec, Retries: 2, StartPeriod: 60 * sec, Test: []string{"CMD", "x"}}, "",
			10 * sec, 39 * sec, 10 * sec, 34 * sec, 60*sec + 8*sec + 8*sec + 3*sec},
	} {
		s := resolved(t, c.hc, c.labels)
		got := fmt.Sprint(Sustained(s), WorstCase(s, grace), SustainedReplace(s), WorstReplace(s, grace), WorstStart(s))
		if want := fmt.Sprint(c.sustained, c.worst, c.replace, c.stopped, c.born); got != want {
			t.Errorf("%q:\n got %s\nwant %s", c.labels, got, want)
		}
	}
}

// TestBoundsHold: what a bound promises is kept in virtual time by the worst
// container there is, one that stops answering just after a pass and has every
// probe wait for its timeout.
func TestBoundsHold(t *testing.T) {
	for _, c := range []struct {
		hc     *container.HealthConfig
		labels string
	}{
		{nil, "http=/ profile=automatic"},
		{timeoutOf(30 * sec), "http=/ profile=manual"},
		{&container.HealthConfig{Interval: 5 * sec, Timeout: 3 * sec, Retries: 2}, "http=/"},
		{&container.HealthConfig{Interval: 5 * sec, Timeout: 30 * sec}, "http=/ unroute-after=2 replace-after=7"},
	} {
		t.Run(c.labels, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				s := resolved(t, c.hc, c.labels)
				first := NextDelay(Health{}, s)
				a := &app{answer: func(at time.Duration) int { return map[bool]int{true: 200, false: hangs0}[at <= first] }}
				n := b.run(c.hc, c.labels, a)
				var unrouted, condemned time.Duration
				for condemned == 0 && time.Since(b.t0) < time.Hour {
					b.pass(sec / 2)
					if unrouted == 0 && n.last.Unrouted {
						unrouted = time.Since(b.t0) - first
					}
					if n.last.Condemned != "" {
						condemned = time.Since(b.t0) - first
					}
				}
				if worst := WorstCase(s, 0); unrouted < Sustained(s) || unrouted > worst {
					t.Errorf("out of traffic %v after its last pass, not from %v to %v", unrouted, Sustained(s), worst)
				}
				if worst := WorstReplace(s, 0); condemned < SustainedReplace(s) || condemned > worst {
					t.Errorf("condemned %v after its last pass, not from %v to %v", condemned, SustainedReplace(s), worst)
				}
			})
			inBubble(t, func(t *testing.T, b *bench) {
				s := resolved(t, c.hc, c.labels)
				n := b.run(c.hc, c.labels, statuses(hangs0))
				for n.last.Condemned == "" && time.Since(b.t0) < time.Hour {
					b.pass(sec / 2)
				}
				if took := time.Since(b.t0); took > WorstStart(s) {
					t.Errorf("a start that never passes is given up after %v, not %v", took, WorstStart(s))
				}
			})
		})
	}
}

// TestFlap: warned before the budget is used up, not when it is, and never for nothing.
func TestFlap(t *testing.T) {
	ago := func(minutes ...int) (at []time.Time) {
		for _, m := range minutes {
			at = append(at, epoch.Add(-time.Duration(m)*time.Minute))
		}
		return at
	}
	for _, c := range []struct {
		name string
		f    Flap
		want string
	}{
		{"nothing", Flap{Max: 3}, ""},
		{"one of three", Flap{Max: 3, Used: 1, Failures: ago(1)}, ""},
		{"two of three", Flap{Max: 3, Used: 2, Failures: ago(1, 3)}, "2 of 3 restart attempts used, 1 left: at this pace used up in 2m0s"},
		{"three of three", Flap{Max: 3, Used: 3, Window: 5 * time.Minute, Failures: ago(1, 2, 3)}, "3 of 3 restart attempts used in 5m0s: it is not replaced when it fails again"},
		{"exhausted", Flap{Max: 3, Used: 4, Failures: ago(0, 1, 2, 3)}, ""},
		{"one of one", Flap{Max: 1, Used: 1}, "1 of 1 restart attempts used: it is not replaced when it fails again"},
		{"the pace is that of the last few", Flap{Max: 10, Used: 6, Failures: ago(4, 0, 1, 2, 3, 900)}, "6 of 10 restart attempts used, 4 left: at this pace used up in 4m0s"},
		{"no limit", Flap{Failures: ago(1, 2, 3, 11)}, "failed 3 times in 10m0s, and no MaxAttempts ends its replacement"},
		{"no limit, and long ago", Flap{Failures: ago(1, 2, 11, 12)}, ""},
		{"two dips", Flap{Dips: ago(1, 2, 11)}, ""},
		{"three dips", Flap{Max: 2, Dips: ago(1, 2, 10)}, "its probe failed and passed again 3 times in 10m0s: a longer failure takes it out of traffic"},
		{"both", Flap{Max: 2, Used: 1, Dips: ago(1, 2, 3)}, "1 of 2 restart attempts used, 1 left; its probe failed and passed again 3 times in 10m0s: a longer failure takes it out of traffic"},
	} {
		if got := c.f.Warning(epoch); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, c.want)
		}
	}
}

// TestDips: a streak that a pass ends is one dip, and the node says so when
// they are many, once.
func TestDips(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		n := 0
		p := answers(func(i int) int { n = i; return map[bool]int{true: 1, false: 0}[i%4 == 2 || i%4 == 3] })
		b.watch("a", Settings{Interval: 5 * sec, Retries: 3}, p)
		b.pass(22 * sec)
		if h := b.health("a"); n != 4 || len(h.Dips) != 1 || h.Dips[0].Sub(b.t0) != 10*sec {
			t.Errorf("after %d probes: %v", n, h.Dips)
		}
		b.pass(5 * time.Minute)
		if h := b.health("a"); len(h.Dips) != MaxDips {
			t.Errorf("%d dips are kept", len(h.Dips))
		}
		if got := strings.Count(b.log.String(), "health wavers"); got != 1 {
			t.Errorf("said %d times:\n%s", got, b.log.String())
		}
		b.pass(6 * time.Minute)
		if got := strings.Count(b.log.String(), "health wavers"); got != 2 {
			t.Errorf("said %d times:\n%s", got, b.log.String())
		}
	})
	// What failed before the first pass is no dip.
	h := Fold(Fold(Health{}, Settings{Retries: 3}, epoch, Result{ExitCode: 1}), Settings{Retries: 3}, epoch, Result{})
	if len(h.Dips) != 0 {
		t.Errorf("%v", h.Dips)
	}
}
