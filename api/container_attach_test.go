// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/pkg/stdcopy"

	"satld/executor"
)

func (f *socketFixture) attach(t testing.TB, o container.AttachOptions) types.HijackedResponse {
	t.Helper()
	resp, err := f.client.ContainerAttach(t.Context(), "web", o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(resp.Close)
	return resp
}

// attachable gives the fixture one container with an open stdin, that is
// attached to first and started then, as `docker run` does. It has run once
// attach was called.
func attachable(f *fixture, tty bool, attach func(context.Context, string, io.Reader, io.Writer, io.Writer) error) {
	withContainers(f)
	var ran atomic.Bool
	f.containers.get = func(string) (executor.Snapshot, error) {
		c := webTask()
		c.State, c.Started, c.Config.OpenStdin, c.Config.Tty = executor.Created, time.Time{}, true, tty
		if ran.Load() {
			c.State, c.Started = executor.Exited, logTime
		}
		return c, nil
	}
	f.containers.attach = func(ctx context.Context, id string, stdin io.Reader, stdout, stderr io.Writer) error {
		ran.Store(true)
		return attach(ctx, id, stdin, stdout, stderr)
	}
}

// Until the container is there the runtime has nothing to attach to.
func TestAttachBeforeStart(t *testing.T) {
	for _, c := range []struct {
		name  string
		early error // what the runtime says until then
		quick bool  // it ended before it could be attached to
		want  string
	}{
		{"created", noContainer("x"), false, "live"},
		{"ended earlier", nil, false, "live"}, // `docker start -a`
		{"not running", errdefs.ErrConflict.WithMessage("container x is not running"), false, "live"},
		{"too quick", noContainer("x"), true, "logged\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			noLeak(t)
			f := newSocketFixture(t, "")
			withContainers(f.fixture)
			f.containers.logs = sendLines(out("logged\n"))
			var calls atomic.Int32
			f.containers.get = func(string) (executor.Snapshot, error) {
				s := webTask()
				s.State, s.Started = executor.Created, time.Time{}
				if c.early == nil {
					s.State, s.Started = executor.Exited, logTime
				}
				if calls.Load() >= 5 {
					s.State, s.Started = executor.Running, logTime.Add(time.Hour)
					if c.quick {
						s.State = executor.Exited
					}
				}
				return s, nil
			}
			f.containers.attach = func(_ context.Context, _ string, _ io.Reader, stdout, _ io.Writer) error {
				if calls.Add(1) < 5 || c.quick {
					return c.early
				}
				fmt.Fprint(stdout, "live")
				return nil
			}
			resp := f.attach(t, container.AttachOptions{Stream: true, Stdout: true})
			var stdout bytes.Buffer
			if _, err := stdcopy.StdCopy(&stdout, io.Discard, resp.Reader); err != nil || stdout.String() != c.want {
				t.Errorf("%q %v", stdout.String(), err)
			}
		})
	}
}

// A container that is removed instead of started ends the attach.
func TestAttachNeverStarted(t *testing.T) {
	noLeak(t)
	f := newSocketFixture(t, "")
	withContainers(f.fixture)
	var calls atomic.Int32
	f.containers.get = func(id string) (executor.Snapshot, error) {
		if calls.Load() > 2 {
			return executor.Snapshot{}, noContainer(id)
		}
		return oldContainer(), nil
	}
	f.containers.attach = func(_ context.Context, id string, _ io.Reader, _, _ io.Writer) error {
		calls.Add(1)
		return noContainer(id)
	}
	resp := f.attach(t, container.AttachOptions{Stream: true, Stdout: true})
	if all, err := io.ReadAll(resp.Reader); err != nil || len(all) != 0 {
		t.Errorf("%q %v", all, err)
	}
}

func TestAttach(t *testing.T) {
	noLeak(t)
	f := newSocketFixture(t, "")
	attachable(f.fixture, false, func(_ context.Context, id string, stdin io.Reader, stdout, stderr io.Writer) error {
		in, err := io.ReadAll(stdin)
		fmt.Fprintf(stdout, "got %s in %s", in, id[:4])
		fmt.Fprint(stderr, "and this")
		return err
	})
	f.containers.logs = sendLines(out("before\n"), errLine("hand\n"))
	resp := f.attach(t, container.AttachOptions{Stream: true, Stdin: true, Stdout: true, Stderr: true, Logs: true})
	fmt.Fprint(resp.Conn, "input")
	if err := resp.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	if _, err := stdcopy.StdCopy(&stdout, &stderr, resp.Reader); err != nil {
		t.Fatal(err)
	}
	if stdout.String() != "before\ngot input in 8fec" || stderr.String() != "hand\nand this" {
		t.Errorf("%q %q", stdout.String(), stderr.String())
	}
}

func TestAttachLogsOnly(t *testing.T) {
	noLeak(t)
	f := newSocketFixture(t, "")
	attachable(f.fixture, true, nil)
	f.containers.logs = sendLines(out("raw\r\n"))
	resp := f.attach(t, container.AttachOptions{Stdout: true, Logs: true})
	if all, err := io.ReadAll(resp.Reader); err != nil || string(all) != "raw\r\n" {
		t.Errorf("%q %v", all, err)
	}
}

// A container without an open stdin reads nobody's, and streams that were not
// asked for are not sent.
func TestAttachOutputOnly(t *testing.T) {
	f := newSocketFixture(t, "")
	withContainers(f.fixture)
	f.containers.attach = func(_ context.Context, _ string, stdin io.Reader, stdout, stderr io.Writer) error {
		if stdin != nil || stdout != nil || stderr == nil {
			return errors.New("wrong streams")
		}
		return nil
	}
	resp := f.attach(t, container.AttachOptions{Stream: true, Stdin: true, Stderr: true})
	if all, err := io.ReadAll(resp.Reader); err != nil || len(all) != 0 {
		t.Errorf("%q %v", all, err)
	}
}

// until waits for the end of an attach and tells why it ended.
func until(ended chan<- error) func(context.Context, string, io.Reader, io.Writer, io.Writer) error {
	return func(ctx context.Context, _ string, stdin io.Reader, _, _ io.Writer) error {
		if stdin != nil {
			copied := make(chan struct{})
			go func() { defer close(copied); _, _ = io.Copy(io.Discard, stdin) }()
			defer func() { <-copied }() // an attach that waits for its input must not hang
		}
		<-ctx.Done()
		ended <- context.Cause(ctx)
		return ctx.Err()
	}
}

func TestAttachDetachKeys(t *testing.T) {
	noLeak(t)
	f := newSocketFixture(t, "")
	ended := make(chan error, 1)
	attachable(f.fixture, true, until(ended))
	resp := f.attach(t, container.AttachOptions{Stream: true, Stdin: true, Stdout: true, Stderr: true})
	fmt.Fprint(resp.Conn, "x\x10\x11") // ctrl-p ctrl-q
	if all, err := io.ReadAll(resp.Reader); err != nil || len(all) != 0 {
		t.Errorf("%q %v", all, err)
	}
	if err := <-ended; !errors.Is(err, errDetached) {
		t.Error(err)
	}
}

// The client closes for good while the container says nothing.
func TestAttachClientVanishes(t *testing.T) {
	for _, stdin := range []bool{true, false} {
		noLeak(t)
		f := newSocketFixture(t, "")
		ended := make(chan error, 1)
		attachable(f.fixture, false, until(ended))
		resp := f.attach(t, container.AttachOptions{Stream: true, Stdin: stdin, Stdout: true})
		resp.Close()
		if err := <-ended; !errors.Is(err, errDetached) {
			t.Error(err)
		}
	}
}

// A client that closed its sending side is still there.
func TestAttachHalfClosed(t *testing.T) {
	noLeak(t)
	f := newSocketFixture(t, "")
	release := make(chan struct{})
	attachable(f.fixture, false, func(ctx context.Context, _ string, _ io.Reader, stdout, _ io.Writer) error {
		select {
		case <-release:
		case <-ctx.Done():
			return ctx.Err()
		}
		fmt.Fprint(stdout, "still here")
		return nil
	})
	resp := f.attach(t, container.AttachOptions{Stream: true, Stdout: true})
	if err := resp.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * hangupPeriod) // it is looked after at least once
	close(release)
	var stdout bytes.Buffer
	if _, err := stdcopy.StdCopy(&stdout, io.Discard, resp.Reader); err != nil || stdout.String() != "still here" {
		t.Errorf("%q %v", stdout.String(), err)
	}
}

func TestAttachFails(t *testing.T) {
	f := newSocketFixture(t, "")
	attachable(f.fixture, false, func(context.Context, string, io.Reader, io.Writer, io.Writer) error { return errors.New("no shim") })
	resp := f.attach(t, container.AttachOptions{Stream: true, Stdout: true})
	var stdout bytes.Buffer
	if _, err := stdcopy.StdCopy(&stdout, io.Discard, resp.Reader); err != nil || stdout.String() != "Error attaching: no shim\n" {
		t.Errorf("%q %v", stdout.String(), err)
	}
	if code, _, body := f.do(t, "POST", "/containers/web/attach?detachKeys=nonsense-keys", ""); code != 400 || !strings.Contains(body, "Invalid detach keys") {
		t.Errorf("%d %s", code, body)
	}
	paused := webTask()
	paused.State = executor.Paused
	f.containers.get = func(string) (executor.Snapshot, error) { return paused, nil }
	if code, _, body := f.do(t, "POST", "/containers/web/attach?stream=1", ""); code != 409 || !strings.Contains(body, "is paused") {
		t.Errorf("%d %s", code, body)
	}
	f.containers.get = func(n string) (executor.Snapshot, error) { return executor.Snapshot{}, noContainer(n) }
	if code, _, _ := f.do(t, "POST", "/containers/x/attach?stream=1", ""); code != 404 {
		t.Errorf("%d", code)
	}
	if _, err := f.client.ContainerAttach(t.Context(), "x", container.AttachOptions{Stream: true}); err == nil || errdefs.IsConflict(err) {
		t.Errorf("%v", err)
	}
}
