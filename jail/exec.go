// SPDX-License-Identifier: BSD-2-Clause

package jail

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/creack/pty"
)

// ExecSpec is one `exec` into a running container.
type ExecSpec struct {
	Args       []string
	Env        []string // added to the container's own
	Cwd        string   // "" is the container's
	User       string   // "" is the container's
	TTY        bool
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

// execution is a started exec: the runtime's command stands for the process
// in the container, and its exit status is that one's.
type execution struct {
	cmd   *exec.Cmd
	dir   string // of its own files
	pid   int
	tty   *os.File // nil without a terminal
	done  chan struct{}
	state error // of cmd.Wait, once done is closed

	copies sync.WaitGroup
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
	e := &execution{dir: dir, done: make(chan struct{})}
	if err := os.WriteFile(dir+"/process.json", b, 0o600); err != nil {
		os.RemoveAll(dir)
		return nil, fmt.Errorf("exec in container %s: %w", id, err)
	}
	argv := m.driver.exec(id, dir+"/process.json", dir+"/pid", dir+"/log", spec.TTY)
	if err := e.start(argv, spec); err != nil {
		os.RemoveAll(dir)
		return nil, fmt.Errorf("exec in container %s: %w", id, err)
	}
	if err := e.awaitPid(ctx); err != nil {
		// The container may have ended just now; that is the better reason.
		if nerr := m.mustRun(ctx, id); nerr != nil {
			return nil, nerr
		}
		return nil, err
	}
	return e, nil
}

func (e *execution) start(argv []string, spec ExecSpec) error {
	e.cmd = exec.Command(argv[0], argv[1:]...)
	var err error
	if spec.TTY {
		err = e.startTTY(spec)
	} else {
		err = e.startPipes(spec)
	}
	if err != nil {
		return err
	}
	go func() {
		e.state = e.cmd.Wait()
		close(e.done)
	}()
	return nil
}

// startTTY gives the runtime a terminal of ours: it makes another one in the
// container and copies between the two, size included.
func (e *execution) startTTY(spec ExecSpec) error {
	tty, err := pty.Start(e.cmd)
	if err != nil {
		return err
	}
	e.tty = tty
	e.copies.Go(func() {
		if spec.Stdout != nil {
			io.Copy(spec.Stdout, tty)
		} else {
			io.Copy(io.Discard, tty)
		}
	})
	if spec.Stdin != nil {
		go io.Copy(tty, spec.Stdin)
	}
	return nil
}

func (e *execution) startPipes(spec ExecSpec) error {
	e.cmd.SysProcAttr = execAttr()
	var closers []io.Closer
	defer func() {
		for _, c := range closers {
			c.Close()
		}
	}()
	for _, out := range []struct {
		w    io.Writer
		file *io.Writer
	}{{spec.Stdout, &e.cmd.Stdout}, {spec.Stderr, &e.cmd.Stderr}} {
		if out.w == nil {
			continue
		}
		r, w, err := os.Pipe()
		if err != nil {
			return err
		}
		closers = append(closers, w)
		*out.file = w
		e.copies.Go(func() {
			defer r.Close()
			io.Copy(writerOnly{out.w}, readerOnly{r})
		})
	}
	if spec.Stdin != nil {
		// Not StdinPipe: Wait must not wait for a reader that blocks.
		r, w, err := os.Pipe()
		if err != nil {
			return err
		}
		closers = append(closers, r)
		e.cmd.Stdin = r
		go func() {
			io.Copy(w, spec.Stdin)
			w.Close()
		}()
	}
	return e.cmd.Start()
}

// awaitPid waits until the command runs in the container, or does not.
func (e *execution) awaitPid(ctx context.Context) error {
	for wait := time.Millisecond; ; wait = min(2*wait, 20*time.Millisecond) {
		if e.readPid() {
			return nil
		}
		select {
		case <-e.done:
			if e.readPid() {
				return nil // it was quick
			}
			log, _ := os.ReadFile(e.dir + "/log")
			os.RemoveAll(e.dir)
			text := runtimeText(log)
			if text == "" {
				text = fmt.Sprintf("%s: %v", strings.Join(e.cmd.Args, " "), e.state)
			}
			return startError(text)
		case <-time.After(wait):
		case <-ctx.Done():
			e.cmd.Process.Kill()
			<-e.done
			if e.readPid() { // it came late: the command itself is what must go
				syscall.Kill(e.pid, syscall.SIGKILL)
			}
			os.RemoveAll(e.dir)
			return ctx.Err()
		}
	}
}

func (e *execution) readPid() bool {
	b, err := os.ReadFile(e.dir + "/pid")
	if err != nil {
		return false
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || pid <= 0 {
		return false
	}
	e.pid = pid
	return true
}

// Pid: see Process.
func (e *execution) Pid() int { return e.pid }

// outputGrace is how long after the command's end a background child of it
// may hold its output; the runtime's own parent does not wait for it either.
const outputGrace = 2 * time.Second

// Wait: see Process.
func (e *execution) Wait() (int, error) {
	<-e.done
	copied := make(chan struct{})
	go func() {
		e.copies.Wait()
		close(copied)
	}()
	select {
	case <-copied:
	case <-time.After(outputGrace):
	}
	if e.tty != nil {
		e.tty.Close()
	}
	os.RemoveAll(e.dir)
	var exit *exec.ExitError
	if e.state != nil && !errors.As(e.state, &exit) {
		return -1, fmt.Errorf("%s: %w", strings.Join(e.cmd.Args, " "), e.state)
	}
	ws, ok := e.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if !ok {
		return e.cmd.ProcessState.ExitCode(), nil
	}
	if ws.Signaled() {
		return 128 + int(ws.Signal()), nil
	}
	return ws.ExitStatus(), nil
}

// Resize: see Process.
func (e *execution) Resize(width, height uint16) error {
	if e.tty == nil {
		return invalid("the exec has no terminal")
	}
	return pty.Setsize(e.tty, &pty.Winsize{Rows: height, Cols: width})
}

// Kill signals the command in the container, not the runtime that stands for
// it: that one could not pass on SIGKILL. A command that has ended is no error.
func (e *execution) Kill(sig int) error {
	select {
	case <-e.done:
		return nil
	default:
	}
	if err := syscall.Kill(e.pid, syscall.Signal(sig)); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("send signal %d to the exec's process %d: %w", sig, e.pid, err)
	}
	return nil
}

// writerOnly and readerOnly keep io.Copy to its buffer.
type (
	writerOnly struct{ io.Writer }
	readerOnly struct{ io.Reader }
)
