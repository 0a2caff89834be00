// SPDX-License-Identifier: BSD-2-Clause

package healthcheck

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

const sec = time.Second

// TestFold: probes as "second:exit code", then the health after each as the
// first letter of its status and the streak.
func TestFold(t *testing.T) {
	for _, c := range []struct {
		name    string
		retries int
		start   time.Duration
		probes  string
		want    string
	}{
		{"a pass is healthy at once", 3, 0, "5:0", "h0"},
		{"retries in a row", 3, 0, "5:1 10:1 15:1", "s1 s2 u3"},
		{"R=1 is the first failure (verdict-7)", 1, 0, "5:1", "u1"},
		{"one pass resets the streak", 3, 0, "5:1 10:1 15:0 20:1 25:1 30:0", "s1 s2 h0 h1 h2 h0"},
		{"every outcome but 0 is a failure (verdict-4)", 4, 0, "5:-1 10:2 15:137 20:255", "s1 s2 s3 u4"},
		{"grace: not punished, and looked at (verdict-2)", 2, 300 * sec, "1:1 2:1 3:0", "s0 s0 h0"},
		{"grace protects what began inside it", 2, 30 * sec, "29:1 30:1 35:1", "s0 s1 u2"},
		{"once healthy, grace protects no more", 2, 300 * sec, "5:0 10:1 15:1", "h0 h1 u2"},
		{"unhealthy inside grace after a pass stays counted", 2, 300 * sec, "5:0 10:1 15:1 20:1", "h0 h1 u2 u3"},
		{"an unhealthy one that passes is healthy", 2, 0, "5:1 10:1 15:1 20:0 25:1", "s1 u2 u3 h0 h1"},
		{"never healthy, never forever starting", 2, 10 * sec, "5:1 10:1 15:1", "s0 s1 u2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := Settings{Retries: c.retries, StartPeriod: c.start}
			var h Health
			var got []string
			for _, probe := range strings.Fields(c.probes) {
				var at, code int
				if _, err := fmt.Sscanf(probe, "%d:%d", &at, &code); err != nil {
					t.Fatal(err)
				}
				begun := epoch.Add(time.Duration(at) * sec)
				h = Fold(h, s, epoch, Result{Start: begun, End: begun.Add(9 * sec), ExitCode: code})
				got = append(got, fmt.Sprintf("%c%d", h.Status.String()[0], h.FailingStreak))
			}
			if g := strings.Join(got, " "); g != c.want {
				t.Errorf("probes %s:\n got %s\nwant %s", c.probes, g, c.want)
			}
		})
	}
}

func TestFoldKeepsTheLastFive(t *testing.T) {
	var h Health
	var seen []Health
	for i := range 8 {
		h = Fold(h, Settings{Retries: 99}, epoch, Result{ExitCode: i + 1})
		seen = append(seen, h)
	}
	codes := func(h Health) (c []int) {
		for _, r := range h.Log {
			c = append(c, r.ExitCode)
		}
		return c
	}
	if got := codes(h); !slices.Equal(got, []int{4, 5, 6, 7, 8}) {
		t.Errorf("log %v", got)
	}
	// What a reader was given earlier has not changed under it.
	if got := codes(seen[4]); !slices.Equal(got, []int{1, 2, 3, 4, 5}) {
		t.Errorf("an earlier log became %v", got)
	}
}

func TestNextDelay(t *testing.T) {
	s := Settings{Interval: 30 * sec, StartInterval: 5 * sec, Retries: 1}
	fail, pass := Result{ExitCode: 1}, Result{}
	var h Health
	for i, step := range []struct {
		r    Result
		want time.Duration
	}{{fail, 5 * sec}, {pass, 30 * sec}, {fail, 30 * sec}, {pass, 30 * sec}} {
		if h = Fold(h, s, epoch, step.r); NextDelay(h, s) != step.want {
			t.Errorf("after step %d (%v): %v, want %v", i, h, NextDelay(h, s), step.want)
		}
	}
	if got := NextDelay(Health{}, Settings{}); got <= 0 {
		t.Errorf("settings that nobody resolved make a busy loop: %v", got)
	}
}

// TestFoldProperties holds Fold to the sentences of the specification on any
// history.
func TestFoldProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := Settings{
			Retries:     rapid.IntRange(1, 5).Draw(t, "retries"),
			StartPeriod: time.Duration(rapid.IntRange(0, 60).Draw(t, "start period")) * sec,
		}
		var h Health
		counted := 0 // failures since the last pass or the end of grace
		passed := false
		var failing time.Time // begin of the first of counted
		var dips []time.Time  // begins of the streaks between two passes
		at := epoch
		for range rapid.IntRange(0, 30).Draw(t, "probes") {
			at = at.Add(time.Duration(rapid.IntRange(1, 20).Draw(t, "wait")) * sec)
			r := Result{Start: at, End: at, ExitCode: rapid.SampledFrom([]int{0, 0, 1, -1, 137}).Draw(t, "code")}
			was := h
			log := slices.Clone(h.Log)
			h = Fold(h, s, epoch, r)
			switch {
			case r.ExitCode == 0:
				if passed && counted > 0 {
					dips = append(dips, failing)
				}
				passed, counted = true, 0
			case passed || at.Sub(epoch) >= s.StartPeriod:
				if counted++; counted == 1 {
					failing = at
				}
			}
			want := Starting
			switch {
			case counted >= s.Retries:
				want = Unhealthy
			case passed:
				want = Healthy
			}
			if h.Status != want || h.FailingStreak != counted || h.EverHealthy != passed {
				t.Fatalf("after %+v: %+v, want %v with %d", r, h, want, counted)
			}
			if n := len(h.Log); n > MaxLog || n == 0 || h.Log[n-1] != r {
				t.Fatalf("log %+v", h.Log)
			}
			if kept := dips[max(0, len(dips)-MaxDips):]; !slices.Equal(h.Dips, kept) {
				t.Fatalf("dips %v, want %v", h.Dips, kept)
			}
			if !reflect.DeepEqual(log, slices.Clone(was.Log)) {
				t.Fatalf("an earlier log was changed: %+v", was.Log)
			}
		}
	})
}
