// SPDX-License-Identifier: BSD-2-Clause

package executor

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"syscall"
	"time"

	cerrdefs "github.com/containerd/errdefs"

	"satld/jail"
)

// fakeRuntime runs nothing: a process lives until it is killed or ended by
// the test.
type fakeRuntime struct {
	jail.Runtime
	j  *journal
	mu sync.Mutex
	on map[string]*fakeProcess

	ignoreTerm bool
	failCreate error
	unmade     int                           // so many creates meet a shim that dies
	untold     error                         // what Running and Wait say of task1's container
	probe      func(id string) (int, string) // exit code and output
	printed    []string                      // lines of every container's log
	logsHang   bool
	names      []string             // runtime IDs that were created
	files      []jail.File          // of the last one created
	left       map[string]time.Time // until when a deleted jail is dying, by its name
	dies       time.Duration        // how long a jail takes to vanish after Delete
}

type fakeProcess struct {
	started time.Time
	done    chan struct{}
	exit    jail.Exit
	running bool
}

func (f *fakeRuntime) process(id string) *fakeProcess {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.on[id]
	if p == nil {
		p = &fakeProcess{done: make(chan struct{})}
		f.on[id] = p
	}
	return p
}

func (f *fakeRuntime) Create(_ context.Context, s jail.Spec) (int, error) {
	f.j.add("create")
	if f.failCreate != nil {
		return 0, f.failCreate
	}
	f.mu.Lock()
	if f.unmade > 0 {
		f.unmade--
		f.names = append(f.names, s.ID)
		f.mu.Unlock()
		return 0, fmt.Errorf("%w: EOF", jail.ErrUnmade)
	}
	f.names, f.files = append(f.names, s.ID), s.Files
	delete(f.on, s.ID)
	f.mu.Unlock()
	f.process(s.ID)
	return 42, nil
}

func (f *fakeRuntime) Start(_ context.Context, id string) (time.Time, error) {
	p := f.process(id)
	f.mu.Lock()
	defer f.mu.Unlock()
	if p.started.IsZero() {
		f.j.add("start")
		p.started, p.running = time.Now(), true
	}
	return p.started, nil
}

func (f *fakeRuntime) end(id string, code int) {
	p := f.process(id)
	f.mu.Lock()
	defer f.mu.Unlock()
	if p.running {
		p.running = false
		p.exit = jail.Exit{Code: code, At: time.Now()}
		close(p.done)
	}
}

func (f *fakeRuntime) Wait(ctx context.Context, id string) (jail.Exit, error) {
	p := f.process(id)
	select {
	case <-p.done:
		f.mu.Lock()
		defer f.mu.Unlock()
		return p.exit, nil
	case <-ctx.Done():
		return jail.Exit{}, ctx.Err()
	}
}

// AwaitGone leaves it to Wait; see goneRuntime.
func (f *fakeRuntime) AwaitGone(ctx context.Context, _ string) error {
	<-ctx.Done()
	return ctx.Err()
}

func (f *fakeRuntime) Running(_ context.Context, id string) (int, bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.untold != nil && id == taskContainerID("task1") {
		return 0, false, f.untold
	}
	p := f.on[id]
	if p == nil {
		return 0, false, cerrdefs.ErrNotFound.WithMessage("No such container: " + id)
	}
	return 42, p.running, nil
}

func (f *fakeRuntime) Kill(_ context.Context, id string, sig int) error {
	f.j.add("kill %d", sig)
	if sig == int(syscall.SIGTERM) && !f.ignoreTerm {
		f.end(id, 0) // exits 0 on its stop signal
	}
	if sig == int(syscall.SIGKILL) {
		f.end(id, 137)
	}
	return nil
}

func (f *fakeRuntime) Delete(_ context.Context, id string) error {
	f.j.add("delete")
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.left == nil {
		f.left = map[string]time.Time{}
	}
	if _, known := f.left[id]; !known && f.on[id] != nil {
		f.left[id] = time.Now().Add(f.dies)
	}
	return nil
}

// Lingers makes it a runtime of jails, which take a while to die.
func (f *fakeRuntime) Lingers(_ context.Context, id string) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return time.Now().Before(f.left[id]), nil
}

func (f *fakeRuntime) created() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.names)
}

func (f *fakeRuntime) Logs(ctx context.Context, id string, q jail.LogQuery, each func(jail.LogLine) error) error {
	if f.logsHang {
		<-ctx.Done()
		return ctx.Err()
	}
	if _, _, err := f.Running(ctx, id); err != nil {
		return err
	}
	lines := f.printed
	if q.Tail > 0 {
		lines = lines[max(0, len(lines)-q.Tail):]
	}
	for _, l := range lines {
		if err := each(jail.LogLine{Stream: "stdout", Line: []byte(l + "\n")}); err != nil {
			return err
		}
	}
	return nil
}
func (f *fakeRuntime) Forget(context.Context, string) error { return nil }
func (f *fakeRuntime) List(context.Context) ([]string, error) {
	return nil, nil
}
func (f *fakeRuntime) Pause(context.Context, string) error  { f.j.add("pause"); return nil }
func (f *fakeRuntime) Resume(context.Context, string) error { f.j.add("resume"); return nil }

func (f *fakeRuntime) RunProbe(_ context.Context, id string, _ []string, out io.Writer, started func()) (int, error) {
	started()
	code, text := f.probe(id)
	_, err := io.WriteString(out, text)
	return code, err
}
