// SPDX-License-Identifier: BSD-2-Clause

package jail

import (
	"context"
	"io"
	"sync"
	"time"
)

// prober is how a system runs a command in a container and ends all that it
// started.
type prober interface {
	// run: see Runtime.RunProbe. argv is not empty.
	run(kill context.Context, id string, argv []string, out io.Writer, started func()) (exitCode int, err error)
	// forget lets go of what was read of a container.
	forget(id string)
	close()
}

// killLimit is how long a killed probe may take to be gone. A process that
// does not die within it hangs in the kernel, and the caller must not.
const killLimit = 30 * time.Second

// RunProbe: see Runtime.
func (m *Manager) RunProbe(kill context.Context, id string, argv []string, out io.Writer, started func()) (int, error) {
	if err := checkID(id); err != nil {
		return -1, err
	}
	if len(argv) == 0 || argv[0] == "" {
		return -1, invalid("no command specified")
	}
	kill, leave := m.attempts.enter(kill, id)
	defer leave()
	// After it was entered, so that Pause and Delete either see the attempt or
	// are seen.
	if err := m.mustNotPause(id); err != nil {
		return -1, err
	}
	if m.deleting.has(id) {
		return -1, notRunning(id)
	}
	return m.probes.run(kill, id, argv, out, started)
}

// attempts are the probes that run now.
type attempts struct {
	mu      sync.Mutex
	running map[string]map[*attempt]struct{} // by container
}

// attempt is one command that runs.
type attempt struct {
	cancel context.CancelFunc
	done   chan struct{}
}

func (as *attempts) enter(ctx context.Context, id string) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	a := &attempt{cancel: cancel, done: make(chan struct{})}
	as.mu.Lock()
	if as.running == nil {
		as.running = make(map[string]map[*attempt]struct{})
	}
	if as.running[id] == nil {
		as.running[id] = make(map[*attempt]struct{})
	}
	as.running[id][a] = struct{}{}
	as.mu.Unlock()
	return ctx, func() {
		cancel()
		as.mu.Lock()
		delete(as.running[id], a)
		if len(as.running[id]) == 0 {
			delete(as.running, id)
		}
		as.mu.Unlock()
		close(a.done)
	}
}

// abort kills the probes of a container that run now and waits for their end.
func (as *attempts) abort(ctx context.Context, id string) error {
	as.mu.Lock()
	var dones []chan struct{}
	for a := range as.running[id] {
		a.cancel()
		dones = append(dones, a.done)
	}
	as.mu.Unlock()
	for _, done := range dones {
		select {
		case <-done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// marks are containers to which something is being done. Marks count.
type marks struct {
	mu  sync.Mutex
	set map[string]int
}

func (k *marks) add(id string) (remove func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.set == nil {
		k.set = make(map[string]int)
	}
	k.set[id]++
	return func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.set[id]--; k.set[id] == 0 {
			delete(k.set, id)
		}
	}
}

func (k *marks) has(id string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.set[id] > 0
}
