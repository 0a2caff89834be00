// SPDX-License-Identifier: BSD-2-Clause

package healthcheck

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"
)

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
