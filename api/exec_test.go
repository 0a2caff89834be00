// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/pkg/stdcopy"

	"satld/executor"
	"satld/jail"
)

// fakeProcess runs a function in the place of a process.
type fakeProcess struct {
	pid  int
	done chan struct{}
	code int

	mu    sync.Mutex
	sizes []string
}

func (p *fakeProcess) Pid() int           { return p.pid }
func (p *fakeProcess) Wait() (int, error) { <-p.done; return p.code, nil }
func (p *fakeProcess) Kill(int) error     { return nil }
func (p *fakeProcess) Resize(w, h uint16) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sizes = append(p.sizes, fmt.Sprintf("%dx%d", w, h))
	return nil
}

// runs makes exec run body; the last process is sent to started.
func runs(body func(spec jail.ExecSpec) int) (exec func(context.Context, string, jail.ExecSpec) (jail.Process, error), started chan *fakeProcess) {
	started = make(chan *fakeProcess, 100)
	return func(_ context.Context, _ string, spec jail.ExecSpec) (jail.Process, error) {
		p := &fakeProcess{pid: 4290, done: make(chan struct{})}
		if spec.Size != (jail.TermSize{}) { // what it begins with
			p.sizes = append(p.sizes, fmt.Sprintf("%dx%d", spec.Size.Columns, spec.Size.Rows))
		}
		go func() {
			p.code = body(spec)
			close(p.done)
		}()
		started <- p
		return p, nil
	}, started
}

// cat copies its input to its output.
func cat(spec jail.ExecSpec) int {
	if spec.Stdin == nil {
		return 0
	}
	if _, err := io.Copy(spec.Stdout, spec.Stdin); err != nil {
		return 1
	}
	return 0
}

func (f *socketFixture) create(t testing.TB, o container.ExecOptions) string {
	t.Helper()
	resp, err := f.client.ContainerExecCreate(t.Context(), "web", o)
	if err != nil {
		t.Fatal(err)
	}
	return resp.ID
}

func (f *socketFixture) attachExec(t testing.TB, id string, tty bool) types.HijackedResponse {
	t.Helper()
	resp, err := f.client.ContainerExecAttach(t.Context(), id, container.ExecAttachOptions{Tty: tty})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(resp.Close)
	return resp
}

func TestExecAsRecorded(t *testing.T) {
	f := newFixture(t)
	withContainers(f)
	f.containers.exec, _ = runs(func(jail.ExecSpec) int { return 3 })
	rec := readRecorded(t, "exec-create")
	code, _, body := f.do(t, rec.Method, rec.URI, string(rec.ReqBody))
	if code != rec.Status {
		t.Fatalf("%d %s", code, body)
	}
	sameShape(t, "", decoded(t, rec.RespBody), decoded(t, []byte(body)), nil, nil)
	id := decoded(t, []byte(body)).(map[string]any)["Id"].(string)
	if _, _, body := f.do(t, "GET", "/exec/"+id+"/json", ""); !strings.Contains(body, `"ExitCode":null`) || !strings.Contains(body, `"Running":false`) {
		t.Errorf("before: %s", body)
	}
	// A client that does not ask for an upgrade gets a plain 200.
	resp, err := f.Client().Post(f.URL+"/exec/"+id+"/start", "application/json", strings.NewReader(`{"Detach":false,"Tty":false}`))
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "application/vnd.docker.raw-stream" || resp.Header.Get("Api-Version") != "1.51" {
		t.Errorf("start: %d %v", resp.StatusCode, resp.Header)
	}
	rec = readRecorded(t, "exec-inspect")
	_, _, body = f.do(t, "GET", "/exec/"+id+"/json", "")
	sameShape(t, "", decoded(t, rec.RespBody), decoded(t, []byte(body)), nil,
		set(".Running", ".ExitCode", ".Pid", ".ContainerID", ".OpenStdin", ".OpenStdout", ".OpenStderr", ".CanRemove", ".DetachKeys",
			".ProcessConfig.tty", ".ProcessConfig.entrypoint", ".ProcessConfig.privileged"))
}

func TestExecStreams(t *testing.T) {
	for _, version := range []string{"1.24", "1.41", "1.42", "1.51"} {
		t.Run(version, func(t *testing.T) {
			noLeak(t)
			f := newSocketFixture(t, version)
			withContainers(f.fixture)
			var got jail.ExecSpec
			f.containers.exec, _ = runs(func(spec jail.ExecSpec) int {
				got = spec
				fmt.Fprint(spec.Stdout, "to stdout\n")
				fmt.Fprint(spec.Stderr, "to stderr\n")
				return 7
			})
			var env []string
			if version != "1.24" { // its client refuses to send one
				env = []string{"A=b"}
			}
			id := f.create(t, container.ExecOptions{Cmd: []string{"sh", "-c", "x y"}, AttachStdout: true, AttachStderr: true,
				Env: env, User: "www", WorkingDir: "/srv", Privileged: true})
			resp := f.attachExec(t, id, false)
			if err := resp.CloseWrite(); err != nil { // as the CLI does without -i
				t.Fatal(err)
			}
			var stdout, stderr bytes.Buffer
			if _, err := stdcopy.StdCopy(&stdout, &stderr, resp.Reader); err != nil {
				t.Fatal(err)
			}
			if stdout.String() != "to stdout\n" || stderr.String() != "to stderr\n" {
				t.Errorf("%q %q", stdout.String(), stderr.String())
			}
			// The exit code is there as soon as the output has ended.
			if e, err := f.client.ContainerExecInspect(t.Context(), id); err != nil || e.Running || e.ExitCode != 7 || e.Pid != 4290 {
				t.Errorf("%+v %v", e, err)
			}
			if s := fmt.Sprintln(got.Args, env, got.User, got.Cwd, got.Privileged, got.TTY, got.Stdin == nil); s != fmt.Sprintln("[sh -c x y]", got.Env, "www /srv true false true") {
				t.Errorf("spec: %s", s)
			}
			media, ok := resp.MediaType()
			if wantOK := version >= "1.42"; ok != wantOK || ok && media != types.MediaTypeMultiplexedStream {
				t.Errorf("media type %q %v", media, ok)
			}
		})
	}
}

// `docker exec -i web.1 cat < file`: bit for bit, and cat sees the end.
func TestExecStdinIsExact(t *testing.T) {
	noLeak(t)
	f := newSocketFixture(t, "")
	withContainers(f.fixture)
	f.containers.exec, _ = runs(cat)
	id := f.create(t, container.ExecOptions{Cmd: []string{"cat"}, AttachStdin: true, AttachStdout: true, AttachStderr: true})
	resp := f.attachExec(t, id, false)
	data := make([]byte, 10<<20)
	rnd := rand.NewChaCha8([32]byte{1})
	_, _ = rnd.Read(data)
	go func() {
		_, _ = resp.Conn.Write(data)
		_ = resp.CloseWrite()
	}()
	h := sha256.New()
	if _, err := stdcopy.StdCopy(h, io.Discard, resp.Reader); err != nil {
		t.Fatal(err)
	}
	if want := sha256.Sum256(data); !bytes.Equal(h.Sum(nil), want[:]) {
		t.Error("what came back is not what was sent")
	}
	if e, err := f.client.ContainerExecInspect(t.Context(), id); err != nil || e.Running || e.ExitCode != 0 {
		t.Errorf("%+v %v", e, err)
	}
}

func TestExecTerminal(t *testing.T) {
	noLeak(t)
	f := newSocketFixture(t, "")
	withContainers(f.fixture)
	exec, started := runs(func(spec jail.ExecSpec) int {
		in := bufio.NewReader(spec.Stdin)
		for {
			line, err := in.ReadString('\n')
			if err != nil || line == "exit\n" {
				return 5
			}
			fmt.Fprint(spec.Stdout, "> "+line)
		}
	})
	f.containers.exec = exec
	id := f.create(t, container.ExecOptions{Cmd: []string{"sh"}, Tty: true, ConsoleSize: &[2]uint{24, 80}, AttachStdin: true, AttachStdout: true, AttachStderr: true})
	resp := f.attachExec(t, id, true)
	p := <-started
	fmt.Fprint(resp.Conn, "hello\n")
	line := make([]byte, 8)
	if _, err := io.ReadFull(resp.Reader, line); err != nil || string(line) != "> hello\n" {
		t.Fatalf("%q %v", line, err)
	}
	if err := f.client.ContainerExecResize(t.Context(), id, container.ResizeOptions{Height: 30, Width: 100}); err != nil {
		t.Error(err)
	}
	if e, err := f.client.ContainerExecInspect(t.Context(), id); err != nil || !e.Running {
		t.Errorf("%+v %v", e, err)
	}
	fmt.Fprint(resp.Conn, "exit\n")
	if _, err := io.ReadAll(resp.Reader); err != nil {
		t.Error(err)
	}
	p.mu.Lock()
	if got := fmt.Sprint(p.sizes); got != "[80x24 100x30]" {
		t.Error(got)
	}
	p.mu.Unlock()
	if e, _ := f.client.ContainerExecInspect(t.Context(), id); e.ExitCode != 5 {
		t.Errorf("%+v", e)
	}
	if err := f.client.ContainerExecResize(t.Context(), id, container.ResizeOptions{Height: 30, Width: 100}); !errdefs.IsConflict(err) {
		t.Errorf("resize after the end: %v", err)
	}
}

func TestExecDetached(t *testing.T) {
	noLeak(t)
	f := newSocketFixture(t, "")
	withContainers(f.fixture)
	release := make(chan struct{})
	f.containers.exec, _ = runs(func(spec jail.ExecSpec) int {
		<-release
		if spec.Stdin != nil || spec.Stdout != nil || spec.Stderr != nil {
			return 1
		}
		return 6
	})
	id := f.create(t, container.ExecOptions{Cmd: []string{"sleep"}})
	if err := f.client.ContainerExecStart(t.Context(), id, container.ExecStartOptions{Detach: true}); err != nil {
		t.Fatal(err)
	}
	if c, err := f.client.ContainerInspect(t.Context(), "web"); err != nil || len(c.ExecIDs) != 1 || c.ExecIDs[0] != id {
		t.Errorf("%v %v", c.ExecIDs, err)
	}
	if err := f.client.ContainerExecStart(t.Context(), id, container.ExecStartOptions{Detach: true}); !errdefs.IsConflict(err) || !strings.Contains(err.Error(), "is already running") {
		t.Errorf("twice: %v", err)
	}
	close(release)
	eventually(t, "it ends", func() bool {
		e, _ := f.client.ContainerExecInspect(t.Context(), id)
		return !e.Running && e.ExitCode == 6
	})
	if err := f.client.ContainerExecStart(t.Context(), id, container.ExecStartOptions{Detach: true}); !errdefs.IsConflict(err) || !strings.Contains(err.Error(), "has already run") {
		t.Errorf("again: %v", err)
	}
}

func TestExecCannotRun(t *testing.T) {
	for _, c := range []struct {
		err   error
		code  int
		fault func(error) bool
	}{
		{&jail.StartError{ExitCode: 127, Text: `exec: "nosuch": executable file not found in $PATH`}, 127, errdefs.IsInvalidArgument},
		{fmt.Errorf("exec: %w", &jail.StartError{ExitCode: 126, Text: "exec /etc/passwd: permission denied"}), 126, errdefs.IsInvalidArgument},
		{errors.New("runtime is out of order"), 126, errdefs.IsInternal},
	} {
		f := newSocketFixture(t, "")
		withContainers(f.fixture)
		f.containers.exec = func(context.Context, string, jail.ExecSpec) (jail.Process, error) { return nil, c.err }
		id := f.create(t, container.ExecOptions{Cmd: []string{"nosuch"}, AttachStdout: true, AttachStderr: true})
		resp := f.attachExec(t, id, false)
		var stdout bytes.Buffer
		if _, err := stdcopy.StdCopy(&stdout, io.Discard, resp.Reader); err != nil || !strings.Contains(stdout.String(), c.err.Error()) {
			t.Errorf("%q %v", stdout.String(), err)
		}
		if e, _ := f.client.ContainerExecInspect(t.Context(), id); e.Running || e.ExitCode != c.code {
			t.Errorf("%v: %+v", c.err, e)
		}
		id = f.create(t, container.ExecOptions{Cmd: []string{"nosuch"}})
		if err := f.client.ContainerExecStart(t.Context(), id, container.ExecStartOptions{Detach: true}); !c.fault(err) || !strings.Contains(err.Error(), c.err.Error()) {
			t.Errorf("detached: %v", err)
		}
	}
}

func TestExecRefused(t *testing.T) {
	f := newFixture(t)
	withContainers(f)
	for _, c := range []struct {
		path, body, want string
		code             int
	}{
		{"/containers/web/exec", `{"Cmd":[]}`, "No exec command specified", 400},
		{"/containers/web/exec", `{}`, "No exec command specified", 400},
		{"/containers/web/exec", `{"Cmd":["sh"`, "invalid JSON", 400},
		{"/containers/web/exec", ``, "EOF", 400},
		{"/containers/web/exec", `{"Cmd":["sh"],"DetachKeys":"ctrl-nonsense"}`, "Invalid detach keys", 400},
		{"/containers/web/exec", `{"Cmd":["sh"],"Env":["=x"]}`, "invalid environment variable", 400},
		{"/containers/web/exec", `{"Cmd":["sh"],"Tty":true,"ConsoleSize":[70000,1]}`, "invalid console size", 400},
		{"/containers/nobody/exec", `{"Cmd":["sh"]}`, "No such container: nobody", 404},
		{"/containers/db/exec", `{"Cmd":["sh"]}`, "container " + runID + " is not running", 409},
		{"/containers/old/exec", `{"Cmd":["sh"]}`, "is not running", 409},
		{"/exec/0123/start", `{}`, "No such exec instance: 0123", 404},
		{"/exec/0123/resize?h=1&w=1", ``, "No such exec instance: 0123", 404},
	} {
		code, _, body := f.do(t, "POST", c.path, c.body)
		if code != c.code || !strings.Contains(body, c.want) {
			t.Errorf("%s %s: %d %s", c.path, c.body, code, body)
		}
	}
	if code, _, _ := f.do(t, "GET", "/exec/0123/json", ""); code != 404 {
		t.Errorf("inspect: %d", code)
	}
	paused := webTask()
	paused.State = executor.Paused
	f.containers.get = func(string) (executor.Snapshot, error) { return paused, nil }
	if code, _, body := f.do(t, "POST", "/containers/web/exec", `{"Cmd":["sh"]}`); code != 409 || !strings.Contains(body, "is paused, unpause the container before exec") {
		t.Errorf("paused: %d %s", code, body)
	}
	// A task that ended between create and start; then it is gone.
	paused.State = executor.Running
	_, _, body := f.do(t, "POST", "/containers/web/exec", `{"Cmd":["sh"]}`)
	id := decoded(t, []byte(body)).(map[string]any)["Id"].(string)
	paused.State = executor.Exited
	if code, _, body := f.do(t, "POST", "/exec/"+id+"/start", `{}`); code != 409 || !strings.Contains(body, "is not running") {
		t.Errorf("ended: %d %s", code, body)
	}
	f.containers.get = func(string) (executor.Snapshot, error) { return executor.Snapshot{}, noContainer("web") }
	if code, _, body := f.do(t, "GET", "/exec/"+id+"/json", ""); code != 404 || !strings.Contains(body, "No such exec instance") {
		t.Errorf("gone: %d %s", code, body)
	}
}
