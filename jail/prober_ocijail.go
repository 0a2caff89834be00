// SPDX-License-Identifier: BSD-2-Clause

package jail

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"satld/jail/reap"
	"satld/jail/shim"
)

// ocijailProber runs commands in jails with `ocijail exec`, which without
// --detach attaches and becomes the command itself: its pid is the probe's,
// and its exit status too.
type ocijailProber struct {
	m      *Manager
	driver ocijail
}

// newOcijailProber makes this process the reaper of what probes leave behind.
func newOcijailProber(m *Manager, driver ocijail) (*ocijailProber, error) {
	if err := reap.Become(); err != nil {
		return nil, err
	}
	return &ocijailProber{m: m, driver: driver}, nil
}

func (p *ocijailProber) close()        {}
func (p *ocijailProber) forget(string) {}

// run: see prober. The jail outlives its first process, and a command would
// succeed in it then, so that the first process is asked about here.
func (p *ocijailProber) run(kill context.Context, id string, argv []string, out io.Writer, started func()) (int, error) {
	if err := p.m.mustRun(kill, id); err != nil {
		return -1, err
	}
	config, err := p.m.process(id)
	if err != nil {
		return -1, err
	}
	process := *config.Process
	process.Args, process.Terminal = argv, false
	b, err := json.Marshal(&process)
	if err != nil {
		return -1, err
	}
	file, err := os.CreateTemp(p.m.dir.Container(id), "probe-*.json")
	if err != nil {
		return -1, fmt.Errorf("probe container %s: %w", id, err)
	}
	defer os.Remove(file.Name())
	_, err = file.Write(b)
	if cerr := file.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return -1, fmt.Errorf("probe container %s: %w", id, err)
	}
	code, err := p.attempt(kill, p.driver.exec(id, file.Name(), "", "", "", false), out, started)
	if err != nil {
		// It may have ended just now; that is the better reason.
		if rerr := p.m.mustRun(context.WithoutCancel(kill), id); rerr != nil {
			return -1, rerr
		}
	}
	return code, err
}

// attempt runs ocijail's exec and returns when nothing that it started lives.
func (p *ocijailProber) attempt(kill context.Context, argv []string, out io.Writer, started func()) (int, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return -1, fmt.Errorf("make the probe's output: %w", err)
	}
	defer r.Close()
	pid, err := launch(argv, w)
	w.Close()
	if err != nil {
		return -1, err
	}
	words := newGate(out)
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		copyPipe(words, r)
	}()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		reap.AwaitEnd(pid)
	}()
	var watching sync.WaitGroup
	begin := sync.OnceFunc(func() {
		words.open()
		if started != nil {
			started()
		}
	})
	comm := commOf(argv[0])
	watching.Go(func() {
		if executes(pid, comm, ended) {
			begin()
		}
	})
	stop := context.AfterFunc(kill, func() { reap.KillTree(pid) })
	err = awaitProbe(kill, ended)
	stop()
	// What the command left behind, while its number is still taken.
	limit, cancel := context.WithTimeout(context.Background(), killLimit)
	defer cancel()
	if left := reap.End(limit, pid); err == nil && left > 0 {
		err = fmt.Errorf("%d processes of the probe do not die within %v", left, killLimit)
	}
	if err != nil { // nothing more can be done about it
		go reap.Wait(pid)
		words.close()
		endPipe(r, 0)
		<-drained
		return -1, err
	}
	watching.Wait()
	ran := shim.Comm(pid) != comm
	if ran {
		begin()
	}
	words.close()
	ws := reap.Wait(pid)
	reap.Orphans()
	endPipe(r, 100*time.Millisecond)
	<-drained
	switch {
	case ran && ws.Signaled():
		return 128 + int(ws.Signal()), nil
	case ran:
		return ws.ExitStatus(), nil
	case kill.Err() != nil:
		return -1, fmt.Errorf("the probe was ended before its command ran: %w", kill.Err())
	case len(words.held) > 0:
		return -1, p.driver.failure(words.held)
	default:
		return -1, fmt.Errorf("%s: ended with status %d before the command ran", strings.Join(argv, " "), ws.ExitStatus())
	}
}

// launch starts ocijail's exec with out as its output. It may not lead a
// group or session: ocijail calls setsid(2) itself, which fails for a leader.
func launch(argv []string, out *os.File) (pid int, err error) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return 0, err
	}
	defer null.Close()
	pid, err = reap.Start(argv, &syscall.ProcAttr{
		Env: os.Environ(), Files: []uintptr{null.Fd(), out.Fd(), out.Fd()},
		Sys: &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}, // it has nobody to tell when we are gone
	})
	if err != nil {
		return 0, fmt.Errorf("run %s: %w", strings.Join(argv, " "), err)
	}
	return pid, nil
}

// awaitProbe waits for the end of the probe, and once it was killed only as
// long as a process can take to die.
func awaitProbe(kill context.Context, ended <-chan struct{}) error {
	select {
	case <-ended:
		return nil
	case <-kill.Done():
	}
	late := time.NewTimer(killLimit)
	defer late.Stop()
	select {
	case <-ended:
		return nil
	case <-late.C:
		return fmt.Errorf("the probe does not die within %v", killLimit)
	}
}

// gate holds what is written back until it is opened: what ocijail says before
// it becomes the command is not the command's output. When it holds much it
// lets the writer wait, until it is opened or closed.
type gate struct {
	w io.Writer

	mu     sync.Mutex
	state  sync.Cond
	opened bool
	closed bool
	held   []byte
}

// maxHeld bounds what is held, in bytes: an error message has less.
const maxHeld = 64 << 10

func newGate(w io.Writer) *gate {
	g := &gate{w: w}
	g.state.L = &g.mu
	return g
}

func (g *gate) Write(b []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for !g.opened && !g.closed && len(g.held)+len(b) > maxHeld {
		g.state.Wait()
	}
	switch {
	case g.opened:
		return g.w.Write(b)
	case !g.closed || len(g.held)+len(b) <= maxHeld:
		g.held = append(g.held, b...)
	}
	return len(b), nil
}

// open lets through what was held, and all that comes, unless it is closed.
func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed || g.opened {
		return
	}
	g.opened = true
	if len(g.held) > 0 {
		// A failing writer ends the copying at the next write.
		_, _ = g.w.Write(g.held)
		g.held = nil
	}
	g.state.Broadcast()
}

// close says that it will not be opened any more, if it is not by now.
func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	g.state.Broadcast()
}

// pollExecutes is executes where the system has no event for it.
func pollExecutes(pid int, comm string, ended <-chan struct{}) bool {
	for pause := time.Millisecond; ; pause = min(pause*2, 20*time.Millisecond) {
		if now := shim.Comm(pid); now != comm && now != "" {
			return true
		}
		select {
		case <-ended:
			return false
		case <-time.After(pause):
		}
	}
}
