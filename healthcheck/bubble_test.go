// SPDX-License-Identifier: BSD-2-Clause

package healthcheck

import (
	"context"
	"fmt"
	"log/slog"
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
