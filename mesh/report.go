// SPDX-License-Identifier: BSD-2-Clause

package mesh

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"time"

	"satld/traffic"
)

// State is a task's place in traffic as its own node sees it.
type State string

const (
	Serving   State = "serving"
	Unhealthy State = "unhealthy" // runs and goes on running, out of traffic for its health alone
	Out       State = "out"       // starting, withdrawn, or to stop
)

// Report is what a node says of its tasks.
type Report struct {
	// Boot and Seq order the reports of a node: of two with the same Boot the
	// one with the larger Seq is newer, and those with the same Seq say the same.
	// Boot is random, anew with each daemon.
	Boot  string
	Seq   uint64
	Tasks map[string]State // by task ID
}

// stateOf is a member's state.
func stateOf(m traffic.Member) State {
	switch {
	case m.Serving && m.Process:
		return Serving
	case m.Unhealthy && m.Process:
		return Unhealthy
	}
	return Out
}

// tasksOf are the states of a node's tasks; what is no task is not told.
func tasksOf(members []traffic.Member) map[string]State {
	tasks := make(map[string]State, len(members))
	for _, m := range members {
		if m.TaskID != "" {
			tasks[m.TaskID] = stateOf(m)
		}
	}
	return tasks
}

// Life is one run of a daemon. Of its reports the one with the larger Seq has
// looked later, whatever becomes of the clock meanwhile.
type Life struct {
	name string

	mu   sync.Mutex
	last Report
}

// NewLife begins one, under a name that no other has.
func NewLife(name string) *Life { return &Life{name: name, last: Report{Boot: name}} }

// Name is its name, the Boot of its reports.
func (l *Life) Name() string { return l.name }

// Report is what a node says now of its members, own's, and the channel that own
// closes at the next change.
func (l *Life) Report(own func() ([]traffic.Member, <-chan struct{})) (r Report, moved <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	members, moved := own()
	if tasks := tasksOf(members); l.last.Seq == 0 || !maps.Equal(tasks, l.last.Tasks) {
		l.last = Report{Boot: l.name, Seq: l.last.Seq + 1, Tasks: tasks}
	}
	return l.last, moved
}

// Teller tells the managers who serves on this node.
type Teller struct {
	Life *Life
	// Own gives this node's members and a channel closed at the next change.
	Own func() ([]traffic.Member, <-chan struct{})
	// Managers are the addresses to tell; the node's own is not among them.
	Managers func() []string
	// Tell sends a report to one manager.
	Tell func(ctx context.Context, addr string, r Report) error
	Log  *slog.Logger
}

const (
	// tellBound bounds one attempt: what fails is told again after tellRetry,
	// and asked for by the manager itself in any case.
	tellBound = 2 * time.Second
	tellRetry = time.Second
)

// Run tells every manager of every change until ctx is done.
func (t *Teller) Run(ctx context.Context) error {
	told := make(map[string]map[string]State) // by manager
	type answer struct {
		addr  string
		tasks map[string]State // nil: it was not told
	}
	answers := make(chan answer)
	busy := make(map[string]bool)
	failed := make(map[string]time.Time)
	retry := time.NewTicker(tellRetry / 2)
	defer retry.Stop()
	for {
		r, moved := t.Life.Report(t.Own)
		managers := make(map[string]bool)
		for _, addr := range t.Managers() {
			managers[addr] = true
			if busy[addr] || told[addr] != nil && maps.Equal(told[addr], r.Tasks) || time.Since(failed[addr]) < tellRetry {
				continue
			}
			busy[addr] = true
			go func() {
				bounded, cancel := context.WithTimeout(ctx, tellBound)
				defer cancel()
				a := answer{addr: addr, tasks: r.Tasks}
				if err := t.Tell(bounded, addr, r); err != nil {
					t.Log.Debug("a manager was not told who serves here", "manager", addr, "error", err)
					a.tasks = nil
				}
				select {
				case answers <- a:
				case <-ctx.Done():
				}
			}()
		}
		maps.DeleteFunc(told, func(addr string, _ map[string]State) bool { return !managers[addr] })
		maps.DeleteFunc(failed, func(addr string, _ time.Time) bool { return !managers[addr] })
		select {
		case <-ctx.Done():
			return nil
		case <-moved:
		case <-retry.C:
		case a := <-answers:
			delete(busy, a.addr)
			delete(told, a.addr)
			delete(failed, a.addr)
			if a.tasks == nil {
				failed[a.addr] = time.Now() // not at once: the manager may be gone
			} else {
				told[a.addr] = a.tasks
			}
		}
	}
}
