// SPDX-License-Identifier: BSD-2-Clause

package healthcheck

import (
	"strings"
	"testing"
	"time"
)

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
