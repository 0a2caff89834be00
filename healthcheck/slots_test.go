// SPDX-License-Identifier: BSD-2-Clause

package healthcheck

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

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

// TestStuckAndAbandoned: an attempt that cannot be killed of a container that is
// watched anew gives its slot back as well, and is no verdict on anybody.
func TestStuckAndAbandoned(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		end := make(chan struct{})
		s := Settings{Interval: 5 * sec, Timeout: 3 * sec, Retries: 1}
		var again atomic.Int32
		other := always(0)
		for i := range DefaultSlots {
			b.watch(fmt.Sprint("s", i), s, &probe{do: func(context.Context, int) int { <-end; return 1 }})
		}
		b.pass(6 * sec)
		for i := range DefaultSlots {
			b.watch(fmt.Sprint("s", i), s, answers(func(int) int { again.Add(1); return 0 }))
		}
		b.watch("other", s, other)
		b.pass(41 * sec) // overdue at 48 s
		if other.count() != 0 || len(b.said) != 0 {
			t.Errorf("before they are overdue: %d probes, %q", other.count(), b.said)
		}
		b.pass(60 * sec)
		if other.count() == 0 {
			t.Error("their slots are not given back")
		}
		if len(b.said) != 1 || again.Load() != 0 || strings.Count(b.log.String(), "cannot be killed") != DefaultSlots {
			t.Errorf("heard %q, %d probes\n%s", b.said, again.Load(), b.log.String())
		}
		close(end)
		b.pass(6 * sec)
		if again.Load() < DefaultSlots {
			t.Errorf("%d probes after their end", again.Load())
		}
	})
}
