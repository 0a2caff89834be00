// SPDX-License-Identifier: BSD-2-Clause

//go:build linux || freebsdhost

package jail

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"satld/jail/shim"
	"satld/platform"
)

// onJails tells that the containers are jails, real or played.
const onJails = platform.OS == "freebsd"

// patience is how long a thing that must happen is waited for. A FreeBSD to
// test on may be an emulated one.
var patience = map[bool]time.Duration{false: time.Minute, true: 3 * time.Minute}[runtime.GOOS == "freebsd"]

// The test binary is the shim as well, a daemon that can be killed, and a
// command for roots that have it not.
func TestMain(m *testing.M) {
	switch {
	case filepath.Base(os.Args[0]) == "setsid":
		setsidMain(os.Args[1:])
	case len(os.Args) > 1 && os.Args[1] == "test-shim":
		if err := ShimMain(context.Background(), os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	case len(os.Args) > 1 && os.Args[1] == "test-daemon":
		testDaemon(os.Args[2:])
		os.Exit(0)
	}
	code := m.Run()
	cleanMain()
	os.Exit(code)
}

var builtInit string // satl-init, built once, where probes need it

// eventually waits for a state that must come.
func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s does not come", what)
		}
	}
}

// setsidMain is setsid(1), which not every system has.
func setsidMain(argv []string) {
	path, err := exec.LookPath(argv[0])
	if err == nil {
		if _, err = syscall.Setsid(); err == nil {
			err = syscall.Exec(path, argv, os.Environ())
		}
	}
	fmt.Fprintln(os.Stderr, "setsid:", err)
	os.Exit(1)
}

// node is a Manager in a state directory of its own, checked for leftovers.
type node struct {
	*Manager
	t     testing.TB
	state string
	ids   []string
}

func newNode(t testing.TB) *node {
	t.Helper()
	needRuntime(t)
	n := &node{t: t, state: t.TempDir()}
	n.open()
	t.Cleanup(n.finish)
	return n
}

func (n *node) open() {
	n.t.Helper()
	m, err := Open(context.Background(), testConfig(n.state))
	if err != nil {
		n.t.Fatal(err)
	}
	n.Manager = m
}

// finish deletes everything and looks for what should be gone.
func (n *node) finish() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	for _, id := range n.ids {
		if err := n.Delete(ctx, id); err != nil {
			n.t.Errorf("delete %s: %v", id, err)
		}
		if err := n.Forget(ctx, id); err != nil {
			n.t.Errorf("forget %s: %v", id, err)
		}
	}
	if ids, err := n.List(ctx); err != nil || len(ids) > 0 {
		n.t.Errorf("containers left: %v, %v", ids, err)
	}
	n.close(ctx)
	if b, _ := os.ReadFile(n.dir.ShimLog()); len(b) > 0 {
		n.t.Logf("shim log:\n%s", b)
	}
	n.checkLeftovers()
}

// restart lets go of everything and opens it again, as a new daemon does.
func (n *node) restart() {
	n.t.Helper()
	if err := n.Close(); err != nil {
		n.t.Fatal(err)
	}
	n.open()
}

// close closes the Manager and waits for the end of its shim, which must come.
func (n *node) close(ctx context.Context) {
	n.t.Helper()
	pid, _, err := n.shim.Hello(ctx)
	if err != nil {
		n.t.Errorf("the shim does not answer at the end: %v", err)
	}
	if err := n.Close(); err != nil {
		n.t.Errorf("close: %v", err)
	}
	for ctx.Err() == nil { // its socket goes a moment before it
		if _, err := shim.StartTicks(pid); err != nil {
			return
		}
		time.Sleep(2 * time.Millisecond)
	}
	n.t.Error("the shim still runs")
}

// probe runs one probe with a time limit, as healthcheck does: counted from
// the moment the command runs.
func (n *node) probe(id string, timeout time.Duration, argv ...string) (code int, out string, took time.Duration, err error) {
	n.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var b bytes.Buffer
	var began time.Time
	starts := 0
	code, err = n.RunProbe(ctx, id, argv, &b, func() {
		starts++
		began = time.Now()
		time.AfterFunc(timeout, cancel)
	})
	if err == nil && starts != 1 {
		n.t.Errorf("started was called %d times", starts)
	}
	return code, b.String(), time.Since(began), err
}

// noReaper is a first process that never waits for anything.
const noReaper = `exec sleep 1000`

func startFailed(code int) func(error) bool {
	return func(err error) bool {
		var se *StartError
		return errors.As(err, &se) && se.ExitCode == code
	}
}

type counter struct{ n int64 }

func (c *counter) Write(p []byte) (int, error) {
	c.n += int64(len(p))
	return len(p), nil
}

func newID() string {
	b := make([]byte, 32)
	rand.Read(b)
	return hex.EncodeToString(b)
}

func (n *node) create(s Spec) int {
	n.t.Helper()
	pid, err := n.Create(context.Background(), s)
	if err != nil {
		n.t.Fatalf("create: %v", err)
	}
	return pid
}

func (n *node) start(s Spec) time.Time {
	n.t.Helper()
	n.create(s)
	at, err := n.Start(context.Background(), s.ID)
	if err != nil {
		n.t.Fatalf("start: %v", err)
	}
	return at
}

func (n *node) wait(id string) Exit {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	e, err := n.Wait(ctx, id)
	if err != nil {
		n.t.Fatalf("wait: %v", err)
	}
	return e
}

// says waits until the container has printed line.
func (n *node) says(id, line string) {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	found := errors.New("found")
	err := n.Logs(ctx, id, LogQuery{Tail: -1, Follow: true}, func(l LogLine) error {
		if strings.TrimSpace(string(l.Line)) == line {
			return found
		}
		return nil
	})
	if !errors.Is(err, found) {
		n.t.Fatalf("no line %q: %v", line, err)
	}
}

// output is the log as text, each stream apart, after the container's end.
func (n *node) output(id string) (stdout, stderr string) {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var out, errs strings.Builder
	err := n.Logs(ctx, id, LogQuery{Tail: -1, Follow: true}, func(l LogLine) error {
		if l.Stream == "stderr" {
			errs.Write(l.Line)
		} else {
			out.Write(l.Line)
		}
		return nil
	})
	if err != nil {
		n.t.Fatalf("logs: %v", err)
	}
	return out.String(), errs.String()
}
