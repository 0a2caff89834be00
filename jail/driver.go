// SPDX-License-Identifier: BSD-2-Clause

package jail

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"satld/jail/shim"
)

// driver is what differs between the runtimes: the bundle and the commands.
// It is pure; Manager runs what it says.
type driver interface {
	// config is the bundle's config.json.
	config(spec Spec, who identity) (*specs.Spec, error)
	// processFor is the process of an exec into a container with that config.
	processFor(container *specs.Process, spec ExecSpec, who *identity) (*specs.Process, error)
	create(id, bundle, pidFile, log string, console bool) []string
	start(id string) shim.StartRequest
	remove(id string) []string
	// exec leaves the process behind when detach is set; console, if not
	// empty, is the socket to send its terminal to.
	exec(id, processFile, pidFile, log, console string, detach bool) []string
	// failure makes an error of what the runtime said when a container's or an
	// exec's command could not be started.
	failure(words []byte) error
	// wordsOnStderr tells that they come on the command's stderr, for want of
	// a log.
	wordsOnStderr() bool
	pause(id string) []string // nil: it cannot
	resume(id string) []string
	// stateDir has one entry for each container the runtime knows.
	stateDir() string
}

// runtimeLimit bounds a runtime's command of which the caller set no limit.
const runtimeLimit = 60 * time.Second

// run is the one way in which the daemon itself runs a command of the runtime.
func run(ctx context.Context, argv []string) error {
	ctx, cancel := context.WithTimeout(ctx, runtimeLimit)
	defer cancel()
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stderr = &stderr
	cmd.WaitDelay = time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // what interrupts the daemon shall not interrupt it half-way
	err := cmd.Run()
	if err == nil || errors.Is(err, exec.ErrWaitDelay) {
		return nil // it did what it had to, and what it said is of no interest
	}
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, runtimeText(stderr.Bytes()))
}

// runtimeText picks the message out of what a runtime logged: the last error
// in the JSON form of both, or the last line as it is.
func runtimeText(log []byte) string {
	text, ok := jsonText(log)
	if !ok {
		for line := range bytes.Lines(log) {
			if line = bytes.TrimSpace(line); len(line) > 0 {
				text = string(line)
			}
		}
	}
	for _, noise := range []string{"runc create failed: ", "exec failed: "} {
		text = strings.TrimPrefix(text, noise)
	}
	return text
}

// jsonText is the message of the last error that was logged as JSON, or of the
// first line of JSON when none of them is an error.
func jsonText(log []byte) (text string, ok bool) {
	for line := range bytes.Lines(log) {
		var entry struct{ Level, Msg string }
		if err := json.Unmarshal(line, &entry); err != nil || entry.Msg == "" {
			continue
		}
		if entry.Level == "error" || entry.Level == "fatal" || !ok {
			text, ok = entry.Msg, true
		}
	}
	return text, ok
}

// StartError says that a command could not be started in a container. Its
// text is the runtime's own.
type StartError struct {
	// ExitCode is what Docker reports for it: 127 when the command was not
	// found, 126 when it cannot be executed, 128 otherwise (docker/docker,
	// daemon/start.go).
	ExitCode int
	Text     string
}

func (e *StartError) Error() string { return e.Text }

// startError classifies a runtime's words.
func startError(text string) error {
	code := 128
	low := strings.ToLower(text)
	switch {
	case containsAny(low, "executable file not found", "no such file or directory", "system cannot find the file specified"):
		code = 127
	case containsAny(low, "permission denied", "is a directory", "exec format error", "not a directory"):
		code = 126
	}
	return &StartError{ExitCode: code, Text: text}
}

func containsAny(s string, subs ...string) bool {
	for _, sub := range subs {
		if strings.Contains(s, sub) {
			return true
		}
	}
	return false
}
