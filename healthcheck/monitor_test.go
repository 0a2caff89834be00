// SPDX-License-Identifier: BSD-2-Clause

package healthcheck

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestFirstProbe: one wait after the start, never at 0, never one interval
// late (verdict-1).
func TestFirstProbe(t *testing.T) {
	for _, c := range []struct {
		name    string
		s       Settings
		healthy string
	}{
		{"a", Settings{Interval: 30 * sec, StartInterval: 5 * sec, Retries: 3}, "5s"},
		{"b", Settings{Interval: 30 * sec, StartInterval: sec, Retries: 3}, "2s"},
		{"c", Settings{Interval: time.Hour, StartPeriod: 60 * sec, StartInterval: sec, Retries: 3}, "2s"},
		{"unset is 5 s", Settings{Interval: 30 * sec, Retries: 3}, "5s"},
		{"a shorter interval", Settings{Interval: 2 * sec, Retries: 3}, "2s"},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				p := answers(func(int) int { // the app is ready at 2 s
					if time.Since(b.t0) < 2*sec {
						return 1
					}
					return 0
				})
				b.watch("a", c.s, p)
				if h := b.health("a"); h.Status != Starting || h.Log == nil || h.NextProbe.Sub(b.t0) != c.s.StartInterval && c.s.StartInterval > 0 {
					t.Errorf("at once: %+v", h)
				}
				b.pass(10 * sec)
				b.heard(c.healthy + " a: starting -> healthy")
				if want := b.of("a", c.s, p).Settings.StartInterval.Seconds(); p.times(b.t0)[0] != want {
					t.Errorf("first probe at %v, want %v", p.times(b.t0)[0], want)
				}
			})
		})
	}
}

// TestPace: fast until the first pass, then the interval, from the end of the
// last probe.
func TestPace(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		p := &probe{do: func(_ context.Context, n int) int {
			time.Sleep(2 * sec)
			if n < 3 {
				return 1
			}
			return 0
		}}
		b.watch("a", Settings{Interval: 30 * sec, Retries: 9}, p)
		b.pass(90 * sec)
		if got, want := p.times(b.t0), []float64{5, 12, 19, 51, 83}; !slices.Equal(got, want) {
			t.Errorf("probes at %v, want %v", got, want)
		}
		if next := b.health("a").NextProbe.Sub(b.t0); next != 115*sec {
			t.Errorf("next at %v", next)
		}
	})
}

// TestGrace: verdict-2 and verdict-3.
func TestGrace(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		p := answers(func(n int) int {
			if n == 1 || n > 2 {
				return 1
			}
			return 0
		})
		b.watch("a", Settings{Interval: 5 * sec, StartInterval: sec, StartPeriod: 300 * sec, Retries: 3}, p)
		b.pass(1500 * time.Millisecond)
		if h := b.health("a"); h.FailingStreak != 0 || h.Status != Starting || len(h.Log) != 1 {
			t.Errorf("inside grace: %+v", h)
		}
		b.pass(30 * sec)
		b.heard("2s a: starting -> healthy", "17s a: healthy -> unhealthy")
	})
	t.Run("from the main process's start", func(t *testing.T) {
		inBubble(t, func(t *testing.T, b *bench) {
			b.pass(40 * sec) // the pull
			b.watch("a", Settings{Interval: 5 * sec, StartPeriod: 30 * sec, Retries: 1}, answers(func(int) int {
				if time.Since(b.t0) < 50*sec {
					return 1
				}
				return 0
			}))
			b.pass(30 * sec)
			b.heard("50s a: starting -> healthy")
		})
	})
}

// TestTimeoutsCount: verdict-4, through ExecProbe.
func TestTimeoutsCount(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		s := Settings{Interval: 10 * sec, StartInterval: 10 * sec, Timeout: 2 * sec, Retries: 3}
		b.watch("a", s, NewExecProbe(process(0, 4*sec, "", 0), "a", nil))
		b.pass(40 * sec)
		b.heard("36.3s a: starting -> unhealthy")
		h := b.health("a")
		if h.FailingStreak != 3 || h.Log[2].ExitCode != -1 || h.Log[2].Output != "Health check exceeded timeout (2s)" {
			t.Errorf("%+v", h)
		}
		b.pass(20 * sec) // an unhealthy one goes on being probed
		if h := b.health("a"); h.FailingStreak < 4 {
			t.Errorf("not probed any more: %+v", h)
		}
		for _, want := range []string{"task_id=task-a", "level=WARN", "to=unhealthy", "failing_streak=3", "exceeded timeout"} {
			if strings.Count(b.log.String(), "health changed") != 1 || !strings.Contains(b.log.String(), want) {
				t.Errorf("the log lacks %s:\n%s", want, b.log.String())
			}
		}
		if n := b.count("satl_health_verdicts_total", "unhealthy"); n != 1 {
			t.Errorf("counted %v verdicts", n)
		}
		if n := b.count("satl_health_probes_total", "error"); n < 4 {
			t.Errorf("counted %v probes", n)
		}
	})
}

// TestAnew: verdict-5. A container that is watched anew is starting at once,
// and what its earlier incarnation had in flight changes nothing.
func TestAnew(t *testing.T) {
	for _, removed := range []bool{true, false} {
		t.Run(fmt.Sprintf("removed %v", removed), func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				// Unhealthy, with a fourth probe in flight that ends only 3 s after it is killed.
				old := &probe{do: func(ctx context.Context, n int) int {
					if n == 4 {
						<-ctx.Done()
						time.Sleep(3 * sec)
						return 0
					}
					return 1
				}}
				b.watch("a", Settings{Interval: sec, Retries: 3}, old)
				b.pass(4500 * time.Millisecond)
				b.heard("3s a: starting -> unhealthy")
				if removed {
					ctx, cancel := context.WithTimeout(t.Context(), sec)
					defer cancel()
					if err := b.Remove(ctx, "a"); !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("removed before its probe ended: %v", err)
					}
					if _, ok := b.Get("a"); ok {
						t.Error("still there")
					}
				}
				again := answers(func(int) int {
					if old.live() > 0 {
						t.Error("probed while the old probe runs")
					}
					return 1
				})
				b.watch("a", Settings{Interval: sec, Retries: 9}, again)
				if h := b.health("a"); h.Status != Starting || h.FailingStreak != 0 || len(h.Log) != 0 {
					t.Errorf("anew: %+v", h)
				}
				b.pass(10 * sec)
				b.heard("3s a: starting -> unhealthy")
				if h := b.health("a"); h.Status != Starting || again.count() < 5 {
					t.Errorf("later: %+v after %d probes", h, again.count())
				}
			})
		})
	}
}

// TestAdopted: verdict-6.
func TestAdopted(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		started := b.t0
		b.pass(20 * sec)
		adopt := func(id string, s Settings, p Probe) {
			w := b.of(id, s, p)
			w.Adopted, w.Started = true, started
			b.Watch(w)
			if h := b.health(id); h.Status != Starting || h.FailingStreak != 0 || h.NextProbe.Sub(b.t0) > 25*sec || h.NextProbe.Sub(b.t0) <= 20*sec {
				t.Errorf("%s at once: %+v", id, h)
			}
		}
		s := Settings{Interval: 10 * sec, Retries: 3}
		a := always(1) // was healthy: leaves only after 3 new failures in a row
		adopt("a", s, a)
		c := answers(func(int) int { // starting: keeps its remaining 40 s
			if time.Since(b.t0) < 59*sec {
				return 1
			}
			return 0
		})
		adopt("c", Settings{Interval: 10 * sec, StartPeriod: 60 * sec, Retries: 1}, c)
		b.pass(60 * sec)
		if len(b.said) != 2 || !strings.Contains(b.said[0], "a: starting -> unhealthy") || !strings.Contains(b.said[1], "c: starting -> healthy") {
			t.Errorf("%q", b.said)
		}
		if at := a.times(b.t0)[2]; at < 30 || at > 35 {
			t.Errorf("the third failure came at %v", at)
		}
	})
}

// TestRemove: an attempt in flight is killed, Remove waits for its end, and
// nothing is heard of it afterwards.
func TestRemove(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		p := &probe{do: func(ctx context.Context, _ int) int { <-ctx.Done(); time.Sleep(sec); return 1 }}
		b.watch("a", Settings{Interval: sec, Retries: 1}, p)
		b.pass(1500 * time.Millisecond)
		if h := b.health("a"); !h.NextProbe.IsZero() || p.live() != 1 {
			t.Errorf("in flight: %+v", h)
		}
		begun := time.Now()
		if err := b.Remove(t.Context(), "a"); err != nil || time.Since(begun) != sec || p.live() != 0 {
			t.Errorf("%v after %v, %d live", err, time.Since(begun), p.live())
		}
		if err := b.Remove(t.Context(), "a"); err != nil {
			t.Errorf("again: %v", err)
		}
		b.pass(time.Minute)
		b.heard()
		if p.count() != 1 {
			t.Errorf("%d probes", p.count())
		}
	})
}

// TestPause: probe-12.
func TestPause(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		p := &probe{do: func(ctx context.Context, n int) int {
			if n == 4 && !sleep(ctx, time.Minute) {
				return -1
			}
			if n == 2 {
				return 1
			}
			return n % 3 // 1 at once makes it: fail, fail, pass, then the one in flight
		}}
		b.watch("a", Settings{Interval: sec, Retries: 3}, p)
		b.pass(4500 * time.Millisecond)
		before := b.health("a")
		if p.live() != 1 || before.Status != Healthy {
			t.Fatalf("not as meant: %+v", before)
		}
		b.Pause("a")
		if p.live() != 0 {
			t.Error("paused while its probe runs")
		}
		b.pass(10 * sec)
		h := b.health("a")
		if p.count() != 4 || h.Status != before.Status || h.FailingStreak != before.FailingStreak || len(h.Log) != 3 || !h.NextProbe.IsZero() {
			t.Errorf("paused: %d probes, %+v", p.count(), h)
		}
		b.Pause("a") // twice is once
		b.Resume("a")
		b.Resume("a")
		synctest.Wait()
		if next := b.health("a").NextProbe; time.Until(next) > sec || next.IsZero() {
			t.Errorf("next probe in %v", time.Until(next))
		}
		b.pass(1500 * time.Millisecond)
		if p.count() != 5 {
			t.Errorf("%d probes after Resume", p.count())
		}
		b.Pause("nobody")
		b.Resume("nobody")
	})
}

// TestEnd: the daemon's end kills what is in flight, judges nothing by it, and
// is not held up for ever.
func TestEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMonitor(Options{})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- m.Run(ctx) }()
		p := hangs()
		w := Watch{ID: "a", Probe: p, Settings: Settings{Interval: sec, StartInterval: sec, Timeout: time.Minute, Retries: 1},
			Changed: func(tr Transition) { t.Errorf("told of %v", tr.To) }}
		m.Watch(w)
		time.Sleep(1500 * time.Millisecond)
		stop()
		if err := <-done; err != nil || p.live() != 0 {
			t.Errorf("%v, %d live", err, p.live())
		}
		if err := m.Remove(t.Context(), "a"); err != nil {
			t.Errorf("remove after the end: %v", err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		m := NewMonitor(Options{})
		end := make(chan struct{})
		m.Watch(Watch{ID: "a", Probe: &probe{do: func(context.Context, int) int { <-end; return 0 }},
			Settings: Settings{Interval: sec, StartInterval: sec, Timeout: time.Minute, Retries: 1}})
		ctx, cancel := context.WithTimeout(t.Context(), 2*sec)
		defer cancel()
		if err := m.Run(ctx); err == nil {
			t.Error("ended cleanly with a probe that cannot be killed")
		}
		if m.Remove(t.Context(), "a") == nil {
			t.Error("removed while its probe still runs")
		}
		close(end)
	})
}

// TestBeforeRun: what is adopted before the loop runs is known at once, and
// nobody waits for a loop that does not run yet.
func TestBeforeRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMonitor(Options{})
		s := Settings{Interval: sec, StartInterval: sec, Retries: 1}
		probes := map[string]*probe{}
		for _, id := range []string{"kept", "paused", "removed"} {
			probes[id] = always(0)
			m.Watch(Watch{ID: id, Settings: s, Probe: probes[id]})
			if h, ok := m.Get(id); !ok || h.Status != Starting || h.NextProbe.IsZero() {
				t.Errorf("%s: %+v %v", id, h, ok)
			}
		}
		begun := time.Now()
		m.Pause("paused")
		if err := m.Remove(t.Context(), "removed"); err != nil || time.Since(begun) != 0 {
			t.Errorf("%v, after %v", err, time.Since(begun))
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5500*time.Millisecond)
		defer cancel()
		if err := m.Run(ctx); err != nil {
			t.Error(err)
		}
		if k, p, r := probes["kept"].count(), probes["paused"].count(), probes["removed"].count(); k != 5 || p != 0 || r != 0 {
			t.Errorf("probes: %d kept, %d paused, %d removed", k, p, r)
		}
	})
}
