// SPDX-License-Identifier: BSD-2-Clause

package raft

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"satld/internal/slowday"
)

// Members whose answers take 0.6 s are slow, and no reason for a leader to
// resign: else nothing could be written there.
func TestFarMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newTrio(t)
		defer func() {
			x.lag.Store(0)
			time.Sleep(time.Second) // what is on its way
			x.close()
		}()
		lead := func(l int) {
			t.Helper()
			for i := range 20 {
				begin := time.Now()
				if err := x.nodes[l].create(fmt.Sprint(l, "id", i), fmt.Sprint(l, "name", i)); err != nil {
					t.Fatalf("write %d: %v", i, err)
				}
				if took := time.Since(begin); took > slowday.Of(3*time.Second) {
					t.Errorf("write %d took %v", i, took)
				}
				time.Sleep(5 * time.Second)
			}
		}
		l := x.leader(0, 1, 2)
		x.lag.Store(int64(300 * time.Millisecond))
		lead(l)
		x.cut(l)
		lost := time.Now()
		next := x.leader((l+1)%3, (l+2)%3)
		if took := time.Since(lost); took > slowday.Of(30*time.Second) {
			t.Errorf("the next leader was there after %v", took)
		}
		lead(next)
	})
}
