// SPDX-License-Identifier: BSD-2-Clause

package healthcheck

import (
	"strings"
	"testing"
)

func TestHealthText(t *testing.T) {
	for _, c := range []struct {
		h              Health
		text, progress string
	}{
		{Health{}, "health: starting", "starting (health: not probed yet)"},
		{Health{Log: make([]Result, 1)}, "health: starting", "starting (health: failures not counted, inside the start period)"},
		{Health{Log: make([]Result, 1), FailingStreak: 1}, "health: starting", "starting (health: 1/3 probes failed)"},
		{Health{Status: Healthy}, "healthy", "healthy"},
		{Health{Status: Unhealthy}, "unhealthy", "unhealthy"},
	} {
		if c.h.String() != c.text || c.h.Progress(3) != c.progress {
			t.Errorf("%+v: %q, %q", c.h, c.h, c.h.Progress(3))
		}
	}
}

// TestReason: cases/api.md, api-3.
func TestReason(t *testing.T) {
	for _, c := range []struct{ output, tail string }{
		{"connection refused\n", ": connection refused"},
		{"", ""},
		{" \n", ""},
		{"curl: (7)\n\tfailed\x1b[0m", ": curl: (7)  failed [0m"},
		{"gr\u00fc\u00df\u4e16", ": gr???"},
		{strings.Repeat("x", 300), ": " + strings.Repeat("x", 200)},
	} {
		got := Transition{To: Unhealthy, Streak: 3, Retries: 3, Last: Result{ExitCode: 1, Output: c.output}}.Reason()
		if want := "unhealthy: 3/3 probes failed, last exit code 1" + c.tail; got != want {
			t.Errorf("output %q:\n got %s\nwant %s", c.output, got, want)
		}
	}
}
