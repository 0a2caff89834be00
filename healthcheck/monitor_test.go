// SPDX-License-Identifier: BSD-2-Clause

package healthcheck

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// probe is a Probe made of a function that gets the number of the attempt,
// from 1, and gives an exit code.
type probe struct {
	do func(ctx context.Context, n int) int

	mu    sync.Mutex
	begun []time.Time // of each attempt
	alive int
}

func (p *probe) Attempt(ctx context.Context, timeout time.Duration) Result {
	r := Result{Start: time.Now()}
	p.mu.Lock()
	if p.alive++; p.alive > 1 {
		panic("two probes of one container at a time")
	}
	p.begun = append(p.begun, r.Start)
	n := len(p.begun)
	p.mu.Unlock()
	r.ExitCode = p.do(ctx, n)
	r.End = time.Now()
	p.mu.Lock()
	p.alive--
	p.mu.Unlock()
	return r
}

// live is how many attempts run now.
func (p *probe) live() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.alive
}

// count is how many attempts were made.
func (p *probe) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.begun)
}

func answers(code func(n int) int) *probe {
	return &probe{do: func(_ context.Context, n int) int { return code(n) }}
}

func always(code int) *probe { return answers(func(int) int { return code }) }

// hangs is a probe that ends only when it is abandoned.
func hangs() *probe {
	return &probe{do: func(ctx context.Context, _ int) int { <-ctx.Done(); return -1 }}
}

// times are the attempts' begins, as seconds since t0.
func (p *probe) times(t0 time.Time) (s []float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, at := range p.begun {
		s = append(s, at.Sub(t0).Seconds())
	}
	return s
}

// bench is a monitor in a bubble of virtual time.
type bench struct {
	*Monitor
	t    *testing.T
	t0   time.Time
	log  strings.Builder
	reg  *prometheus.Registry
	said []string // changes of verdict: "5s a: starting -> healthy"
}

func inBubble(t *testing.T, test func(t *testing.T, b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bench{t: t, t0: time.Now(), reg: prometheus.NewRegistry()}
		b.Monitor = NewMonitor(Options{Logger: slog.New(slog.NewTextHandler(&b.log, nil)), Registerer: b.reg})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- b.Run(ctx) }()
		defer func() {
			stop()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}()
		test(t, b)
	})
}

// watch watches a container that starts now.
func (b *bench) watch(id string, s Settings, p Probe) {
	b.Watch(b.of(id, s, p))
}

func (b *bench) of(id string, s Settings, p Probe) Watch {
	s.Argv = []string{"true"}
	if s.StartInterval == 0 {
		s.StartInterval = min(s.Interval, MaxStartInterval)
	}
	if s.Timeout == 0 {
		s.Timeout = 30 * sec
	}
	return Watch{ID: id, TaskID: "task-" + id, Started: time.Now(), Settings: s, Probe: p, Changed: func(t Transition) {
		if h, ok := b.Get(t.ID); !ok || h.Status != t.To {
			b.t.Errorf("told of %v while readers see %v", t.To, h.Status)
		}
		b.said = append(b.said, fmt.Sprintf("%v %s: %v -> %v", time.Since(b.t0), t.ID, t.From, t.To))
	}}
}

// pass lets virtual time pass.
func (b *bench) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// health fails the test where the container is not watched.
func (b *bench) health(id string) Health {
	b.t.Helper()
	h, ok := b.Get(id)
	if !ok {
		b.t.Fatalf("%s is not watched", id)
	}
	return h
}

// count is the value of a counter with that label value.
func (b *bench) count(name, label string) float64 {
	b.t.Helper()
	families, err := b.reg.Gather()
	if err != nil {
		b.t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && m.GetLabel()[0].GetValue() == label {
				return m.GetCounter().GetValue()
			}
		}
	}
	return 0
}

func (b *bench) heard(want ...string) {
	b.t.Helper()
	if !slices.Equal(b.said, want) {
		b.t.Errorf("changes:\n got %q\nwant %q", b.said, want)
	}
}

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

// TestStorm: probe-6. After a restart of the daemon, with 100 tasks.
func TestStorm(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.pass(sec)
		var mu sync.Mutex
		seconds := map[int]int{}
		for i := range 100 {
			p := answers(func(n int) int {
				mu.Lock()
				defer mu.Unlock()
				if n == 1 {
					seconds[int(time.Since(b.t0)-1)/int(sec)]++ // a probe on the second belongs to the one before
				}
				return 0
			})
			w := b.of(fmt.Sprint("c", i), Settings{Interval: 10 * sec, Retries: 3}, p)
			w.Adopted = true
			b.Watch(w)
		}
		b.pass(6 * sec)
		total := 0
		for second, n := range seconds {
			if total += n; n > 20 {
				t.Errorf("%d first probes in second %d", n, second)
			}
		}
		if total != 100 {
			t.Errorf("%d of 100 probed within one wait", total)
		}
	})
}

// TestSlots: probe-6. A hundred probes due at once: no more than the cap at a
// time, the longest waiting first, missed ticks skipped, nobody failed.
func TestSlots(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		var mu sync.Mutex
		live, most := 0, 0
		var order []int
		for i := range 100 {
			b.pass(time.Millisecond) // due one after the other
			p := &probe{do: func(_ context.Context, n int) int {
				mu.Lock()
				if n == 1 {
					order = append(order, i)
				}
				live++
				most = max(most, live)
				mu.Unlock()
				time.Sleep(3 * sec)
				mu.Lock()
				live--
				mu.Unlock()
				return 0
			}}
			b.watch(fmt.Sprint("c", i), Settings{Interval: sec, Timeout: 5 * sec, Retries: 1}, p)
		}
		b.pass(40 * sec)
		if most != DefaultSlots {
			t.Errorf("%d at a time, want %d", most, DefaultSlots)
		}
		if !slices.IsSorted(order) || len(order) != 100 {
			t.Errorf("order %v", order)
		}
		for id, h := range b.All() {
			// 13 rounds of 3 s for all: about one probe each, none queued twice.
			if h.Status != Healthy || len(h.Log) > 2 {
				t.Errorf("%s: %v, %d probes", id, h.Status, len(h.Log))
			}
		}
	})
}

// TestLanes: each kind of probe comes in its own time, whichever waits longer.
func TestLanes(t *testing.T) {
	for _, soon := range []Kind{Exec, TCP} {
		inBubble(t, func(t *testing.T, b *bench) {
			now, later := always(0), always(0)
			b.watch("now", Settings{Kind: soon, Interval: 2 * sec, Retries: 1}, now)
			b.watch("later", Settings{Kind: Exec + TCP - soon, Interval: time.Hour, StartInterval: time.Hour, Retries: 1}, later)
			b.pass(7 * sec)
			if got := now.times(b.t0); !slices.Equal(got, []float64{2, 4, 6}) || later.count() != 0 {
				t.Errorf("%v is probed at %v, the other %d times", soon, got, later.count())
			}
			if all := b.All(); len(all) != 2 || all["now"].Status != Healthy || all["later"].Status != Starting {
				t.Errorf("all: %+v", all)
			}
		})
	}
}

// TestSlowRuntime: probe-5. 51 containers whose execs take longer to set
// up than the timeout, for five minutes: no timeout, no transition but the first.
func TestSlowRuntime(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		for i := range 51 {
			id := fmt.Sprint("c", i)
			b.watch(id, Settings{Interval: sec, Timeout: 5 * sec, Retries: 1}, NewExecProbe(process(6*sec, 0, "", 0), id, nil))
		}
		b.pass(300 * sec)
		if len(b.said) != 51 {
			t.Errorf("%d changes: %q", len(b.said), b.said)
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

// TestStuck: what cannot be killed holds up neither the verdict of its
// container nor the probes of others.
func TestStuck(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		end := make(chan struct{})
		stuck := func() *probe {
			return &probe{do: func(context.Context, int) int { <-end; return 0 }}
		}
		s := Settings{Interval: 5 * sec, Timeout: 3 * sec, Retries: 2}
		for i := range DefaultSlots {
			b.watch(fmt.Sprint("s", i), s, stuck())
		}
		b.pass(sec)
		other := always(0)
		b.watch("other", s, other)
		b.pass(60 * sec) // set-up limit, timeout, kill limit after 5 s; then the pace of probes that hang
		if n := len(b.said); n != DefaultSlots+1 {
			t.Errorf("%d changes: %q", n, b.said)
		}
		if other.count() < 2 {
			t.Errorf("the other was probed %d times", other.count())
		}
		h := b.health("s0")
		if h.Status != Unhealthy || h.FailingStreak != 2 || !strings.Contains(h.Log[1].Output, "cannot be killed") || h.Log[0].End.Sub(b.t0) != 48*sec {
			t.Errorf("%+v", h)
		}
		// A removed one that is stuck is waited for no longer than asked.
		ctx, cancel := context.WithTimeout(t.Context(), sec)
		defer cancel()
		if err := b.Remove(ctx, "s1"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("removed: %v", err)
		}
		close(end) // it ends at last: that result was judged already, the next is not
		b.pass(4 * sec)
		if h := b.health("s0"); h.Status != Unhealthy || len(h.Log) != 2 {
			t.Errorf("after its end: %+v", h)
		}
		b.pass(2 * sec)
		if h := b.health("s0"); h.Status != Healthy {
			t.Errorf("probed again: %+v", h)
		}
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

// TestClockSetBack: a main process that seems to start in the future is probed
// one wait from now, and its grace is no longer for it.
func TestClockSetBack(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		for _, c := range []struct {
			id    string
			grace time.Duration
			code  int
		}{{"a", 0, 0}, {"b", 0, 1}, {"c", 3 * sec, 1}} {
			w := b.of(c.id, Settings{Interval: sec, Retries: 1, StartPeriod: c.grace}, always(c.code))
			w.Started = time.Now().Add(time.Hour)
			b.Watch(w)
			b.pass(5 * sec)
		}
		b.heard("1s a: starting -> healthy", "6s b: starting -> unhealthy", "13s c: starting -> unhealthy")
	})
}

// TestClockIsSet: what is measured from a start is measured by the monotonic
// clock, wherever the start was read.
func TestClockIsSet(t *testing.T) {
	now := time.Now()
	started := anchored(now.Round(0).Add(-sec), now)
	if !strings.Contains(started.String(), "m=") || now.Sub(started) != sec {
		t.Errorf("%v, now %v", started, now)
	}
}

// TestInvariant: verdict-8. Whatever is starting, not paused and not in flight
// has its next probe set, and is probed: checked over random operations.
func TestInvariant(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				rnd := rand.New(rand.NewPCG(seed, 8))
				type state struct {
					p      *probe
					paused bool
				}
				all := map[string]*state{}
				for range 300 {
					id := fmt.Sprint("c", rnd.IntN(12))
					switch st := all[id]; rnd.IntN(8) {
					case 0, 1:
						own := rand.New(rand.NewPCG(seed, rnd.Uint64()))
						p := &probe{do: func(ctx context.Context, _ int) int {
							if !sleep(ctx, time.Duration(own.IntN(3000))*time.Millisecond) {
								time.Sleep(time.Duration(own.IntN(500)) * time.Millisecond)
								return 1
							}
							return own.IntN(2)
						}}
						w := b.of(id, Settings{Interval: time.Duration(1+rnd.IntN(8)) * sec, Retries: 1 + rnd.IntN(3)}, p)
						w.Adopted = rnd.IntN(2) == 0
						b.Watch(w)
						all[id] = &state{p: p}
					case 2:
						if err := b.Remove(t.Context(), id); err != nil {
							t.Error(err)
						}
						if st != nil && st.p.live() != 0 {
							t.Errorf("%s removed with its probe running", id)
						}
						delete(all, id)
					case 3:
						b.Pause(id)
						if st != nil {
							st.paused = true
						}
					case 4:
						b.Resume(id)
						if st != nil {
							st.paused = false
						}
					default:
						b.pass(time.Duration(rnd.IntN(2000)) * time.Millisecond)
					}
					synctest.Wait()
					for id, st := range all {
						h := b.health(id)
						if set := !h.NextProbe.IsZero(); set == (st.paused || st.p.live() > 0) {
							t.Fatalf("%s: paused %v, %d live, %+v", id, st.paused, st.p.live(), h)
						}
					}
				}
				for id := range all {
					b.Resume(id)
				}
				b.pass(time.Minute)
				for id := range all {
					if h := b.health(id); len(h.Log) != MaxLog {
						t.Errorf("%s is not probed: %+v", id, h)
					}
				}
			})
		})
	}
}

// TestVerdictBound: a container that stops answering is unhealthy within what
// WorstCase allows, whenever it stops and however its probes then fail.
func TestVerdictBound(t *testing.T) {
	for _, s := range []Settings{
		{Interval: 5 * sec, Timeout: 3 * sec, Retries: 2},
		{Interval: 10 * sec, Timeout: 10 * sec, Retries: 3},
		{Interval: sec, Timeout: 30 * sec, Retries: 1},
	} {
		inBubble(t, func(t *testing.T, b *bench) {
			var longest time.Duration
			for dies := 20 * sec; dies < 20*sec+s.Interval+s.Timeout; dies += 250 * time.Millisecond {
				id := dies.String()
				dead := time.Now().Add(dies)
				w := b.of(id, s, NewExecProbe(runner(func(kill context.Context, _ []string, _ io.Writer, started func()) (int, error) {
					started()
					alive := time.Now().Before(dead)
					if !alive {
						<-kill.Done()
						return 137, nil
					}
					// As slow as it may be while it still answers.
					sleep(kill, s.Timeout-time.Millisecond)
					return 0, nil
				}), id, nil))
				var took time.Duration
				w.Changed = func(tr Transition) {
					if tr.To == Unhealthy {
						took = time.Since(dead)
					}
				}
				b.Watch(w)
				b.pass(dies + WorstCase(s, 0))
				if err := b.Remove(t.Context(), id); err != nil {
					t.Fatal(err)
				}
				if bound := WorstCase(s, 0) - PoolRepair; took == 0 || took > bound {
					t.Errorf("%+v died at %v: unhealthy after %v, bound %v", s, dies, took, bound)
				}
				longest = max(longest, took)
			}
			t.Logf("interval %v timeout %v retries %d: at most %v, bound %v", s.Interval, s.Timeout, s.Retries, longest, WorstCase(s, 0)-PoolRepair)
		})
	}
}
