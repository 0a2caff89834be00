// SPDX-License-Identifier: BSD-2-Clause

package executor

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"

	"satld/jail"
)

// A task whose container was not made because the shim died, and of which
// nothing is left, is the same task a moment later; a shim that dies each time
// fails it.
func TestStartIsTriedAgain(t *testing.T) {
	for _, jails := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, func(b *bench) { b.jails = jails })
			defer b.close()
			b.rt.unmade = 2
			if err := prepared(t, b, webTask(nil)).Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			id := taskContainerID("task1")
			if rec := b.record(id); rec.State != Running || rec.Error != "" || !b.traffic.serving(id) {
				t.Errorf("started with %+v", rec)
			}
			names := b.rt.created()
			if want := []string{id, id, id}; !jails && !slices.Equal(names, want) {
				t.Errorf("made %v, want %v", names, want)
			}
			if want := []string{id, id + "-2", id + "-3"}; jails && !slices.Equal(names, want) {
				t.Errorf("jails %v, want %v: no name is used twice", names, want)
			}

			other := webTask(nil)
			other.ID, other.Slot = "task2", 2
			b.rt.unmade = 3
			if err := prepared(t, b, other).Start(t.Context()); !errors.Is(err, jail.ErrUnmade) {
				t.Errorf("the shim died each time: %v", err)
			}
		})
	}
}
