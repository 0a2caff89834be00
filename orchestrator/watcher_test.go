// SPDX-License-Identifier: BSD-2-Clause

package orchestrator

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/manager/state/store"
)

// watcher checks what must hold in the store after each single commit, and
// counts what happened.
type watcher struct {
	s  *sim
	mu sync.Mutex

	before  map[string]*api.Task
	service *api.Service
	down    map[slotKey]uint64   // slots that a rollout took down -> spec version of what is to come
	kept    map[string]slotKey   // tasks that a rollback must leave alone
	runs    map[string]time.Time // since when tasks are RUNNING
	created map[slotKey][]string // IDs of all tasks ever, by slot
	minimum int                  // the fewest serving tasks since it was reset
	unfit   map[string]time.Time // when nodes were last seen as not to run the service
	oddity  []string
}

func newWatcher(s *sim) *watcher {
	return &watcher{s: s, down: map[slotKey]uint64{}, runs: map[string]time.Time{}, created: map[slotKey][]string{}, unfit: map[string]time.Time{}, minimum: 1 << 30}
}

// reset starts counting the fewest serving tasks anew.
func (w *watcher) reset() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.minimum = 1 << 30
}

func (w *watcher) fewest() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.minimum
}

// made counts the tasks that were ever made in a slot.
func (w *watcher) made(slot uint64) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.created[slotKey{number: slot}])
}

func (w *watcher) total() (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, ids := range w.created {
		n += len(ids)
	}
	return n
}

func (w *watcher) odd(format string, args ...any) {
	if len(w.oddity) < 5 {
		w.oddity = append(w.oddity, time.Now().Format("04:05.000 ")+fmt.Sprintf(format, args...)+"\nat a time when "+w.s.dump())
	}
}

func (w *watcher) check() {
	w.mu.Lock()
	defer w.mu.Unlock()
	var svc *api.Service
	var list []*api.Task
	nodes := map[string]*api.Node{}
	w.s.store.View(func(tx store.ReadTx) {
		svc = store.GetService(tx, "web")
		list, _ = store.FindTasks(tx, store.ByServiceID("web"))
		all, _ := store.FindNodes(tx, store.All)
		for _, n := range all {
			nodes[n.ID] = n
		}
	})
	if svc == nil {
		return
	}
	now := time.Now()
	sit := newSituation(View{Service: svc, Tasks: list, Nodes: nodes}, now)
	for id, n := range nodes {
		if !sit.eligible(n) {
			w.unfit[id] = now
		}
	}
	serving := 0
	after := make(map[string]*api.Task, len(list))
	fresh := map[slotKey][]*api.Task{}
	for _, sl := range sit.slots {
		w.slot(sit, sl)
		for _, t := range append(sl.tasks, sl.gone...) {
			after[t.ID] = t
			if t.Status.State == api.TaskStateRunning {
				if w.runs[t.ID].IsZero() {
					w.runs[t.ID] = now
				}
				delete(w.down, sl.key)
				if t.DesiredState == api.TaskStateRunning {
					serving++
				}
			}
			if w.before[t.ID] == nil {
				fresh[sl.key] = append(fresh[sl.key], t)
				w.created[sl.key] = append(w.created[sl.key], t.ID)
			}
			if ended(t) && w.down[sl.key] == versionOf(t) {
				delete(w.down, sl.key) // it failed
			}
		}
		w.stops(sit, sl)
		if failure(sl, sit.roll.id) != nil || !sit.scope(sl) {
			delete(w.down, sl.key) // it failed, or is to go
		}
		if len(fresh[sl.key]) > 1 {
			w.odd("slot %v got %d tasks in one commit", sl.key, len(fresh[sl.key]))
		}
	}
	w.minimum = min(w.minimum, serving)
	if p := sit.roll.config.parallelism; p > 0 && !sit.roll.config.startFirst && len(w.down) > p {
		w.odd("%d slots are down for a rollout with parallelism %d: %v", len(w.down), p, w.down)
	}
	w.rollback(sit, after, fresh)
	w.before, w.service = after, svc
}

// slot checks what must hold in one slot at any time.
func (w *watcher) slot(s *situation, sl *slot) {
	wanted := 0
	for _, t := range sl.tasks {
		if t.DesiredState == api.TaskStateRunning {
			wanted++
		}
		if p := policyOf(t); p.max > 0 && p.window == 0 && tallyOf(t).count > p.max {
			w.odd("task %s of slot %v is attempt %d of %d", t.ID, sl.key, tallyOf(t).count, p.max)
		}
	}
	first := func(c *api.UpdateConfig) bool { return c != nil && c.Order == api.UpdateConfig_START_FIRST }
	if wanted > 1 && !first(s.Service.Spec.Update) && !first(s.Service.Spec.Rollback) {
		w.odd("slot %v has %d tasks in desired state RUNNING", sl.key, wanted)
	}
}

// stops checks the tasks that were told to stop in this commit while they ran.
func (w *watcher) stops(s *situation, sl *slot) {
	for _, t := range sl.tasks {
		old := w.before[t.ID]
		if old == nil || old.DesiredState > api.TaskStateRunning || t.DesiredState <= api.TaskStateRunning {
			continue
		}
		if old.Status.State != api.TaskStateRunning || s.lost(t) || !s.scope(sl) || ended(t) {
			continue
		}
		if at, ok := w.unfit[t.NodeID]; ok && s.now.Sub(at) < time.Second {
			continue // it was decided while the node was out
		}
		// A rollout did it.
		proof := false
		prepared := false
		for _, o := range sl.live() {
			ran := w.runs[o.ID]
			proof = proof || o.Status.State == api.TaskStateRunning && !ran.IsZero() && s.now.Sub(ran)+w.s.prop.later >= s.roll.config.window // a report may be late
			prepared = prepared || o.Status.State >= api.TaskStateReady && !ended(o) || strings.HasPrefix(o.Status.Err, "no suitable node")
		}
		switch {
		case s.roll.paused:
			w.odd("task %s was stopped by a rollout that is paused", t.ID)
		case s.roll.config.startFirst && !proof:
			w.odd("task %s of slot %v was stopped before another proved itself", t.ID, sl.key)
		case !prepared:
			w.odd("task %s of slot %v was stopped before another was prepared", t.ID, sl.key)
		case !proof:
			for _, o := range sl.live() {
				w.down[sl.key] = versionOf(o)
			}
		}
	}
}

// rollback checks that a rollback leaves those slots alone that were not
// changed.
func (w *watcher) rollback(s *situation, after map[string]*api.Task, fresh map[slotKey][]*api.Task) {
	back := s.roll.back && s.roll.active
	if !back {
		w.kept = nil
		return
	}
	if w.kept == nil || w.service != nil && w.service.UpdateStatus != nil && !w.service.UpdateStatus.StartedAt.Equal(s.Service.UpdateStatus.StartedAt) {
		w.kept = map[string]slotKey{}
		for _, sl := range s.slots {
			for _, t := range sl.live() {
				if !s.dirty(t) && s.scope(sl) {
					w.kept[t.ID] = sl.key
				}
			}
		}
		return
	}
	for id, key := range w.kept {
		t := after[id]
		if t == nil || ended(t) || s.lost(t) || s.extra[key] || t.DesiredState >= api.TaskStateRemove || isGlobal(s.Service) && !s.eligible(s.Nodes[t.NodeID]) {
			delete(w.kept, id) // by itself, or because of its node or of the scale
			continue
		}
		if t.DesiredState > api.TaskStateRunning {
			two := false // of one spec in a slot, as when scaling met an update
			for _, o := range after {
				two = two || o.ID != id && o.Slot == t.Slot && o.NodeID == t.NodeID && w.kept[o.ID] == key
			}
			if !two {
				w.odd("task %s was untouched by the update and stopped by the rollback", id)
			}
			delete(w.kept, id)
		}
		for _, o := range fresh[key] {
			w.odd("task %s was made by a rollback in slot %v, which has %s", o.ID, key, id)
		}
	}
}
