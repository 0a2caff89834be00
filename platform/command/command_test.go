// SPDX-License-Identifier: BSD-2-Clause

package command

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestRun(t *testing.T) {
	out, err := Run(t.Context(), Command{Argv: []string{"sh", "-c", `cat; echo "$LC_ALL"`}, Stdin: "in\n"})
	if out != "in\nC\n" || err != nil {
		t.Errorf("%q, %v", out, err)
	}
	out, err = Run(t.Context(), Of("sh", "-c", "echo half; echo why >&2; exit 7"))
	failed := new(Error)
	if out != "" || !errors.As(err, &failed) || failed.Status != 7 || failed.Stderr != "why" || failed.Stdout != "half" {
		t.Fatalf("%q, %#v", out, err)
	}
	if text := err.Error(); text != "sh -c echo half; echo why >&2; exit 7: exit status 7: why" {
		t.Error(text)
	}
	if !Says(err, "half") || !Says(err, "why") || Says(err, "other") || Says(errors.New("why"), "why") {
		t.Error("Says")
	}
	if _, err := Run(t.Context(), Of("/nowhere/tool")); err == nil || !strings.Contains(err.Error(), "/nowhere/tool") {
		t.Errorf("%v", err)
	}
	if _, err := Run(t.Context(), Of("sh", "-c", "echo only here; exit 1")); !strings.HasSuffix(err.Error(), ": only here") {
		t.Errorf("%v", err)
	}
}

// A command that was killed has half of its results on its standard output, not
// what is wrong: of a host with many interfaces that would be pages.
func TestKilledSaysNoResults(t *testing.T) {
	_, err := Run(t.Context(), Of("sh", "-c", "echo half of the results; kill -9 $$"))
	failed := new(Error)
	if !errors.As(err, &failed) || failed.Status != -1 || failed.Stdout != "half of the results" {
		t.Fatalf("%#v", err)
	}
	if text := err.Error(); strings.Contains(strings.TrimPrefix(text, failed.Command.String()), "results") {
		t.Error(text)
	}
	_, err = Run(t.Context(), Of("sh", "-c", "echo why >&2; kill -9 $$"))
	if !strings.HasSuffix(err.Error(), ": why") {
		t.Error(err)
	}
}

// Output that comes long after the end of a command that did what it had to,
// as on a busy machine, is waited for.
func TestRunWaitsForOutput(t *testing.T) {
	out, err := Run(t.Context(), Of("sh", "-c", "(sleep 2; echo late) & echo early"))
	if out != "early\nlate\n" || err != nil {
		t.Errorf("%q, %v", out, err)
	}
	// Not before there is a child that holds the output.
	file := filepath.Join(t.TempDir(), "child")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	child := make(chan int, 1)
	go func() {
		defer cancel()
		defer close(child)
		for ctx.Err() == nil {
			text, _ := os.ReadFile(file)
			if line, whole := strings.CutSuffix(string(text), "\n"); whole {
				pid, _ := strconv.Atoi(line)
				child <- pid
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()
	_, err = Run(ctx, Of("sh", "-c", `sleep 60 & echo $! >"$0"; exec sleep 60`, file))
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "holds its output") {
		t.Errorf("%v", err)
	}
	cancel()
	if pid := <-child; pid > 0 {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Error(err)
		}
	}
}

// A command that hangs ends with its bound, one whose child holds the pipe too.
func TestRunIsBounded(t *testing.T) {
	for _, script := range []string{"exec sleep 60", "sleep 3 & exec sleep 60"} {
		begun := time.Now()
		_, err := Run(t.Context(), Command{Argv: []string{"sh", "-c", script}, Bound: 50 * time.Millisecond})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", script, err)
		}
		if took := time.Since(begun); took > 20*time.Second {
			t.Errorf("%s: took %s", script, took)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Run(ctx, Of("true")); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}
