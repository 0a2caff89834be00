// SPDX-License-Identifier: BSD-2-Clause

package executor

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/moby/swarmkit/v2/api"

	"satld/healthcheck"
)

// A container of which the runtime cannot tell whether it runs costs no other:
// the daemon starts, and its task has failed with the reason.
func TestContainerThatCannotBeTakenOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		first, other := webTask(nil), webTask(nil)
		other.ID, other.Slot = "task2", 2
		for _, task := range []*api.Task{first, other} {
			if err := prepared(t, b, task).Start(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		b.close()
		b.rt.untold = errors.New("read init.json: damaged")
		b.open()
		defer b.close()
		synctest.Wait()
		err := controllerOf(t, b, first).Wait(t.Context())
		if err == nil || !strings.Contains(err.Error(), "could not be taken over: read init.json: damaged") {
			t.Errorf("the task ended with %v", err)
		}
		id := taskContainerID("task1")
		if b.j.at("delete") < 0 {
			t.Errorf("it was not taken down: %q", b.j.all())
		}
		if b.traffic.serving(id) || !b.traffic.serving(taskContainerID("task2")) {
			t.Error("the other task alone should serve")
		}
	})
}

// The same of one whose start may have been cut short: it is made again.
func TestStartThatCannotBeTakenOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		prepared(t, b, webTask(nil))
		b.close()
		b.rt.untold = errors.New("read init.json: damaged")
		b.open()
		defer b.close()
		synctest.Wait()
		if b.j.at("delete") < 0 {
			t.Errorf("it was not taken down: %q", b.j.all())
		}
		b.rt.untold = nil
		if err := controllerOf(t, b, webTask(nil)).Start(t.Context()); err != nil {
			t.Errorf("started again: %v", err)
		}
	})
}

// A task that ended with its machine says so; another daemon alone is no such
// end, and an exit that was seen before it is the task's own.
func TestEndsWithTheMachine(t *testing.T) {
	for _, c := range []struct {
		boot string
		code int
		want bool
	}{{"second", -1, true}, {"first", -1, false}, {"second", 3, false}, {"", -1, false}} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, func(b *bench) { b.boot = "first" })
			task := webTask(nil)
			if err := prepared(t, b, task).Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			b.close()
			b.rt.end(taskContainerID("task1"), c.code)
			b.boot = c.boot
			b.open()
			defer b.close()
			err := controllerOf(t, b, task).Wait(t.Context())
			if err == nil || strings.HasSuffix(err.Error(), healthcheck.Restarted) != c.want {
				t.Errorf("boot %q, exit code %d: Wait returned %v", c.boot, c.code, err)
			}
		})
	}
}

// What an earlier daemon did not come to remove of a task that is gone is removed
// by one goroutine, wherever its life had come to.
func TestDiscardedContainerIsRemovedOnce(t *testing.T) {
	for _, c := range []struct {
		state State
		lives bool
	}{{Created, false}, {Running, true}, {Exited, false}} {
		for _, jailed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v, jail %t", c.state, jailed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := newBench(t, jails, func(b *bench) { b.jails = jailed })
					task := webTask(nil)
					ctl := prepared(t, b, task)
					if c.state != Created {
						if err := ctl.Start(t.Context()); err != nil {
							t.Fatal(err)
						}
					}
					id := taskContainerID(task.ID)
					if c.state == Exited {
						b.rt.end(id, 0)
						synctest.Wait()
					}
					rec := b.record(id)
					if rec.State != c.state {
						t.Fatalf("it is %v", rec.State)
					}
					b.close()
					rec.Discarded = true
					if err := saveRecord(b.node.dir, rec); err != nil {
						t.Fatal(err)
					}
					before := len(b.j.all())
					b.open()
					defer b.close()
					time.Sleep(time.Minute)
					if left := b.node.List(); len(left) > 0 {
						t.Errorf("left behind, %v", left[0].State)
					}
					steps := map[string]int{}
					for _, line := range b.j.after(before) {
						steps[line]++
					}
					// A removal asks twice: before it looks for a dying jail, and after.
					if !c.lives && (steps["delete"] != 2 || steps["detach "+id] != 1 || steps["unmount"] != 0) || steps["release"] != 1 {
						t.Errorf("removed more than once: %q", b.j.after(before))
					}
				})
			})
		}
	}
}
