// SPDX-License-Identifier: BSD-2-Clause

package healthcheck

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
)

// app is an application in virtual time, and a Gated probe of it: what it
// answers to a GET is a status, or one of the words below.
type app struct {
	t0      time.Time
	answer  func(at time.Duration) int
	control func(at time.Duration) int // nil: as answer

	mu       sync.Mutex
	asked    []time.Duration // the begin of each attempt
	timeouts []time.Duration // of each attempt
	controls []time.Duration // the begin of each control probe
}

const (
	refused = -1 // nothing listens
	hangs0  = -2 // accepts and never answers
)

func (a *app) Attempt(ctx context.Context, timeout time.Duration) Result {
	return a.ask(ctx, timeout, defaultPass, a.answer)
}

func (a *app) AttemptGate(ctx context.Context, timeout time.Duration) Result {
	return a.ask(ctx, timeout, gatePass, a.answer)
}

func (a *app) AttemptControl(ctx context.Context, timeout time.Duration) Result {
	answer := a.control
	if answer == nil {
		answer = a.answer
	}
	a.mu.Lock()
	a.controls = append(a.controls, time.Since(a.t0))
	a.mu.Unlock()
	r := judge(ctx, timeout, gatePass, answer(time.Since(a.t0)))
	r.Control = true
	return r
}

func (a *app) ask(ctx context.Context, timeout time.Duration, pass Codes, answer func(time.Duration) int) Result {
	at := time.Since(a.t0)
	a.mu.Lock()
	a.asked, a.timeouts = append(a.asked, at), append(a.timeouts, timeout)
	a.mu.Unlock()
	return judge(ctx, timeout, pass, answer(at))
}

func judge(ctx context.Context, timeout time.Duration, pass Codes, code int) Result {
	r := Result{Start: time.Now(), ExitCode: 1, By: Nothing, Word: "refused"}
	switch {
	case code == hangs0:
		r.Word, r.ExitCode = "timed_out", -1
		sleep(ctx, timeout)
	case code > 0:
		r.Word, r.By, r.Output = strconv.Itoa(code), Application, fmt.Sprintf("HTTP %d", code)
		if pass.Contains(code) {
			r.ExitCode = 0
		} else {
			r.Answer = &Answer{Status: code}
		}
	}
	r.End = time.Now()
	return r
}

// news are the changes that were told, as "30s healthy", "50s unhealthy
// unrouted", "5m0s unhealthy unrouted condemned".
type news struct {
	b    *bench
	said []string
	last Health
}

func (n *news) told(t Transition) {
	text := fmt.Sprintf("%v %v", time.Since(n.b.t0), t.To)
	if t.Health.Unrouted {
		text += " unrouted"
	}
	if t.Health.Condemned != "" {
		text += " condemned"
	}
	if shown := n.b.health(t.ID); shown.Status != t.To || shown.Unrouted != t.Health.Unrouted || shown.Condemned != t.Health.Condemned {
		n.b.t.Errorf("told of %+v, readers see %+v", t.Health, shown)
	}
	n.said, n.last = append(n.said, text), t.Health
}

func (n *news) heard(want ...string) {
	n.b.t.Helper()
	if !slices.Equal(n.said, want) {
		n.b.t.Errorf("changes:\n got %q\nwant %q", n.said, want)
	}
	n.said = nil
}

// run watches an application by labels, from its start.
func (b *bench) run(hc *container.HealthConfig, labels string, a *app) *news {
	b.t.Helper()
	return b.runAs(Watch{Settings: resolved(b.t, hc, labels), Started: time.Now()}, a)
}

func (b *bench) runAs(w Watch, a *app) *news {
	n := &news{b: b}
	a.t0 = b.t0
	w.ID, w.TaskID, w.Probe, w.Changed = "a", "task-a", a, n.told
	b.Watch(w)
	return n
}

func statuses(code int) *app { return &app{answer: func(time.Duration) int { return code }} }

func timeoutOf(d time.Duration) *container.HealthConfig { return &container.HealthConfig{Timeout: d} }

// TestExampleTimeline is that of spec/replica-health.txt.
func TestExampleTimeline(t *testing.T) {
	for _, c := range []struct {
		name  string
		back  time.Duration // the database, after it went down
		after []string
	}{
		{"the database is back after two minutes", 2 * time.Minute, []string{"3m50s unhealthy unrouted", "5m10s healthy"}},
		{"the database stays down", time.Hour, []string{"3m50s unhealthy unrouted", "8m0s unhealthy unrouted condemned"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				down := 3*time.Minute + sec
				a := &app{answer: func(at time.Duration) int {
					switch {
					case at < 25*sec:
						return refused
					case at >= down && at < down+c.back:
						return 503
					}
					return 200
				}}
				n := b.run(nil, "http=/health profile=automatic", a)
				b.pass(29 * sec)
				if h := b.health("a"); h.Status != Starting || h.FailingStreak != 0 || h.Unrouted || !slices.Equal(h.Evidence.ProbeSequence, []Run{{"refused", 2}}) {
					t.Errorf("while starting: %+v", h)
				}
				b.pass(sec)
				n.heard("30s healthy")
				if !slices.Equal(a.asked, []time.Duration{10 * sec, 20 * sec, 30 * sec}) || a.timeouts[0] != 5*sec {
					t.Errorf("checks at %v, timeouts %v", a.asked, a.timeouts)
				}
				b.pass(8 * time.Minute)
				n.heard(c.after...)
				if c.back == time.Hour && n.last.Condemned != "unhealthy: 30/30 probes failed, last HTTP 503" {
					t.Errorf("reason %q", n.last.Condemned)
				}
			})
		})
	}
}

// TestThresholdsTable is the table of spec/replica-health.txt in virtual time,
// with checks that fail at once and with ones that take their whole timeout.
func TestThresholdsTable(t *testing.T) {
	for _, row := range []struct {
		timeout, interval time.Duration
		restart           int
	}{{sec, 10 * sec, 30}, {5 * sec, 10 * sec, 30}, {10 * sec, 10 * sec, 30}, {15 * sec, 15 * sec, 20}, {30 * sec, 30 * sec, 10}, {60 * sec, 60 * sec, 5}} {
		for _, fault := range []int{503, hangs0, refused} {
			t.Run(fmt.Sprintf("%v/%d", row.timeout, fault), func(t *testing.T) {
				inBubble(t, func(t *testing.T, b *bench) {
					a := &app{answer: func(at time.Duration) int {
						if at == 10*sec {
							return 200
						}
						return fault
					}}
					n := b.run(timeoutOf(row.timeout), "http=/health profile=manual", a)
					b.pass(8 * time.Minute)
					took := time.Duration(0)
					if fault == hangs0 {
						took = row.timeout
					}
					// Checks begin one interval apart, whatever they take.
					for i, at := range a.asked {
						if want := 10*sec + time.Duration(i)*row.interval; at != want {
							t.Fatalf("check %d at %v, want %v", i, at, want)
						}
					}
					unrouted := 10*sec + 5*row.interval + took
					condemned := 10*sec + time.Duration(row.restart)*row.interval + took
					want := []string{"10s healthy", fmt.Sprintf("%v unhealthy unrouted", unrouted), fmt.Sprintf("%v unhealthy unrouted condemned", condemned)}
					if row.restart == 5 {
						want = []string{"10s healthy", fmt.Sprintf("%v unhealthy unrouted condemned", unrouted)}
					}
					n.heard(want...)
					if covered := time.Duration(row.restart) * row.interval; covered != 5*time.Minute {
						t.Errorf("%d checks cover %v", row.restart, covered)
					}
					if n.last.FailingStreak != row.restart || n.last.FailingSince.Sub(b.t0) != 10*sec+row.interval {
						t.Errorf("streak %d since %v", n.last.FailingStreak, n.last.FailingSince.Sub(b.t0))
					}
				})
			})
		}
	}
}

// TestOnePassReturnsTraffic: at any moment before it is replaced.
func TestOnePassReturnsTraffic(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		a := &app{answer: func(at time.Duration) int {
			if at == 10*sec || at == 309*sec+sec { // the 30th of 30 checks
				return 204
			}
			return 500
		}}
		n := b.run(nil, "http=/ profile=automatic", a)
		b.pass(365 * sec)
		n.heard("10s healthy", "1m0s unhealthy unrouted", "5m10s healthy", "6m0s unhealthy unrouted")
	})
}

// TestStartLimit: ten minutes from the first check, then replaced; until then
// nothing is counted.
func TestStartLimit(t *testing.T) {
	for _, c := range []struct {
		name    string
		timeout time.Duration
		labels  string
		ready   time.Duration // 0: never
		fault   int
		want    string
	}{
		{"never, refused", 5 * sec, "profile=automatic", 0, refused, "10m10s unhealthy unrouted condemned"},
		{"never, hanging", 60 * sec, "profile=manual", 0, hangs0, "10m10s unhealthy unrouted condemned"},
		{"a check in flight has its time", 45 * sec, "profile=manual", 0, hangs0, "10m40s unhealthy unrouted condemned"},
		{"first check at 300 s", 5 * sec, "profile=manual first=300", 0, refused, "15m0s unhealthy unrouted condemned"},
		{"twelve minutes to load a model", 5 * sec, "profile=manual first=300", 12 * time.Minute, refused, "12m0s healthy"},
		{"twelve minutes with the first check at 10 s", 5 * sec, "profile=automatic", 12 * time.Minute, refused, "10m10s unhealthy unrouted condemned"},
		{"the last check before the limit", 5 * sec, "profile=automatic", 10 * time.Minute, 503, "10m0s healthy"},
		{"a limit of one's own", 5 * sec, "profile=automatic start-limit=1m", 0, 404, "1m10s unhealthy unrouted condemned"},
		{"a limit between two checks", 5 * sec, "profile=automatic start-limit=65s", 0, 404, "1m15s unhealthy unrouted condemned"},
		{"docker's pace with a limit", 2 * sec, "start-limit=1m", 0, 404, "1m5s unhealthy unrouted condemned"},
		{"a task that is only unrouted still has to start", 5 * sec, "profile=automatic action=unroute", 0, 404, "10m10s unhealthy unrouted condemned"},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				a := &app{answer: func(at time.Duration) int {
					if c.ready != 0 && at >= c.ready {
						return 200
					}
					return c.fault
				}}
				n := b.run(timeoutOf(c.timeout), "http=/health "+c.labels, a)
				b.pass(59 * sec)
				if h := b.health("a"); h.FailingStreak != 0 || h.Unrouted || h.Status != Starting {
					t.Errorf("while starting: %+v", h)
				}
				b.pass(16 * time.Minute)
				if len(n.said) == 0 || n.said[0] != c.want {
					t.Errorf("changes %q, want %q first", n.said, c.want)
				}
			})
		})
	}
}

// TestStartLimitIsKept: a check that ends at the limit ends the start, once, and
// unlike a gate's its verdict is taken back by a pass.
func TestStartLimitIsKept(t *testing.T) {
	s := resolved(t, nil, "http=/ profile=automatic")
	fail := func(at time.Duration, output string) Result {
		return Result{Start: epoch.Add(at), End: epoch.Add(at + 5*sec), ExitCode: 1, Word: "refused", Output: output}
	}
	h := Fold(Health{}, s, epoch, fail(10*sec, "first"))
	if h = Fold(h, s, epoch, fail(604*sec, "before")); h.Condemned != "" {
		t.Fatalf("condemned before its limit: %q", h.Condemned)
	}
	h = Fold(h, s, epoch, fail(605*sec, "at"))
	why := h.Condemned
	if h.Status != Unhealthy || !strings.HasSuffix(why, "within 10m0s of the first one, last at") {
		t.Fatalf("%v, condemned for %q", h.Status, why)
	}
	if h = Fold(h, s, epoch, fail(620*sec, "after")); h.Condemned != why {
		t.Errorf("condemned anew for %q", h.Condemned)
	}
	if h = Fold(h, s, epoch, Result{Start: epoch.Add(630 * sec), End: epoch.Add(630 * sec)}); h.Status != Healthy || h.Condemned != "" || h.Unrouted {
		t.Errorf("after a pass: %+v", h)
	}
}

// TestNoControlWithoutAGate: equal client errors hasten the check of nothing but
// a gate; a check that took longer than the wait is followed by the next at once.
func TestNoControlWithoutAGate(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		a := statuses(404)
		b.run(nil, "http=/ profile=automatic", a)
		b.pass(300 * sec)
		if !slices.Equal(a.asked, every(10*sec, 10*sec, 30)) || len(a.controls) != 0 {
			t.Errorf("asked at %v, controls at %v", a.asked, a.controls)
		}
	})
	s := resolved(t, timeoutOf(10*sec), "http=/ profile=gate")
	if got := NextDelay(Fold(Health{}, s, epoch, Result{Start: epoch, End: epoch.Add(10 * sec), ExitCode: -1}), s); got != 0 {
		t.Errorf("after ten seconds without an answer the next one waits %v", got)
	}
}

// TestFirstAtOnce: a first check at 0 s.
func TestFirstAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		a := statuses(301)
		n := b.run(nil, "http=/ profile=manual first=0", a)
		b.pass(15 * sec)
		n.heard("1ns healthy")
		if !slices.Equal(a.asked, []time.Duration{AtOnce, 10*sec + AtOnce}) {
			t.Errorf("checks at %v", a.asked)
		}
	})
}

// TestOffSwitchOnTCP: what is left of a check that is off gates traffic by a
// connection alone, with the recommended timings.
func TestOffSwitchOnTCP(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		a := &app{answer: func(at time.Duration) int {
			if at < 15*sec {
				return refused
			}
			return 200
		}}
		n := b.run(nil, "tcp=80 profile=off", a)
		b.pass(time.Minute)
		n.heard("20s healthy")
	})
}

// TestActions: what an unhealthy verdict does.
func TestActions(t *testing.T) {
	for _, c := range []struct {
		labels string
		want   []string
	}{
		{"http=/ unroute-after=2 replace-after=4", []string{"5s healthy", "1m5s unhealthy unrouted", "2m5s unhealthy unrouted condemned"}},
		{"http=/ unroute-after=1m replace-after=2m", []string{"5s healthy", "1m5s unhealthy unrouted", "2m5s unhealthy unrouted condemned"}},
		{"http=/", []string{"5s healthy", "1m35s unhealthy unrouted condemned"}},
		{"http=/ action=unroute", []string{"5s healthy", "1m35s unhealthy unrouted"}},
		{"http=/ action=none", []string{"5s healthy", "1m35s unhealthy"}},
		{"http=/ profile=automatic action=none", []string{"10s healthy", "1m0s unhealthy"}},
	} {
		t.Run(c.labels, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				a := &app{answer: func(at time.Duration) int {
					if at <= 10*sec {
						return 200
					}
					return 500
				}}
				n := b.run(nil, c.labels, a)
				b.pass(4 * time.Minute)
				n.heard(c.want...)
			})
		})
	}
	t.Run("none, and never a pass", func(t *testing.T) {
		inBubble(t, func(t *testing.T, b *bench) {
			n := b.run(nil, "http=/ profile=automatic action=none", statuses(503))
			b.pass(time.Hour)
			n.heard("50s unhealthy")
		})
	})
	for labels, gates := range map[string]bool{"http=/": true, "http=/ action=unroute": true, "http=/ action=none": false} {
		if s := resolved(t, nil, labels); s.GatesRunning() != gates {
			t.Errorf("%s: GatesRunning %v", labels, !gates)
		}
	}
}

// TestAdoptedByThresholds: a task that passed in an earlier daemon's time is
// judged by the streak at once; one that did not keeps what is left of its start.
func TestAdoptedByThresholds(t *testing.T) {
	for _, c := range []struct {
		name   string
		labels string
		age    time.Duration
		w      Watch
		answer func(at time.Duration) int
		want   []string
	}{
		{"proved and dead", "profile=automatic", time.Hour, Watch{Proved: true},
			func(time.Duration) int { return refused }, []string{"50s unhealthy unrouted", "5m0s unhealthy unrouted condemned"}},
		{"proved and well", "profile=automatic", time.Hour, Watch{Proved: true},
			func(time.Duration) int { return 200 }, []string{"10s healthy"}},
		{"out of traffic, and back with one pass", "profile=automatic", time.Hour, Watch{Proved: true, Unrouted: true},
			func(at time.Duration) int { return map[bool]int{true: 200, false: 503}[at >= 30*sec] }, []string{"30s healthy"}},
		{"starting", "profile=automatic", 4 * time.Minute, Watch{},
			func(time.Duration) int { return refused }, []string{"6m10s unhealthy unrouted condemned"}},
		{"proved and dead inside its StartPeriod, which protects it no more", "start-period", time.Minute, Watch{Proved: true},
			func(time.Duration) int { return refused }, []string{"15s unhealthy unrouted condemned"}},
		{"starting inside its StartPeriod, of which it keeps the rest", "start-period", time.Minute, Watch{},
			func(time.Duration) int { return refused }, []string{"4m10s unhealthy unrouted condemned"}},
		{"proved before a first check that its clock now says is to come", "profile=manual first=300", 0, Watch{Proved: true},
			func(time.Duration) int { return refused }, []string{"50s unhealthy unrouted"}},
		{"its limit passed while no daemon looked", "profile=automatic", time.Hour, Watch{},
			func(time.Duration) int { return 200 }, []string{"10s healthy"}},
		{"the same, and it fails", "profile=automatic", time.Hour, Watch{},
			func(time.Duration) int { return 503 }, []string{"10s unhealthy unrouted condemned"}},
		{"not yet to be asked", "profile=manual first=300", time.Minute, Watch{},
			func(time.Duration) int { return 200 }, []string{"4m0s healthy"}},
		{"in a gate", "profile=gate", time.Minute, Watch{},
			func(time.Duration) int { return 503 }, []string{"2m0s unhealthy unrouted condemned"}},
		{"past its gate", "profile=gate", time.Hour, Watch{Proved: true},
			func(time.Duration) int { return 302 }, []string{"3s healthy"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				w, hc, labels := c.w, (*container.HealthConfig)(nil), c.labels
				if labels == "start-period" {
					hc, labels = &container.HealthConfig{StartPeriod: 5 * time.Minute}, ""
				}
				w.Settings, w.Adopted, w.Started = resolved(t, hc, "http=/ pass=200-399 "+labels), true, time.Now().Add(-c.age)
				n := b.runAs(w, &app{answer: c.answer})
				if h := b.health("a"); h.Unrouted != w.Unrouted || h.Status != Starting {
					t.Errorf("at once: %+v", h)
				}
				b.pass(8 * time.Minute)
				if len(n.said) < len(c.want) || !slices.Equal(n.said[:len(c.want)], c.want) {
					t.Errorf("changes %q, want %q", n.said, c.want)
				}
			})
		})
	}
}

// TestPausedStart: a start whose limit passes while it is paused is asked once
// more before it is judged.
func TestPausedStart(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		a := &app{answer: func(at time.Duration) int { return map[bool]int{true: 200, false: 503}[at > time.Hour] }}
		n := b.run(nil, "http=/ profile=automatic", a)
		b.pass(time.Minute)
		b.Pause("a")
		b.pass(time.Hour)
		b.Resume("a")
		b.pass(11 * sec)
		n.heard("1h1m10s healthy")
	})
}

// TestLightProbesTakeNoExecSlot: commands that hang hold up no other kind, and
// the other kinds are bounded by themselves.
func TestLightProbesTakeNoExecSlot(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		for i := range DefaultSlots + 1 {
			b.watch(fmt.Sprintf("exec-%d", i), Settings{Interval: 5 * sec, Timeout: time.Hour, Retries: 9}, hangs())
		}
		n := b.run(nil, "http=/ profile=automatic", statuses(200))
		b.pass(10 * sec)
		n.heard("10s healthy")
		var light []*probe
		for i := range DefaultLightSlots + 1 {
			p := hangs()
			light = append(light, p)
			b.watch(fmt.Sprintf("tcp-%d", i), Settings{Kind: TCP, Interval: 5 * sec, Timeout: time.Hour, Retries: 9}, p)
		}
		b.pass(9 * sec)
		live := 0
		for _, p := range light {
			live += p.live()
		}
		if live != DefaultLightSlots {
			t.Errorf("%d attempts at a time, want %d", live, DefaultLightSlots)
		}
	})
}

// TestCondemnedLine: the log has a line for what the change of verdict does not say.
func TestCondemnedLine(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.run(nil, "http=/ profile=automatic", &app{answer: func(at time.Duration) int { return map[bool]int{true: 200, false: 503}[at <= 10*sec] }})
		b.watch("d", Settings{Interval: 5 * sec, Retries: 2}, always(1))
		b.pass(6 * time.Minute)
		if got := strings.Count(b.log.String(), "to be replaced"); got != 1 {
			t.Errorf("%d lines in\n%s", got, b.log.String())
		}
		if !strings.Contains(b.log.String(), `msg="container is to be replaced" task_id=task-a container=a reason="unhealthy: 30/30 probes failed, last HTTP 503"`) {
			t.Errorf("log:\n%s", b.log.String())
		}
	})
}
