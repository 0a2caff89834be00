// SPDX-License-Identifier: BSD-2-Clause

package jail

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/creack/pty"

	"satld/jail/shim"
)

// ExecSpec is one `exec` into a running container.
type ExecSpec struct {
	Args       []string
	Env        []string // added to the container's own
	Cwd        string   // "" is the container's
	User       string   // "" is the container's
	TTY        bool
	Size       TermSize // as Spec.Size
	Privileged bool
	Stdin      io.Reader // nil is /dev/null
	Stdout     io.Writer // nil discards; with TTY all output comes here
	Stderr     io.Writer
}

// Process is a started exec.
type Process interface {
	Pid() int // in the host's PID namespace
	// Wait returns the exit code when the process has ended and its output
	// has been copied.
	Wait() (code int, err error)
	Resize(width, height uint16) error
	Kill(sig int) error
}

// Exec: see Runtime. A command that cannot be started is a *StartError, and a
// container that does not run a conflict, both in Docker's words.
func (m *Manager) Exec(ctx context.Context, id string, spec ExecSpec) (Process, error) {
	if err := checkID(id); err != nil {
		return nil, err
	}
	if len(spec.Args) == 0 || spec.Args[0] == "" {
		return nil, invalid("no exec command specified")
	}
	if err := m.mustRun(ctx, id); err != nil {
		return nil, err
	}
	if err := m.mustNotPause(id); err != nil {
		return nil, err
	}
	if m.deleting.has(id) {
		return nil, notRunning(id)
	}
	config, err := m.process(id)
	if err != nil {
		return nil, err
	}
	var who *identity
	if spec.User != "" {
		found, err := lookUser(config.Root.Path, spec.User, nil)
		if err != nil {
			return nil, err
		}
		who = &found
		if config.Annotations[homeAnnotation] != "" {
			config.Process.Env = mergeEnv(config.Process.Env, []string{"HOME=" + found.home})
		}
	}
	process, err := m.driver.processFor(config.Process, spec, who)
	if err != nil {
		return nil, err
	}
	b, err := json.Marshal(process)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(m.dir.Container(id), "exec-")
	if err != nil {
		return nil, fmt.Errorf("exec in container %s: %w", id, err)
	}
	defer os.RemoveAll(dir)
	if err := os.WriteFile(dir+"/process.json", b, 0o600); err != nil {
		return nil, fmt.Errorf("exec in container %s: %w", id, err)
	}
	e, words, err := m.startExec(ctx, id, dir, spec)
	if err == nil {
		return e, nil
	}
	// The container may have ended just now; that is the better reason.
	if nerr := m.mustRun(ctx, id); nerr != nil {
		return nil, nerr
	}
	if shim.IsKind(err, shim.KindRuntime) {
		if log, rerr := os.ReadFile(dir + "/log"); rerr == nil && len(log) > 0 {
			words = log
		}
		if len(words) > 0 {
			return nil, m.driver.failure(words)
		}
	}
	return nil, fmt.Errorf("exec in container %s: %w", id, err)
}

// startExec has the shim start it, with its files in dir. When that fails,
// words are what came out of its stderr.
func (m *Manager) startExec(ctx context.Context, id, dir string, spec ExecSpec) (_ *execution, words []byte, err error) {
	e := &execution{}
	e.wait = sync.OnceValues(e.waitOnce)
	defer e.closeTheirs()
	defer func() {
		if err != nil {
			words = e.words()
			e.closeOurs()
		}
	}()
	var console *shim.Console
	path := ""
	if spec.TTY {
		if console, err = shim.ListenConsole(dir); err != nil {
			return nil, nil, err
		}
		defer console.Close()
		path = console.Path
	}
	if err := e.files(spec, m.driver.wordsOnStderr(), dir+"/log"); err != nil {
		return nil, nil, err
	}
	req := shim.ExecRequest{
		Argv:    m.driver.exec(id, dir+"/process.json", dir+"/pid", dir+"/log", path, true),
		PidFile: dir + "/pid", Timeout: runtimeLimit,
	}
	err = m.withShim(ctx, func() (err error) {
		e.shim, err = m.shim.Exec(ctx, req, e.theirs)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	// 0 when it has ended already: then there is nothing to signal.
	ticks, _ := shim.StartTicks(e.shim.Pid)
	e.process = shim.Init{Pid: e.shim.Pid, Ticks: ticks}
	if console != nil {
		if e.tty, err = console.Receive(); err != nil {
			return nil, nil, errors.Join(err, signalInit(e.process, int(syscall.SIGKILL)))
		}
		// Not every runtime takes it out of the bundle.
		size := spec.Size.orDefault()
		if err := e.Resize(size.Columns, size.Rows); err != nil {
			m.log.Warn("terminal of an exec not sized", "container", id, "error", err)
		}
	}
	e.copy(spec)
	return e, nil, nil
}

// execution is a started exec. The shim is its parent, and its stdio are our
// pipes or its terminal: nothing stands in between.
type execution struct {
	shim    *shim.Exec
	process shim.Init // by its start too: its pid may be another one's when it has ended
	theirs  [3]*os.File
	stdin   *os.File // our ends
	outputs [2]*os.File
	tty     *os.File // nil without a terminal
	copies  sync.WaitGroup
	wait    func() (int, error) // waitOnce, once
}

// files opens its stdio. A runtime that says on stderr why it cannot start the
// command is given one: with a terminal, which the command has instead, a file.
func (e *execution) files(spec ExecSpec, words bool, log string) (err error) {
	want := [3]bool{spec.Stdin != nil, spec.Stdout != nil, spec.Stderr != nil || words}
	for i := range e.theirs {
		switch {
		case spec.TTY && words && i == 2:
			e.theirs[i], err = os.OpenFile(log, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		case spec.TTY || !want[i]:
			e.theirs[i], err = os.OpenFile(os.DevNull, os.O_RDWR, 0)
		case i == 0:
			e.theirs[0], e.stdin, err = os.Pipe()
		default:
			e.outputs[i-1], e.theirs[i], err = os.Pipe()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// words reads what came out of stderr so far.
func (e *execution) words() []byte {
	if e.outputs[1] == nil {
		return nil
	}
	buf := make([]byte, 4096)
	return buf[:readNow(e.outputs[1], buf)]
}

func (e *execution) closeTheirs() {
	for _, f := range e.theirs {
		if f != nil {
			f.Close()
		}
	}
}

func (e *execution) closeOurs() {
	for _, f := range []*os.File{e.stdin, e.outputs[0], e.outputs[1], e.tty} {
		if f != nil {
			f.Close()
		}
	}
}

// copy begins to copy between its stdio and the caller's.
func (e *execution) copy(spec ExecSpec) {
	in, out := e.stdin, [2]io.Writer{spec.Stdout, spec.Stderr}
	if e.tty != nil {
		in, e.outputs[0] = e.tty, e.tty
	}
	for i, r := range e.outputs {
		if r != nil {
			if out[i] == nil {
				out[i] = io.Discard
			}
			e.copies.Go(func() { copyPipe(out[i], r) })
		}
	}
	if spec.Stdin != nil {
		go func() {
			io.Copy(in, spec.Stdin)
			if e.tty == nil {
				in.Close()
			}
		}()
	}
}

// Pid: see Process.
func (e *execution) Pid() int { return e.shim.Pid }

// outputGrace is how long after the command's end a background child of it
// may hold its output: Docker's.
const outputGrace = 2 * time.Second

// Wait: see Process.
func (e *execution) Wait() (int, error) { return e.wait() }

func (e *execution) waitOnce() (int, error) {
	code, err := e.shim.Wait()
	for _, r := range e.outputs {
		if r != nil {
			endPipe(r, outputGrace)
		}
	}
	e.copies.Wait()
	e.closeOurs() // also what is left of the input has nobody to go to
	return code, err
}

// Resize: see Process.
func (e *execution) Resize(width, height uint16) error {
	if e.tty == nil {
		return invalid("the exec has no terminal")
	}
	return pty.Setsize(e.tty, &pty.Winsize{Rows: height, Cols: width})
}

// Kill: see Process. A command that has ended is no error.
func (e *execution) Kill(sig int) error {
	if err := signalInit(e.process, sig); err != nil {
		return fmt.Errorf("send signal %d to the exec's process %d: %w", sig, e.shim.Pid, err)
	}
	return nil
}
