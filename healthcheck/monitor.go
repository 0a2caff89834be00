// SPDX-License-Identifier: BSD-2-Clause

package healthcheck

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Options are what a Monitor works with; every field may be zero.
type Options struct {
	Slots      int                   // attempts at a time that run a command; 0 is DefaultSlots
	LightSlots int                   // attempts at a time of the other kinds; 0 is DefaultLightSlots
	Logger     *slog.Logger          // nil is slog.Default()
	Registerer prometheus.Registerer // nil registers no metrics
}

// Monitor owns every probe of the node. Run is its one goroutine: it holds the
// timer, starts the attempts and folds their results; only the attempts
// themselves run beside it. What it knows is read without asking it.
//
// Its methods are safe for concurrent use, also before Run was called. All but
// Remove and Pause return at once, also from within a Changed callback.
type Monitor struct {
	log     *slog.Logger
	metrics metrics

	mu       sync.RWMutex
	registry map[string]*watched   // by container ID
	adopted  uint64                // how many were taken over: the spread of their first probes
	commands []func(now time.Time) // for the loop, in order
	running  bool                  // Run was called; before, nothing can be in flight

	nudge   chan struct{} // commands has some
	results chan ended
	stopped chan struct{} // closed when Run has returned
	left    error         // why Run's end was not clean; set before stopped is closed

	// The loop's own.
	execs, lights lane
	attempts      map[string]*attempt // in flight, by container ID: never two of one container
}

// lane is a line of containers that wait for a probe, and the slots it leads to.
type lane struct {
	due   queue
	slots int
	busy  int // slots taken
}

// lanes are all there are.
func (m *Monitor) lanes() [2]*lane { return [2]*lane{&m.execs, &m.lights} }

// laneOf is the one for a kind of probe.
func (m *Monitor) laneOf(k Kind) *lane {
	if k == Exec {
		return &m.execs
	}
	return &m.lights
}

// ended is an attempt's result on its way back to the loop.
type ended struct {
	attempt *attempt
	result  Result
}

// NewMonitor makes a monitor that watches nothing yet.
func NewMonitor(o Options) *Monitor {
	return &Monitor{
		execs:    lane{slots: cmp.Or(max(o.Slots, 0), DefaultSlots)},
		lights:   lane{slots: cmp.Or(max(o.LightSlots, 0), DefaultLightSlots)},
		log:      cmp.Or(o.Logger, slog.Default()),
		metrics:  newMetrics(o.Registerer),
		registry: make(map[string]*watched),
		nudge:    make(chan struct{}, 1),
		results:  make(chan ended),
		stopped:  make(chan struct{}),
		attempts: make(map[string]*attempt),
	}
}

// Watch begins to probe a container; Get knows it, as starting, from now on.
// One that is watched already starts afresh, and what its old incarnation
// still has in flight is abandoned.
func (m *Monitor) Watch(w Watch) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	w.Started = anchored(w.Started, now)
	e, old := newWatched(w, firstDue(w, now, m.adopted)), m.registry[w.ID]
	e.lane = m.laneOf(w.Settings.Kind)
	if w.Adopted {
		m.adopted++
	}
	m.registry[w.ID] = e
	m.tell(func(time.Time) {
		if old != nil {
			m.shelve(old)
		}
		e.lane.due.put(e)
	})
}

// Remove stops probing a container and abandons a probe in flight. It returns
// when nothing that probe started still runs, or with ctx's error. Changed is
// not called any more once it returned. An unknown container is no error.
func (m *Monitor) Remove(ctx context.Context, id string) error {
	asked := make(chan (<-chan struct{}), 1)
	m.mu.Lock()
	e := m.registry[id]
	delete(m.registry, id)
	m.tell(func(time.Time) {
		if e != nil {
			m.shelve(e)
		}
		asked <- m.inFlight(id) // an earlier incarnation's counts as well
	})
	running := m.running
	m.mu.Unlock()
	if !running {
		return nil
	}
	return m.await(ctx, asked)
}

// Pause stops probing a container until Resume, its health unchanged. A probe
// in flight is abandoned, not counted; Pause waits for its end, at most
// KillLimit, so call it before the container is frozen: a frozen process does
// not die.
func (m *Monitor) Pause(id string) {
	asked := make(chan (<-chan struct{}), 1)
	task, answered := m.command(id, func(e *watched, _ time.Time) {
		e.paused = true
		m.shelve(e)
		asked <- m.inFlight(id)
	})
	if !answered {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), KillLimit)
	defer cancel()
	if err := m.await(ctx, asked); err != nil {
		m.log.Warn("a probe of a paused container still runs", "task_id", task, "container", short(id), "err", err)
	}
}

// Resume takes up probing after Pause: the next probe is one wait from now.
func (m *Monitor) Resume(id string) {
	m.command(id, func(e *watched, now time.Time) {
		if e.paused {
			e.paused = false
			m.schedule(e, now)
			e.show()
		}
	})
}

// Get is a container's health as it is now; ok is false where it is not watched.
func (m *Monitor) Get(id string) (h Health, ok bool) {
	m.mu.RLock()
	e, ok := m.registry[id]
	m.mu.RUnlock()
	if !ok {
		return Health{}, false
	}
	return *e.shown.Load(), true
}

// All is the health of every watched container, by its ID.
func (m *Monitor) All() map[string]Health {
	m.mu.RLock()
	defer m.mu.RUnlock()
	all := make(map[string]Health, len(m.registry))
	for id, e := range m.registry {
		all[id] = *e.shown.Load()
	}
	return all
}

// command has the loop do something to a watched container. answered tells
// whether it will be soon: the container is known, and the loop runs.
func (m *Monitor) command(id string, do func(e *watched, now time.Time)) (task string, answered bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, ok := m.registry[id]
	if !ok {
		return "", false
	}
	m.tell(func(now time.Time) { do(e, now) })
	return e.TaskID, m.running
}

// tell hands a command to the loop; the caller holds mu, so that the order of
// commands is that of the registry's changes.
func (m *Monitor) tell(command func(now time.Time)) {
	m.commands = append(m.commands, command)
	select {
	case m.nudge <- struct{}{}:
	default:
	}
}

// await waits for the loop's answer, and then for the attempt it names, if any.
func (m *Monitor) await(ctx context.Context, asked <-chan (<-chan struct{})) error {
	var end <-chan struct{}
	select {
	case end = <-asked:
	case <-m.stopped:
		return m.left
	case <-ctx.Done():
		return ctx.Err()
	}
	if end == nil {
		return nil
	}
	select {
	case <-end:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
