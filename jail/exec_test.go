// SPDX-License-Identifier: BSD-2-Clause

//go:build linux || freebsdhost

package jail

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"satld/jail/shim"
)

// syncBuffer is a bytes.Buffer for two goroutines.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// await waits until the text is there.
func (s *syncBuffer) await(t *testing.T, text string) {
	t.Helper()
	for range 10000 {
		if strings.Contains(s.String(), text) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("%q did not come, but %q", text, s.String())
}

func TestExec(t *testing.T) {
	n := newNode(t)
	ctx := context.Background()
	s := n.spec(noReaper)
	s.Env = []string{"A=1", "B=2"}
	n.start(s)
	do := func(spec ExecSpec) (code int, out, errs string) {
		t.Helper()
		var o, e bytes.Buffer
		spec.Stdout, spec.Stderr = &o, &e
		p, err := n.Exec(ctx, s.ID, spec)
		if err != nil {
			t.Fatalf("exec %q: %v", spec.Args, err)
		}
		code, err = p.Wait()
		if err != nil {
			t.Fatalf("exec %q: %v", spec.Args, err)
		}
		return code, o.String(), e.String()
	}
	if code, out, errs := do(ExecSpec{Args: []string{"sh", "-c", "echo o; echo e >&2; exit 6"}}); code != 6 || out != "o\n" || errs != "e\n" {
		t.Errorf("%d %q %q", code, out, errs)
	}
	if code, out, _ := do(ExecSpec{Args: []string{"sh", "-c", "echo $A $B; pwd; id -u; id; echo $HOME"}, Env: []string{"B=3"}, Cwd: "/tmp", User: "web"}); code != 0 ||
		!strings.HasPrefix(out, "1 3\n/tmp\n1000\n") || !strings.HasSuffix(out, "\n/home/web\n") || !strings.Contains(out, "44(logs)") {
		t.Errorf("%d %q", code, out)
	}
	if code, out, _ := do(ExecSpec{Args: []string{"cat"}, Stdin: strings.NewReader("through\n")}); code != 0 || out != "through\n" {
		t.Errorf("%d %q", code, out)
	}
	if !onJails {
		if _, out, _ := do(ExecSpec{Args: []string{"grep", "CapEff", "/proc/self/status"}, Privileged: true}); !strings.Contains(out, "1ff") {
			t.Errorf("privileged: %q", out)
		}
		if code, out, _ := do(ExecSpec{Args: []string{"sh", "-c", "echo x > /proc/self/fd/1"}, User: "web"}); code != 0 || out != "x\n" {
			t.Errorf("opening /dev/stdout: %d %q", code, out)
		}
	} else if _, err := n.Exec(ctx, s.ID, ExecSpec{Args: []string{"true"}, Privileged: true}); !errdefs.IsNotImplemented(err) {
		t.Errorf("privileged: %v", err)
	}
	big := strings.Repeat("0123456789abcdef", 1<<16)
	if code, out, _ := do(ExecSpec{Args: []string{"cat"}, Stdin: strings.NewReader(big)}); code != 0 || out != big {
		t.Errorf("%d, %d bytes of %d", code, len(out), len(big))
	}
	began := time.Now()
	if code, out, _ := do(ExecSpec{Args: []string{"sh", "-c", "echo now; sleep 600 & exit 2"}}); code != 2 || out != "now\n" || time.Since(began) > patience {
		t.Errorf("with a child in the background: %d %q after %v", code, out, time.Since(began))
	}
	if left, _ := filepath.Glob(n.dir.Container(s.ID) + "/exec-*"); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestExecCannotRun(t *testing.T) {
	n := newNode(t)
	ctx := context.Background()
	s := n.spec(noReaper)
	os.WriteFile(filepath.Join(s.Rootfs, "noexec"), []byte("x"), 0o644)
	n.start(s)
	for _, c := range []struct {
		spec ExecSpec
		code int
		text string
	}{
		{ExecSpec{Args: []string{"nothere"}}, 127, `exec: "nothere": executable file not found in $PATH`},
		{ExecSpec{Args: []string{"/not/here"}}, 127, `exec: "/not/here": stat /not/here: no such file or directory`},
		{ExecSpec{Args: []string{"/noexec"}}, 126, `exec: "/noexec": permission denied`},
		{ExecSpec{Args: []string{"nothere"}, TTY: true}, 127, `executable file not found`},
	} {
		if onJails {
			c.text = map[string]string{
				"nothere": "'nothere' not found in $PATH: No such file or directory", "/not/here": "/not/here: No such file or directory",
				"/noexec": "/noexec: Permission denied",
			}[c.spec.Args[0]]
		}
		_, err := n.Exec(ctx, s.ID, c.spec)
		var se *StartError
		if !errors.As(err, &se) || se.ExitCode != c.code || !strings.Contains(se.Text, c.text) {
			t.Errorf("%q: %v", c.spec.Args, err)
		}
	}
	if _, err := n.Exec(ctx, s.ID, ExecSpec{Args: []string{"true"}, User: "nobodyknows"}); !errdefs.IsInvalidArgument(err) {
		t.Errorf("unknown user: %v", err)
	}
	n.Kill(ctx, s.ID, 9)
	n.wait(s.ID)
	if _, err := n.Exec(ctx, s.ID, ExecSpec{Args: []string{"true"}}); !errdefs.IsConflict(err) || err.Error() != "container "+s.ID+" is not running" {
		t.Errorf("ended: %v", err)
	}
	if _, err := n.Exec(ctx, newID(), ExecSpec{Args: []string{"true"}}); !errdefs.IsNotFound(err) {
		t.Errorf("unknown: %v", err)
	}
}

func TestExecKilled(t *testing.T) { // cases/probe.md, probe-3: the command dies, not only its runc
	n := newNode(t)
	ctx := context.Background()
	s := n.spec(`while :; do sleep 1; done`)
	n.start(s)
	p, err := n.Exec(ctx, s.ID, ExecSpec{Args: []string{"sleep", "600"}})
	if err != nil {
		t.Fatal(err)
	}
	// The runtime's exec ends a moment before the command begins.
	eventually(t, "the command", func() bool { name := shim.Comm(p.Pid()); return name == "sleep" || name == "busybox" })
	if err := p.Kill(9); err != nil {
		t.Fatal(err)
	}
	if code, err := p.Wait(); err != nil || code != 137 {
		t.Errorf("%d, %v", code, err)
	}
}

func TestExecTTY(t *testing.T) {
	n := newNode(t)
	s := n.spec(noReaper)
	n.start(s)
	in, w := io.Pipe()
	out := &syncBuffer{}
	p, err := n.Exec(context.Background(), s.ID, ExecSpec{Args: []string{"sh"}, TTY: true, Stdin: in, Stdout: out})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Resize(123, 45); err != nil {
		t.Fatal(err)
	}
	io.WriteString(w, "tty; stty size\n")
	out.await(t, "\n45 123")
	played := onJails && runtime.GOOS == "linux" // has no /dev to look the name up in
	if !strings.Contains(out.String(), "/dev/pts/") && !played {
		t.Errorf("no terminal: %q", out)
	}
	io.WriteString(w, "echo $TERM; exit 5\n")
	if code, err := p.Wait(); err != nil || code != 5 {
		t.Errorf("%d, %v: %q", code, err, out)
	}
}

// A program that asks for its terminal's size at once is told what the client
// has, or something that it can work with.
func TestFirstSizeOfTerminal(t *testing.T) {
	n := newNode(t)
	for _, c := range []struct {
		size TermSize
		want string
	}{{TermSize{Rows: 31, Columns: 101}, "31 101"}, {TermSize{}, "24 80"}} {
		s := n.spec("stty size; exec sleep 1000")
		s.TTY, s.Size = true, c.size
		n.start(s)
		n.says(s.ID, c.want)
		out := &syncBuffer{}
		argv := []string{"stty", "size"}
		if onJails { // where the size is set when the command is on its way
			argv = []string{"sh", "-c", "until stty size 2>/dev/null | grep -v '^0'; do :; done"}
		}
		p, err := n.Exec(context.Background(), s.ID, ExecSpec{Args: argv, TTY: true, Stdout: out, Size: c.size})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Wait(); err != nil || !strings.HasPrefix(out.String(), c.want) {
			t.Errorf("exec: %q, %v, want %s", out, err, c.want)
		}
	}
}

func TestTTYContainer(t *testing.T) {
	n := newNode(t)
	ctx := context.Background()
	s := n.spec("")
	s.Args, s.TTY, s.OpenStdin = []string{"sh"}, true, true
	n.create(s)
	in, w := io.Pipe()
	out := &syncBuffer{}
	attached := make(chan error, 1)
	go func() { attached <- n.Attach(ctx, s.ID, in, out, nil) }()
	if _, err := n.Start(ctx, s.ID); err != nil {
		t.Fatal(err)
	}
	if err := n.Resize(ctx, s.ID, 99, 33); err != nil {
		t.Fatal(err)
	}
	io.WriteString(w, "stty size\n")
	out.await(t, "\n33 99")
	io.WriteString(w, "exit 4\n")
	if e := n.wait(s.ID); e.Code != 4 {
		t.Errorf("%+v", e)
	}
	select {
	case err := <-attached:
		if err != nil {
			t.Errorf("attach: %v", err)
		}
	case <-time.After(patience):
		t.Error("attach does not end")
	}
	if log, _ := n.output(s.ID); !strings.Contains(log, "33 99\r\n") {
		t.Errorf("log %q", log)
	}
}

func TestAttachStdin(t *testing.T) {
	n := newNode(t)
	ctx := context.Background()
	s := n.spec("")
	s.Args, s.OpenStdin, s.StdinOnce = []string{"sh", "-c", "echo early; cat; echo done >&2"}, true, true
	n.create(s)
	big := strings.Repeat("x", 1<<20) + "\n"
	var out, errs bytes.Buffer
	attached := make(chan error, 1)
	reading := make(chan struct{}) // its stdin is read: it is attached
	in := io.MultiReader(readerFunc(func([]byte) (int, error) {
		close(reading)
		return 0, io.EOF
	}), strings.NewReader(big))
	go func() { attached <- n.Attach(ctx, s.ID, in, &out, &errs) }()
	<-reading
	if _, err := n.Start(ctx, s.ID); err != nil {
		t.Fatal(err)
	}
	if err := <-attached; err != nil {
		t.Fatal(err)
	}
	if out.String() != "early\n"+big || errs.String() != "done\n" {
		t.Errorf("%d bytes, %q", out.Len(), errs.String())
	}
	if e := n.wait(s.ID); e.Code != 0 {
		t.Errorf("%+v", e)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
