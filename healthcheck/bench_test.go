// SPDX-License-Identifier: BSD-2-Clause

package healthcheck

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// instant is a probe that passes at once and counts.
type instant struct{ n *atomic.Int64 }

func (p instant) Attempt(context.Context, time.Duration) Result {
	p.n.Add(1)
	now := time.Now()
	return Result{Start: now, End: now}
}

// BenchmarkMonitor1000 is the monitor's own cost of one probe with 1000
// containers watched, probes that cost nothing given, in time and in CPU; and
// what that is of one core at an interval of 10 s.
func BenchmarkMonitor1000(b *testing.B) {
	const watches = 1000
	var n atomic.Int64
	m := NewMonitor(Options{Logger: slog.New(slog.DiscardHandler)})
	ctx, stop := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	s := Settings{Interval: time.Millisecond, StartInterval: time.Millisecond, Timeout: sec, Retries: 3}
	for i := range watches {
		m.Watch(Watch{ID: fmt.Sprintf("container-%04d", i), Settings: s, Probe: instant{&n}})
	}
	b.ReportAllocs()
	b.ResetTimer()
	before, from := cpu(), n.Load()
	for n.Load()-from < int64(b.N) {
		time.Sleep(100 * time.Microsecond)
	}
	probes := float64(n.Load() - from)
	perProbe := float64(cpu()-before) / probes
	b.StopTimer()
	b.ReportMetric(perProbe, "cpu-ns/probe")
	b.ReportMetric(100*perProbe*watches/float64(10*sec), "%core@10s")
	stop()
	if err := <-done; err != nil {
		b.Error(err)
	}
}

// BenchmarkGet reads health while the loop is at work.
func BenchmarkGet(b *testing.B) {
	var n atomic.Int64
	m := NewMonitor(Options{Logger: slog.New(slog.DiscardHandler)})
	ctx, stop := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	m.Watch(Watch{ID: "a", Settings: Settings{Interval: time.Millisecond, StartInterval: time.Millisecond, Timeout: sec, Retries: 3}, Probe: instant{&n}})
	b.ReportAllocs()
	for b.Loop() {
		h, _ := m.Get("a")
		runtime.KeepAlive(h)
	}
	stop()
	<-done
}

// cpu is what this process has used, in nanoseconds.
func cpu() int64 {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return u.Utime.Nano() + u.Stime.Nano()
}
