// SPDX-License-Identifier: BSD-2-Clause

package orchestrator

import (
	"fmt"
	"testing"
	"time"

	gogotypes "github.com/gogo/protobuf/types"
	"github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/manager/state/store"
)

// setBack makes the store what it would be had every clock been set back by d
// just now: all that is written in it lies that much later.
func (s *sim) setBack(d time.Duration) {
	s.t.Helper()
	move := func(ts **gogotypes.Timestamp) {
		if *ts != nil {
			*ts = timestamp(timeOf(*ts).Add(d))
		}
	}
	s.update(func(tx store.Tx) error {
		tasks, err := store.FindTasks(tx, store.All)
		if err != nil {
			return err
		}
		for _, t := range tasks {
			move(&t.Meta.CreatedAt)
			move(&t.Status.Timestamp)
			move(&t.Status.AppliedAt)
			for _, key := range []string{LabelDue, LabelStopped, LabelGranted, LabelProven} {
				if at := labelTime(t, key); !at.IsZero() {
					setLabel(t, key, formatTime(at.Add(d)))
				}
			}
			if times := labelTimes(t); len(times) > 0 {
				for i := range times {
					times[i] = times[i].Add(d)
				}
				setLabel(t, LabelTimes, formatTimes(times))
			}
			if err := store.UpdateTask(tx, t); err != nil {
				return err
			}
		}
		return nil
	})
}

// TestClockSetBackInARollout: what a task proved, and what it has not proved,
// does not wait until the clock is as late again; nor does the stop of an old
// task that hangs.
func TestClockSetBackInARollout(t *testing.T) {
	for _, order := range []api.UpdateConfig_UpdateOrder{api.UpdateConfig_STOP_FIRST, api.UpdateConfig_START_FIRST} {
		simulate(t, 2, func(s *sim) {
			s.create(simSpec(2, func(spec *api.ServiceSpec) {
				spec.Update.Order, spec.Update.Parallelism = order, 1
				spec.Update.Monitor = gogotypes.DurationProto(20 * time.Second)
			}))
			s.awaitServing("v1", 2)
			s.watch.reset()
			s.image("v2")
			s.await(time.Minute, "the first new task", func() bool { return s.images("v2") == 1 })
			time.Sleep(10 * time.Second)
			begin := time.Now()
			s.setBack(time.Hour)
			s.awaitStatus(api.UpdateStatus_COMPLETED)
			// What the first one proved before the jump nobody can tell.
			if took := time.Since(begin); took < 40*time.Second || took > time.Minute {
				t.Errorf("%s: the update took %v more", order, took)
			}
			if s.images("v2") != 2 {
				t.Errorf("%s: %s", order, s.dump())
			}
		})
	}
}

// TestClockSetBackInAWindow: failures before the jump count as if they had
// been at the jump, and no longer; a crash loop stays within its budget.
func TestClockSetBackInAWindow(t *testing.T) {
	simulate(t, 1, func(s *sim) {
		s.create(simSpec(1, restart(3, 0, 60)))
		s.awaitServing("v1", 1)
		fail := func(n int) {
			for range n {
				s.fail(s.serving()[0])
				s.awaitServing("v1", 1)
			}
		}
		fail(3)
		s.setBack(time.Hour)
		time.Sleep(5 * time.Second)
		if b := s.budget(); b.Used != 3 {
			t.Errorf("at the jump: %+v", b)
		}
		time.Sleep(time.Minute)
		if b := s.budget(); b.Used != 0 || b.Total != 3 {
			t.Errorf("after the window: %+v", b)
		}
		fail(3)
		s.fail(s.serving()[0])
		time.Sleep(time.Minute)
		if b := s.budget(); !b.Exhausted || len(s.serving()) != 0 || s.watch.made(1) != 7 {
			t.Errorf("a crash loop: %+v, %d tasks made\n%s", b, s.watch.made(1), s.dump())
		}
	})
}

// TestStampsOfTheFuture: all that is counted from is taken for now, once, and
// tasks of a slot stay in their order.
func TestStampsOfTheFuture(t *testing.T) {
	service := serviceOf(1)
	var v = View{Service: service, Nodes: upNodes("n1")}
	for i := range 3 {
		x := taskAt(1, "n1", api.TaskStateFailed, -time.Hour-time.Duration(i)*time.Minute)
		x.ID, x.DesiredState = fmt.Sprint("t", 9-i), api.TaskStateShutdown // newer ones have smaller IDs
		x.Spec = service.Spec.Task
		x.Status.AppliedAt = x.Meta.CreatedAt
		setLabel(x, LabelExhausted, "3 attempts")
		markExhausted(x)
		setLabel(x, LabelGranted, formatTime(epoch.Add(time.Hour)))
		setLabel(x, LabelStopped, formatTime(epoch.Add(time.Hour)))
		setLabel(x, LabelTimes, formatTimes([]time.Time{epoch.Add(-time.Second), epoch.Add(time.Hour)}))
		v.Tasks = append(v.Tasks, x)
	}
	order := func() (ids []string) {
		for _, x := range newSituation(v, epoch).slots[0].tasks {
			ids = append(ids, x.ID)
		}
		return ids
	}
	before := fmt.Sprint(order())
	changes, _ := Plan(v, epoch)
	if len(changes) != 1 || len(changes[0].Update) != 3 || len(changes[0].Create) != 0 {
		t.Fatalf("%+v", changes)
	}
	v = v.with(changes[0])
	if after := fmt.Sprint(order()); after != before {
		t.Errorf("in the order %s, before %s", after, before)
	}
	for _, x := range v.Tasks {
		created := epoch.Sub(createdAt(x))
		if created < 0 || created > 2 || !since(x).Equal(epoch) || label(x, LabelGranted) != formatTime(epoch) || label(x, LabelStopped) != formatTime(epoch) ||
			label(x, LabelTimes) != formatTimes([]time.Time{epoch.Add(-time.Second), epoch}) {
			t.Errorf("%s: created %v ago, %+v", x.ID, created, x)
		}
	}
	if changes, _ := Plan(v, epoch); len(changes) != 0 {
		t.Errorf("then: %+v", changes)
	}
}
