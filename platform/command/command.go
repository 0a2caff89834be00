// SPDX-License-Identifier: BSD-2-Clause

// Package command runs the system's tools. It is the one way to one: bounded in
// time, in the C locale, and a failure says what was run, how it ended and what
// it complained of. It decides nothing about what to run.
package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// Bound is how long a command may take that says nothing else.
const Bound = 10 * time.Second

// outputLag is how long output may arrive after a command that was killed ended:
// under load it is copied late, and a child that it left behind may hold the
// pipe. What ended by itself has the rest of its bound for that.
const outputLag = time.Second

// unkillable is how long a command that was sent SIGKILL may take to be gone
// before it is left to itself: one that hangs in the kernel never goes.
const unkillable = time.Second

// Command is one call of a tool.
type Command struct {
	Argv  []string // the first one is looked for in PATH
	Stdin string
	Bound time.Duration // 0 is Bound
}

// Of is a Command without input.
func Of(argv ...string) Command { return Command{Argv: argv} }

// String is the command line, for logs and tests.
func (c Command) String() string { return strings.Join(c.Argv, " ") }

// Runner runs a command and returns what it printed. Tests have their own.
type Runner func(ctx context.Context, c Command) (stdout string, err error)

// Error is a command that failed.
type Error struct {
	Command Command
	Status  int    // exit status; -1 when it did not exit by itself
	Stdout  string // without blanks at its ends; route(8) complains here
	Stderr  string // without blanks at its ends
	Err     error  // of the process, or why its time was over
}

func (e *Error) Error() string {
	text := fmt.Sprintf("%s: %v", e.Command, e.Err)
	if e.Stderr != "" {
		return text + ": " + e.Stderr
	}
	if e.Stdout != "" && e.Status >= 0 { // what was killed prints results there
		return text + ": " + e.Stdout
	}
	return text
}

func (e *Error) Unwrap() error { return e.Err }

// Says tells whether err is a command's failure in which it said the words.
func Says(err error, words string) bool {
	failed := new(Error)
	return errors.As(err, &failed) && (strings.Contains(failed.Stderr, words) || strings.Contains(failed.Stdout, words))
}

// Run is the Runner of real tools. It returns within the command's bound and
// two seconds, whatever the command does. A failure is an *Error.
func Run(ctx context.Context, c Command) (string, error) {
	bound := c.Bound
	if bound == 0 {
		bound = Bound
	}
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.Argv[0], c.Argv[1:]...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	cmd.Stdin = strings.NewReader(c.Stdin)
	cmd.WaitDelay = bound // counts from its end on, so that ctx is over first
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Start()
	if err == nil {
		done := make(chan error, 1)
		go func() { done <- cmd.Wait() }()
		select {
		case err = <-done:
		case <-ctx.Done():
			killed := time.NewTimer(outputLag + unkillable)
			defer killed.Stop()
			select {
			case err = <-done:
			case <-killed.C: // its buffers are still its own
				why := "it is still there after SIGKILL"
				if errors.Is(cmd.Process.Signal(syscall.Signal(0)), os.ErrProcessDone) {
					why = "it ended, and something that it started holds its output"
				}
				return "", &Error{Command: c, Status: -1, Err: fmt.Errorf("%w: %s", ctx.Err(), why)}
			}
		}
	}
	if err == nil {
		return stdout.String(), nil
	}
	failed := &Error{Command: c, Status: -1, Stdout: strings.TrimSpace(stdout.String()), Stderr: strings.TrimSpace(stderr.String()), Err: err}
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		failed.Status = exit.ExitCode()
	}
	if ctx.Err() != nil {
		failed.Err = fmt.Errorf("%w: %w", ctx.Err(), err)
	}
	return "", failed
}
