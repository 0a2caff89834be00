// SPDX-License-Identifier: BSD-2-Clause

package command

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// slow is a tool that takes d, or as long as it may.
func slow(d *time.Duration) Runner {
	return func(ctx context.Context, c Command) (string, error) {
		ctx, cancel := context.WithTimeout(ctx, c.Bound)
		defer cancel()
		select {
		case <-time.After(*d):
			return "done", nil
		case <-ctx.Done():
			return "", &Error{Command: c, Status: -1, Err: ctx.Err()}
		}
	}
}

// On a host whose tools take seconds a call is cut off a few times and then
// never again, however many quick ones there are in between; and when the host
// is itself again, so is the bound.
func TestPatienceFollowsTheHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &Patience{Least: 3 * time.Second, Most: 24 * time.Second}
		takes := 10 * time.Second
		run := p.Runner(slow(&takes))
		for i, want := range []time.Duration{6 * time.Second, 12 * time.Second} {
			if _, err := run(t.Context(), Of("tool")); !errors.Is(err, context.DeadlineExceeded) || p.Bound() != want {
				t.Fatalf("%d: %v, bound %v, want %v", i, err, p.Bound(), want)
			}
		}
		for range 30 { // an hour of it
			takes = 10 * time.Second
			if out, err := run(t.Context(), Of("tool")); out != "done" || err != nil {
				t.Fatalf("a tool that takes %v is cut off at %v: %v", takes, p.Bound(), err)
			}
			takes = 100 * time.Millisecond
			for range 20 {
				if _, err := run(t.Context(), Of("tool")); err != nil {
					t.Fatal(err)
				}
				time.Sleep(5 * time.Second)
			}
		}
		for range 200 {
			_, _ = run(t.Context(), Of("tool"))
			time.Sleep(5 * time.Second)
		}
		if p.Bound() != p.Least {
			t.Errorf("the bound stays at %v", p.Bound())
		}
	})
}

// A tool that hangs takes no more than the ceiling, and a caller who gives up
// is no reason to wait for longer.
func TestPatienceHasACeiling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &Patience{Least: 3 * time.Second, Most: 20 * time.Second}
		takes := time.Hour
		run := p.Runner(slow(&takes))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := run(ctx, Of("tool")); err == nil || p.Bound() != p.Least {
			t.Fatalf("%v, bound %v", err, p.Bound())
		}
		err := p.Do(ctx, func(ctx context.Context) error { return ctx.Err() })
		if err == nil || p.Bound() != p.Least {
			t.Fatalf("%v, bound %v", err, p.Bound())
		}
		for range 10 {
			begun := time.Now()
			if _, err := run(t.Context(), Of("tool")); err == nil {
				t.Fatal("done")
			}
			if took := time.Since(begun); took > p.Most {
				t.Fatalf("took %v", took)
			}
		}
		if p.Bound() != p.Most {
			t.Errorf("bound %v", p.Bound())
		}
		// Several that hang at once are one reason.
		p = &Patience{Least: time.Second, Most: time.Minute}
		done := make(chan error)
		for range 5 {
			go func() {
				done <- p.Do(t.Context(), func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
			}()
		}
		for range 5 {
			if err := <-done; !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
		}
		if p.Bound() != 2*time.Second {
			t.Errorf("bound %v", p.Bound())
		}
	})
}

// Whatever happens, the bound is never below Least nor above Most, and a call
// is given what Bound said.
func TestPatienceBounds(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		p := &Patience{Least: time.Second, Most: 10 * time.Second}
		for range rapid.IntRange(1, 50).Draw(r, "calls") {
			bound := p.Bound()
			took := time.Duration(rapid.Int64Range(0, int64(bound)).Draw(r, "took"))
			p.note(bound, took, rapid.Bool().Draw(r, "expired"))
			p.needed = p.needed.Add(-time.Duration(rapid.Int64Range(0, int64(2*Calm)).Draw(r, "ago")))
			if b := p.Bound(); b < p.Least || b > p.Most || b < bound/2 || b > 2*bound {
				r.Fatalf("%v after %v", b, bound)
			}
		}
	})
}
