// SPDX-License-Identifier: BSD-2-Clause

package mesh

import (
	"context"
	"log/slog"
	"maps"
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
	// one with the larger Seq is newer. Boot is random, anew with each daemon.
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

// Teller tells the managers who serves on this node.
type Teller struct {
	Boot string
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

// Report is what this node says now. Seq is the time: it only has to grow.
func (t *Teller) Report() Report {
	members, _ := t.Own()
	return Report{Boot: t.Boot, Seq: uint64(time.Now().UnixNano()), Tasks: tasksOf(members)}
}

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
		members, moved := t.Own()
		tasks := tasksOf(members)
		managers := make(map[string]bool)
		for _, addr := range t.Managers() {
			managers[addr] = true
			if busy[addr] || told[addr] != nil && maps.Equal(told[addr], tasks) || time.Since(failed[addr]) < tellRetry {
				continue
			}
			busy[addr] = true
			r := Report{Boot: t.Boot, Seq: uint64(time.Now().UnixNano()), Tasks: tasks}
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
