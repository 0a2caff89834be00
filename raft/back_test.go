// SPDX-License-Identifier: BSD-2-Clause

package raft

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"satld/internal/slowday"
)

// However long a member was away, the leader sends it what it missed within a
// second of its return: until then it is no part of a majority, and shows old
// state.
func TestBackAfterLong(t *testing.T) {
	for _, away := range []time.Duration{2 * time.Second, 30 * time.Second, 10 * time.Minute} {
		t.Run(fmt.Sprint(away), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x := newTrio(t)
				defer x.close()
				l := x.leader(0, 1, 2)
				gone := (l + 1) % 3
				x.cut(gone)
				if err := x.nodes[l].create("a", "while it is away"); err != nil {
					t.Fatal(err)
				}
				time.Sleep(away)
				x.heal(gone)
				back := time.Now()
				for x.nodes[gone].fsm.version() != x.nodes[l].fsm.version() {
					if time.Since(back) > slowday.Of(time.Minute) {
						t.Fatal("not within a minute")
					}
					time.Sleep(10 * time.Millisecond)
				}
				if took := time.Since(back); took > slowday.Of(time.Second) {
					t.Errorf("it has caught up %v after its return", took)
				}
			})
		})
	}
}
