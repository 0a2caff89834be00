// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"slices"
	"sync"
	"time"

	"github.com/docker/docker/api/types/container"

	"satld/jail"
)

const (
	// execKept is how long an exec that ended, or was never started, can
	// still be inspected: Docker forgets after five to ten minutes.
	execKept = 10 * time.Minute
	// execMax bounds how many of those are kept. Running ones are not
	// counted: they are bounded by the processes of their containers.
	execMax = 1024
)

// execState is where an exec is in its life.
type execState int

const (
	execCreated execState = iota
	execRunning
	execEnded
)

// execution is one `exec`: a value to read. The registry's own is changed
// through its methods only.
type execution struct {
	id        string
	container string // container ID
	options   container.ExecOptions
	keys      []byte // detach keys
	state     execState
	since     time.Time    // of its state
	process   jail.Process // nil until it runs
	pid       int
	code      int // once ended
}

// execRegistry remembers the execs of this daemon's life. The zero value is
// ready to use.
type execRegistry struct {
	mu  sync.Mutex
	all map[string]*execution
}

// add registers a new exec and returns its ID.
func (g *execRegistry) add(containerID string, options container.ExecOptions, keys []byte, now time.Time) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.forget(now)
	if g.all == nil {
		g.all = make(map[string]*execution)
	}
	e := &execution{id: newID(), container: containerID, options: options, keys: keys, since: now}
	g.all[e.id] = e
	return e.id
}

// forget drops what does not run and is too old or too much.
func (g *execRegistry) forget(now time.Time) {
	var idle []*execution
	for id, e := range g.all {
		switch {
		case e.state == execRunning:
		case now.Sub(e.since) > execKept:
			delete(g.all, id)
		default:
			idle = append(idle, e)
		}
	}
	if len(idle) < execMax {
		return
	}
	slices.SortFunc(idle, func(a, b *execution) int { return cmp.Or(a.since.Compare(b.since), cmp.Compare(a.id, b.id)) })
	for _, e := range idle[:len(idle)-execMax+1] {
		delete(g.all, e.id)
	}
}

func (g *execRegistry) get(id string) (execution, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	e, ok := g.all[id]
	if !ok {
		return execution{}, false
	}
	return *e, true
}

// begin claims an exec for its one run.
func (g *execRegistry) begin(id string, now time.Time) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	e, ok := g.all[id]
	switch {
	case !ok:
		return errNoSuchExec(id)
	case e.state == execEnded:
		return errConflict("exec command %s has already run", id)
	case e.state == execRunning:
		return errConflict("exec command %s is already running", id)
	}
	e.state, e.since = execRunning, now
	return nil
}

// runs records the process of an exec that was begun.
func (g *execRegistry) runs(id string, p jail.Process) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if e, ok := g.all[id]; ok {
		e.process, e.pid = p, p.Pid()
	}
}

// end records how an exec ended.
func (g *execRegistry) end(id string, code int, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if e, ok := g.all[id]; ok {
		e.state, e.code, e.since, e.process = execEnded, code, now, nil
	}
}

// of names the execs of a container that have not ended; nil when there is none.
func (g *execRegistry) of(containerID string) []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	var ids []string
	for id, e := range g.all {
		if e.container == containerID && e.state != execEnded {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

func errNoSuchExec(id string) error { return errNotFound("No such exec instance: %s", id) }

// newID makes an identifier as Docker's are: 64 hex digits.
func newID() string {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}
