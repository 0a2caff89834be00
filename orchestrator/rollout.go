// SPDX-License-Identifier: BSD-2-Clause

package orchestrator

import (
	"fmt"
	"slices"
	"time"

	"github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/api/defaults"
)

// rollout is how a service goes from one spec to another, as the service
// itself says.
type rollout struct {
	config rolloutConfig
	id     string // names it on tasks: its begin and the spec version it goes to
	active bool   // under way
	paused bool   // until the next update
	back   bool   // it is a rollback
}

// rolloutConfig is an update or rollback config with its defaults filled in.
type rolloutConfig struct {
	parallelism int // 0: all slots at a time
	window      time.Duration
	startFirst  bool
	action      api.UpdateConfig_FailureAction
	ratio       float32
}

func rolloutOf(s *api.Service) rollout {
	r := rollout{}
	if u := s.UpdateStatus; u != nil {
		if u.StartedAt != nil {
			r.id = formatTime(timeOf(u.StartedAt))
			if s.SpecVersion != nil {
				r.id = fmt.Sprintf("%s/%d", r.id, s.SpecVersion.Index)
			}
		}
		switch u.State {
		case api.UpdateStatus_UPDATING:
			r.active = true
		case api.UpdateStatus_PAUSED:
			r.paused = true
		case api.UpdateStatus_ROLLBACK_STARTED:
			r.active, r.back = true, true
		case api.UpdateStatus_ROLLBACK_PAUSED:
			r.paused, r.back = true, true
		case api.UpdateStatus_ROLLBACK_COMPLETED:
			r.back = true
		}
	}
	c, unset := s.Spec.Update, defaults.Service.Update
	if r.back {
		c, unset = s.Spec.Rollback, defaults.Service.Rollback
	}
	if c == nil {
		c = unset
	}
	r.config = rolloutConfig{
		parallelism: int(min(c.Parallelism, 1<<30)),
		// A delay longer than the monitor would hide failures in between
		// (cases/update.md, update-2).
		window:     max(duration(c.Monitor, duration(unset.Monitor, 0)), c.Delay),
		startFirst: c.Order == api.UpdateConfig_START_FIRST,
		action:     c.FailureAction,
		ratio:      c.MaxFailureRatio,
	}
	return r
}

// unproven tells whether a rollout made a task that has not proved itself.
func unproven(t *api.Task) bool {
	return label(t, LabelRollout) != "" && label(t, LabelProven) == ""
}

// attempted tells whether a rollout made a task for a slot.
func attempted(sl *slot, id string) bool {
	for _, t := range sl.tasks {
		if label(t, LabelRollout) == id {
			return true
		}
	}
	return false
}

// failure is the newest task of a slot that failed as part of a rollout, nil
// if there is none or the slot has proved itself since. A restart that only
// inherits the failure stands for it once its predecessor is deleted.
func failure(sl *slot, id string) (found *api.Task) {
	live := sl.live()
	dead := slices.DeleteFunc(slices.Clone(sl.tasks), func(t *api.Task) bool { return slices.Contains(live, t) })
	for _, t := range append(live, dead...) { // newest first
		switch {
		case label(t, LabelFailed) != id:
		case label(t, LabelProven) != "":
			return nil
		case found == nil || !tells(found):
			found = t
		}
	}
	return found
}

// tells whether a task that counts as failed says why.
func tells(t *api.Task) bool { return ended(t) || label(t, LabelReason) != "" }
