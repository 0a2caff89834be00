// SPDX-License-Identifier: BSD-2-Clause

package orchestrator

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/manager/state/store"
)

// MayReplace tells whether an unhealthy task may be stopped and replaced now,
// and whether that has to be written down first. Without the service label
// satl.health.replace-parallelism=N the answer is yes. With it a task is
// granted its turn while fewer than N slots of the service are under
// replacement: granted, and not RUNNING again since, nor past the deadline of
// the successor's start, nor given up by the restart budget.
//
// Rules: spec/healthchecks.txt ("The second difference"), cases/budget.md,
// budget-7.
func MayReplace(v View, taskID string, now time.Time) (may, grant bool) {
	if v.Service == nil || !ours(v.Service) {
		return true, false
	}
	limit, err := strconv.Atoi(v.Service.Spec.Annotations.Labels[LabelParallelism])
	if err != nil || limit <= 0 {
		return true, false
	}
	s := newSituation(v, now)
	busy := 0
	for _, sl := range s.slots {
		for _, t := range sl.tasks {
			if t.ID != taskID {
				continue
			}
			if t.DesiredState > api.TaskStateRunning || ended(t) || s.granted(sl, t) {
				return true, false // it is on its way out already
			}
		}
		if s.replacing(sl) {
			busy++
		}
	}
	return busy < limit, busy < limit
}

// granted tells whether a task holds a grant and is still expected to use it.
// A task that passed again before it heard of its turn keeps running; its
// grant is void after the time that a stop takes.
func (s *situation) granted(sl *slot, t *api.Task) bool {
	at := labelTime(t, LabelGranted)
	return !at.IsZero() && at.Add(stopBound(t)).After(s.now)
}

// replacing tells whether a slot is under replacement.
func (s *situation) replacing(sl *slot) bool {
	var next *api.Task // the newest that is wanted
	for _, t := range sl.tasks {
		switch {
		case label(t, LabelGranted) == "":
			if next == nil && t.DesiredState <= api.TaskStateRunning {
				next = t
			}
			if t.Status.State == api.TaskStateRunning && t.DesiredState == api.TaskStateRunning {
				return false // it runs again
			}
			continue
		case !ended(t) && t.DesiredState <= api.TaskStateRunning:
			return s.granted(sl, t)
		case next == nil:
			// Nothing follows it yet, or never will.
			_, exhausted := Exhausted(t)
			return !exhausted && label(t, LabelEnd) == "" && sl.last() == t
		}
		at, _ := s.startDeadline(sl, next)
		return at.IsZero() || at.After(s.now)
	}
	return false
}

// MayReplace answers for a task of the store, on the leader, and writes the
// grant down so that the next leader knows of it. An error means that nobody
// can tell: the task stays, out of traffic, and its node asks again.
func (o *Orchestrator) MayReplace(ctx context.Context, taskID string) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	decide := func(tx store.ReadTx) (t *api.Task, may, grant bool, err error) {
		if t = store.GetTask(tx, taskID); t == nil {
			return nil, true, false, nil // it is nobody's any more
		}
		v, err := viewOf(tx, t.ServiceID)
		if err != nil {
			return t, false, false, fmt.Errorf("read service of task %s: %w", taskID, err)
		}
		may, grant = MayReplace(v, taskID, time.Now())
		return t, may, grant, nil
	}
	var may, grant bool
	var err error
	o.store.View(func(tx store.ReadTx) { _, may, grant, err = decide(tx) })
	if err != nil || !grant {
		return may, err
	}
	err = o.store.Update(func(tx store.Tx) error {
		var t *api.Task
		var err error
		if t, may, grant, err = decide(tx); err != nil || !grant {
			return err
		}
		setLabel(t, LabelGranted, formatTime(time.Now()))
		return store.UpdateTask(tx, t)
	})
	if err != nil {
		return false, fmt.Errorf("grant the replacement of task %s: %w", taskID, err)
	}
	return may, nil
}
