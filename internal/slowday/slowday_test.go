// SPDX-License-Identifier: BSD-2-Clause

package slowday

import (
	"testing"
	"time"
)

func TestFactor(t *testing.T) {
	for loadavg, want := range map[string]float64{
		"0.12 0.30 0.28 1/280 4711":      1,
		"3.00 0.30 0.28 1/280 4711":      1.5,
		"3.00 0.30 0.28 9/280 4711":      4.5,
		"99.00 0.30 0.28 1/280 4711":     most,
		"":                               1,
		"not a number, nor 4 of them /x": 1,
	} {
		if got := factor(loadavg, 2); got != want {
			t.Errorf("%q: %v, want %v", loadavg, got, want)
		}
	}
}

func TestOver(t *testing.T) {
	if now := time.Now(); Over(now, time.Minute) || !Over(now.Add(-most*time.Second-time.Second), time.Second) {
		t.Error("a second or a minute were taken for the other")
	}
}
