// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/pkg/stdcopy"

	"satld/jail"
)

// Input that comes in one packet with the request is not lost.
func TestExecStdinWithRequest(t *testing.T) {
	noLeak(t)
	f := newSocketFixture(t, "")
	withContainers(f.fixture)
	f.containers.exec, _ = runs(cat)
	id := f.create(t, container.ExecOptions{Cmd: []string{"cat"}, AttachStdin: true, AttachStdout: true, Tty: true})
	conn := f.dial(t)
	body := `{"Tty":true}`
	fmt.Fprintf(conn, "POST /v1.51/exec/%s/start HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n%searly", id, len(body), body)
	_ = conn.CloseWrite()
	br := bufio.NewReader(conn)
	resp, err := http.ReadResponse(br, nil)
	if err != nil || resp.StatusCode != 101 {
		t.Fatalf("%v %v", resp, err)
	}
	if rest, err := io.ReadAll(br); err != nil || string(rest) != "early" {
		t.Errorf("%q %v", rest, err)
	}
}

// A process that ends without reading its input: the client sees a clean end,
// not a reset connection.
func TestExecUnreadStdin(t *testing.T) {
	noLeak(t)
	f := newSocketFixture(t, "")
	withContainers(f.fixture)
	release := make(chan struct{})
	f.containers.exec, _ = runs(func(spec jail.ExecSpec) int { <-release; fmt.Fprint(spec.Stdout, "bye"); return 0 })
	id := f.create(t, container.ExecOptions{Cmd: []string{"true"}, AttachStdin: true, AttachStdout: true})
	resp := f.attachExec(t, id, false)
	if _, err := resp.Conn.Write(make([]byte, 64<<10)); err != nil {
		t.Fatal(err)
	}
	close(release)
	var stdout bytes.Buffer
	if _, err := stdcopy.StdCopy(&stdout, io.Discard, resp.Reader); err != nil || stdout.String() != "bye" {
		t.Errorf("%q %v", stdout.String(), err)
	}
	resp.Close()
}

// The detach keys leave the terminal; what runs in it goes on and its end is
// still recorded.
func TestExecDetachKeys(t *testing.T) {
	noLeak(t)
	f := newSocketFixture(t, "")
	withContainers(f.fixture)
	release := make(chan struct{})
	inputEnded := make(chan struct{})
	f.containers.exec, _ = runs(func(spec jail.ExecSpec) int {
		go func() {
			defer close(inputEnded)
			_, _ = io.Copy(io.Discard, spec.Stdin)
		}()
		<-release
		fmt.Fprint(spec.Stdout, "nobody hears this")
		return 9
	})
	_, live, cancel := f.events.Subscribe(time.Time{})
	defer cancel()
	id := f.create(t, container.ExecOptions{Cmd: []string{"sh", "-i"}, Tty: true, AttachStdin: true, AttachStdout: true, DetachKeys: "ctrl-a,z"})
	resp := f.attachExec(t, id, true)
	fmt.Fprint(resp.Conn, "x\x01z")
	if rest, err := io.ReadAll(resp.Reader); err != nil || len(rest) != 0 {
		t.Errorf("%q %v", rest, err)
	}
	if e, _ := f.client.ContainerExecInspect(t.Context(), id); !e.Running {
		t.Error("detaching ended it")
	}
	select {
	case <-inputEnded:
		t.Error("detaching was read as the end of the input: a shell ends at that")
	case <-time.After(20 * time.Millisecond):
	}
	close(release)
	<-inputEnded
	eventually(t, "the end is recorded", func() bool {
		e, err := f.client.ContainerExecInspect(t.Context(), id)
		return err == nil && !e.Running && e.ExitCode == 9
	})
	var actions []string
	for range 4 {
		m := <-live
		actions = append(actions, string(m.Action))
		if m.Actor.ID != webID || m.Actor.Attributes["execID"] != id || m.Actor.Attributes["image"] != "bb:1" {
			t.Errorf("%+v", m)
		}
		if m.Action == "exec_die" && m.Actor.Attributes["exitCode"] != "9" {
			t.Errorf("%+v", m)
		}
	}
	if got := strings.Join(actions, ", "); got != "exec_create: sh -i, exec_start: sh -i, exec_detach, exec_die" {
		t.Error(got)
	}
}

// The client vanishes: what it started goes on, its input ends, its output is
// discarded, its exit code recorded.
func TestExecClientVanishes(t *testing.T) {
	noLeak(t)
	f := newSocketFixture(t, "")
	withContainers(f.fixture)
	f.containers.exec, _ = runs(func(spec jail.ExecSpec) int {
		_, _ = io.Copy(io.Discard, spec.Stdin) // until the client is gone
		for range 1000 {
			if n, err := spec.Stdout.Write(make([]byte, 4096)); n != 4096 || err != nil {
				return 1
			}
		}
		return 4
	})
	id := f.create(t, container.ExecOptions{Cmd: []string{"sh"}, AttachStdin: true, AttachStdout: true})
	resp := f.attachExec(t, id, false)
	resp.Close()
	eventually(t, "the exec ends", func() bool {
		e, err := f.client.ContainerExecInspect(t.Context(), id)
		return err == nil && !e.Running && e.ExitCode == 4
	})
}

// A client that reads slowly slows the process down and loses nothing.
func TestExecSlowClient(t *testing.T) {
	noLeak(t)
	f := newSocketFixture(t, "")
	withContainers(f.fixture)
	const size = 4 << 20
	f.containers.exec, _ = runs(func(spec jail.ExecSpec) int {
		_, _ = spec.Stdout.Write(bytes.Repeat([]byte("x"), size))
		return 0
	})
	id := f.create(t, container.ExecOptions{Cmd: []string{"sh"}, AttachStdout: true})
	resp := f.attachExec(t, id, false)
	time.Sleep(50 * time.Millisecond) // the socket's buffer is full by now
	if e, _ := f.client.ContainerExecInspect(t.Context(), id); !e.Running {
		t.Error("ended before its output was read")
	}
	var n countedWriter
	n.to = io.Discard
	if _, err := stdcopy.StdCopy(&n, io.Discard, resp.Reader); err != nil || n.n != size {
		t.Errorf("%d bytes, %v", n.n, err)
	}
}

// The runtime gives up on the output some time after the command has ended: a
// client that was slow to read the rest gets it all the same.
func TestExecSlowClientGetsTheRest(t *testing.T) {
	noLeak(t)
	f := newSocketFixture(t, "")
	withContainers(f.fixture)
	const size = 900 << 10
	f.containers.exec = func(_ context.Context, _ string, spec jail.ExecSpec) (jail.Process, error) {
		p := &fakeProcess{pid: 1, done: make(chan struct{})}
		close(p.done) // at once, with all of its output still to be copied
		begun := make(chan struct{})
		go func() {
			close(begun)
			for range size / 4096 {
				_, _ = spec.Stdout.Write(make([]byte, 4096))
			}
		}()
		<-begun
		time.Sleep(10 * time.Millisecond) // the socket is full and a write under way
		return p, nil
	}
	id := f.create(t, container.ExecOptions{Cmd: []string{"sh"}, AttachStdout: true})
	resp := f.attachExec(t, id, false)
	time.Sleep(100 * time.Millisecond)
	n := countedWriter{to: io.Discard}
	if _, err := stdcopy.StdCopy(&n, io.Discard, resp.Reader); err != nil || n.n != size {
		t.Errorf("%d bytes, %v", n.n, err)
	}
}
