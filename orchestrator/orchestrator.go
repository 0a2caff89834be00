// SPDX-License-Identifier: BSD-2-Clause

package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/docker/go-events"
	"github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/manager/state"
	"github.com/moby/swarmkit/v2/manager/state/store"
)

const (
	// fullPeriod is how often everything is looked at: an event that was
	// missed is mere latency.
	fullPeriod = time.Second
	// fullShare bounds the time that full passes take of a large store's
	// leader: at most one part in this many.
	fullShare = 20
	// retryWait is the wait after a write that did not take place, or of which
	// nobody can tell yet.
	retryWait = 200 * time.Millisecond
	// maxRounds is how often one service is planned in one pass, so that no
	// other waits for it.
	maxRounds = 16
)

// Orchestrator is the loop that looks after the services of the store while
// this node leads.
type Orchestrator struct {
	store *store.MemoryStore
	log   *slog.Logger
}

// New makes an orchestrator that is not running yet.
func New(s *store.MemoryStore, log *slog.Logger) *Orchestrator {
	return &Orchestrator{store: s, log: log}
}

// agenda is what the loop is to look at, and when. All of it is derived anew
// by the next full pass.
type agenda struct {
	services map[string]time.Time // by service ID
	full     time.Time
}

// ask moves a look at a service forward to a time.
func (a *agenda) ask(serviceID string, at time.Time) {
	if old, ok := a.services[serviceID]; serviceID != "" && (!ok || at.Before(old)) {
		a.services[serviceID] = at
	}
}

// first is the time of the first look that is due.
func (a *agenda) first() time.Time {
	at := a.full
	for _, t := range a.services {
		if t.Before(at) {
			at = t
		}
	}
	return at
}

// Run looks after the services until ctx is done. Each change of the store
// nudges it to look at the service concerned; everything is looked at once a
// second (less often if that takes long).
func (o *Orchestrator) Run(ctx context.Context) error {
	watch, cancel := state.Watch(o.store.WatchQueue(),
		api.EventCreateService{}, api.EventUpdateService{}, api.EventDeleteService{},
		api.EventCreateTask{}, api.EventUpdateTask{}, api.EventDeleteTask{},
		api.EventCreateNode{}, api.EventUpdateNode{}, api.EventDeleteNode{},
	)
	defer cancel()
	a := &agenda{services: map[string]time.Time{}}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case event := <-watch:
			a.note(event)
			for more := true; more; {
				select {
				case event := <-watch:
					a.note(event)
				default:
					more = false
				}
			}
		case <-timer.C:
		}
		o.pass(ctx, a)
		timer.Reset(time.Until(a.first()))
	}
}

// note turns an event into what is to be looked at.
func (a *agenda) note(event events.Event) {
	now := time.Now()
	switch e := event.(type) {
	case api.EventCreateService:
		a.ask(e.Service.ID, now)
	case api.EventUpdateService:
		a.ask(e.Service.ID, now)
	case api.EventDeleteService:
		a.ask(e.Service.ID, now)
	case api.EventCreateTask:
		a.ask(e.Task.ServiceID, now)
	case api.EventUpdateTask:
		a.ask(e.Task.ServiceID, now)
	case api.EventDeleteTask:
		a.ask(e.Task.ServiceID, now)
	default:
		a.full = now // a node may concern any service
	}
}

// pass looks at everything that is due.
func (o *Orchestrator) pass(ctx context.Context, a *agenda) {
	begun := time.Now()
	if !a.full.After(begun) {
		if err := o.full(a, begun); err != nil {
			o.log.Error("services could not be read", "error", err)
		}
		a.full = begun.Add(max(fullPeriod, fullShare*time.Since(begun)))
	}
	for id, at := range a.services {
		if at.After(begun) {
			continue
		}
		delete(a.services, id)
		next, err := o.settle(ctx, id)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			// What was written is not known: everything is read again.
			a.ask(id, time.Now().Add(retryWait))
			if !cerrdefs.IsUnavailable(err) {
				o.log.Error(unwritten, "service_id", id, "error", err)
			}
			continue
		}
		if !next.IsZero() {
			a.ask(id, next)
		}
	}
}

// full asks for a look at each service that has anything to do.
func (o *Orchestrator) full(a *agenda, now time.Time) (err error) {
	var views map[string]View
	o.store.View(func(tx store.ReadTx) { views, err = allViews(tx) })
	if err != nil {
		return err
	}
	for id, v := range views {
		changes, next := Plan(v, now)
		switch {
		case len(changes) > 0:
			a.ask(id, now)
		case !next.IsZero():
			a.ask(id, next)
		}
	}
	return nil
}

// settle plans and writes for one service until nothing is left to do, and
// tells when to look again.
func (o *Orchestrator) settle(ctx context.Context, serviceID string) (time.Time, error) {
	for range maxRounds {
		if err := ctx.Err(); err != nil {
			return time.Time{}, err
		}
		var v View
		var err error
		o.store.View(func(tx store.ReadTx) { v, err = viewOf(tx, serviceID) })
		if err != nil {
			return time.Time{}, fmt.Errorf("read service %s: %w", serviceID, err)
		}
		changes, next := Plan(v, time.Now())
		if len(changes) == 0 {
			return next, nil
		}
		if err := o.write(ctx, v, changes); err != nil {
			return time.Time{}, fmt.Errorf("write service %s: %w", serviceID, err)
		}
	}
	o.log.Warn(restless, "service_id", serviceID, "rounds", maxRounds)
	return time.Now().Add(retryWait), nil
}

// unwritten is logged of a service when a write failed for a reason of its own.
const unwritten = "service could not be brought to its spec; it is retried"

// restless is logged of a service that many changes at once did not bring to
// rest. None is known that needs so many.
const restless = "service does not come to rest"

// write makes changes, each whole or not at all. What the store does not hold
// any more as it was is left to the next plan.
func (o *Orchestrator) write(ctx context.Context, v View, changes []Change) error {
	return o.store.Batch(func(batch *store.Batch) error {
		for _, c := range changes {
			if err := ctx.Err(); err != nil {
				return err
			}
			err := batch.Update(func(tx store.Tx) error { return c.apply(tx, v) })
			switch {
			case errors.Is(err, errChanged):
				continue
			case err != nil:
				return err
			}
			o.tell(v, c)
		}
		return nil
	})
}

// tell logs what operators look for afterwards; the rest is debugging.
func (o *Orchestrator) tell(v View, c Change) {
	level := slog.LevelDebug
	args := []any{"why", c.Why}
	if v.Service != nil {
		args = append(args, "service", v.Service.Spec.Annotations.Name)
	}
	for _, t := range c.Update {
		args = append(args, "task_id", t.ID)
		if c.Why == whyExhausted {
			level = slog.LevelWarn
			args = append(args, "err", t.Status.Err)
		}
	}
	if c.Service != nil {
		level = slog.LevelInfo
	}
	for _, t := range c.Create {
		args = append(args, "new_task_id", t.ID)
	}
	o.log.Log(context.Background(), level, "service is brought to its spec", args...)
}
