// SPDX-License-Identifier: BSD-2-Clause

package orchestrator

import (
	"errors"
	"time"

	"github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/manager/state/store"
)

// Change is a change of the store that takes place whole or not at all, and
// only if what it was decided on is still so.
type Change struct {
	Why     string
	Service *api.Service // as it is to be; nil: it stays
	Update  []*api.Task  // as they are to be
	Create  []*api.Task
	Delete  []*api.Task
	// Unchanged are tasks that the decision rests on.
	Unchanged []*api.Task
}

// Plan gives the changes to make for a service now and, where there are none,
// the time to look again; the zero time is when the store changes. After the
// changes were made there may be more: the first planner with anything to do
// decides alone.
func Plan(v View, now time.Time) (changes []Change, next time.Time) {
	if v.Service == nil {
		return planOrphans(v), time.Time{}
	}
	if !ours(v.Service) {
		return nil, time.Time{}
	}
	s := newSituation(v, now)
	for _, planner := range []func() []Change{s.planClock, s.planRestarts, s.planRollout, s.planReplicas} {
		if changes := planner(); len(changes) > 0 {
			return changes, time.Time{}
		}
	}
	return nil, s.next
}

// errChanged means that the store changed under a decision: nothing was
// written, and the next plan decides anew.
var errChanged = errors.New("the store changed meanwhile")

// apply writes a change in a transaction, or returns errChanged before it
// writes anything.
func (c Change) apply(tx store.Tx, v View) error {
	if err := c.holds(tx, v); err != nil {
		return err
	}
	if c.Service != nil {
		if err := store.UpdateService(tx, c.Service.Copy()); err != nil {
			return err
		}
	}
	for _, t := range c.Update {
		if err := store.UpdateTask(tx, t.Copy()); err != nil {
			return err
		}
	}
	for _, t := range c.Create {
		if err := store.CreateTask(tx, t.Copy()); err != nil {
			return err
		}
	}
	for _, t := range c.Delete {
		if err := store.DeleteTask(tx, t.ID); err != nil {
			return err
		}
	}
	return nil
}

// holds tells whether the store still is what the change was decided on: the
// service, the tasks named, and no task more in a slot that gets one.
func (c Change) holds(tx store.ReadTx, v View) error {
	if v.Service != nil {
		now := store.GetService(tx, v.Service.ID)
		if now == nil || now.Meta.Version != v.Service.Meta.Version {
			return errChanged
		}
	}
	if v.Service == nil && len(v.Tasks) > 0 && store.GetService(tx, v.Tasks[0].ServiceID) != nil {
		return errChanged
	}
	for _, tasks := range [][]*api.Task{c.Update, c.Delete, c.Unchanged} {
		for _, t := range tasks {
			now := store.GetTask(tx, t.ID)
			if now == nil || now.Meta.Version != t.Meta.Version {
				return errChanged
			}
		}
	}
	if len(c.Create) == 0 {
		return nil
	}
	known := make(map[string]bool, len(v.Tasks))
	for _, t := range v.Tasks {
		known[t.ID] = true
	}
	for _, t := range c.Create {
		by := store.BySlot(t.ServiceID, t.Slot)
		if t.Slot == 0 {
			by = store.ByNodeID(t.NodeID)
		}
		there, err := store.FindTasks(tx, by)
		if err != nil {
			return err
		}
		for _, o := range there {
			if o.ServiceID == t.ServiceID && !known[o.ID] {
				return errChanged
			}
		}
	}
	return nil
}
