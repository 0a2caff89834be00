// SPDX-License-Identifier: BSD-2-Clause

package image

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// toolBound is how long one call of a system tool may take. A pool at work on
// something large answers late; one that lost its disks never does.
const toolBound = time.Minute

// runner runs a command and returns what it wrote to its standard output. A
// failure is a *toolError.
type runner func(ctx context.Context, argv ...string) (string, error)

// toolError is a system tool that failed.
type toolError struct {
	argv   []string
	err    error  // of the process, or the end of its time
	stderr string // trimmed
}

func (e *toolError) Error() string {
	text := fmt.Sprintf("%s: %v", strings.Join(e.argv, " "), e.err)
	if e.stderr != "" {
		text += ": " + e.stderr
	}
	return text
}

func (e *toolError) Unwrap() error { return e.err }

// toolSays tells whether err is a tool's failure in which it said text.
func toolSays(err error, text string) bool {
	failed := new(toolError)
	return errors.As(err, &failed) && strings.Contains(failed.stderr, text)
}

// runTool is the runner of real tools. Their messages are compared, so they
// speak the C locale.
func runTool(ctx context.Context, argv ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, toolBound)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	cmd.WaitDelay = time.Second
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return "", &toolError{argv: argv, err: err, stderr: strings.TrimSpace(stderr.String())}
	}
	return stdout.String(), nil
}
