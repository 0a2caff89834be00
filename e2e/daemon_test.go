// SPDX-License-Identifier: BSD-2-Clause

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"satld/internal/slowday"
)

// daemon is one satld under test.
type daemon struct {
	t       *testing.T
	n       int
	dir     string
	state   string
	sock    string
	network string
	subnet  string // first two bytes of its pool
	log     *os.File
	cmd     *exec.Cmd
	exited  chan error
	extra   []string
	env     []string // beside the tests' own
	netns   string   // the network namespace it runs in; "" is the machine's
}

// daemons numbers the daemons of this test process; the base keeps test
// processes that run at the same time apart.
var daemons atomic.Int64

func base() int {
	h := fnv.New32a()
	fmt.Fprint(h, os.Getpid())
	return int(h.Sum32() % slots)
}

// newDaemon starts a satld in a scratch directory and takes everything of it
// away at the end of the test, failing it if anything is left behind.
func newDaemon(t *testing.T, extra ...string) *daemon {
	t.Helper()
	need(t)
	n := int(daemons.Add(1))
	dir, err := os.MkdirTemp("", "satl-e2e-")
	if err != nil {
		t.Fatal(err)
	}
	slot := takeSlot(t, base()+n)
	d := &daemon{
		t: t, n: n, dir: dir, state: filepath.Join(dir, "state"), sock: filepath.Join(dir, "satl.sock"),
		network: fmt.Sprintf("st%x%d", os.Getpid(), n), subnet: fmt.Sprintf("10.%d", 130+slot), extra: extra,
	}
	if d.log, err = os.Create(filepath.Join(dir, "satld.log")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.destroy)
	d.start()
	return d
}

// slots are the address ranges of the host's own daemons, 10.(130+slot).0.0/16.
const slots = 97

var (
	slotsMu sync.Mutex
	taken   [slots]bool
)

// takeSlot gives a range that no other daemon of this run has, until the end of
// the test.
func takeSlot(t *testing.T, start int) int {
	t.Helper()
	slotsMu.Lock()
	defer slotsMu.Unlock()
	for i := range slots {
		slot := (start + i) % slots
		if taken[slot] {
			continue
		}
		taken[slot] = true
		t.Cleanup(func() {
			slotsMu.Lock()
			defer slotsMu.Unlock()
			taken[slot] = false
		})
		return slot
	}
	t.Fatal("no address range is left for another daemon")
	return 0
}

func (d *daemon) flags() []string {
	return append([]string{
		"--socket", d.sock, "--state-dir", d.state,
		"--listen-addr", fmt.Sprintf("127.0.0.1:%d", 20000+(base()*100+d.n)%10000),
		"--network-name", d.network, "--network-pool", d.subnet + ".0.0/17", "--overlay-pool", d.subnet + ".128.0/17", "--log-level", "debug",
	}, d.extra...)
}

// start runs the daemon and waits until it answers.
func (d *daemon) start() {
	d.t.Helper()
	argv := append([]string{filepath.Join(bin, "satld")}, d.flags()...)
	if d.netns != "" {
		// Not `ip netns exec`, which makes a mount namespace as well, so that
		// a daemon started anew would not see the mounts of its containers.
		argv = append([]string{"nsenter", "--net=" + netnsDir + d.netns, "--"}, argv...)
	}
	d.cmd = exec.Command(argv[0], argv[1:]...)
	d.cmd.Stdout, d.cmd.Stderr = d.log, d.log
	d.cmd.Env = append(os.Environ(), d.env...)
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := d.cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	d.exited = make(chan error, 1)
	cmd, exited := d.cmd, d.exited
	go func() { exited <- cmd.Wait() }()
	begun := time.Now()
	for {
		if _, err := d.get("/info"); err == nil {
			return
		} else if slowday.Over(begun, 20*time.Second) {
			d.t.Fatalf("satld does not answer: %v\n%s", err, d.logTail())
		}
		select {
		case err := <-d.exited:
			d.exited <- err
			d.t.Fatalf("satld ended: %v\n%s", err, d.logTail())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// kill ends the daemon without warning; term asks it to stop.
func (d *daemon) kill() { d.end(syscall.SIGKILL) }
func (d *daemon) term() { d.end(syscall.SIGTERM) }

func (d *daemon) end(sig syscall.Signal) {
	d.t.Helper()
	if d.cmd == nil {
		return
	}
	_ = d.cmd.Process.Signal(sig)
	select {
	case err := <-d.exited:
		if sig == syscall.SIGTERM && err != nil {
			d.t.Errorf("satld stopped with %v\n%s", err, d.logTail())
		}
	case <-time.After(slowday.Of(15 * time.Second)):
		// Its stacks go to the log.
		_ = d.cmd.Process.Signal(syscall.SIGQUIT)
		select {
		case <-d.exited:
		case <-time.After(5 * time.Second):
			_ = d.cmd.Process.Kill()
			<-d.exited
		}
		stacks, _ := os.ReadFile(d.log.Name())
		d.t.Errorf("satld did not stop in time after %v\n%s", sig, stacks[max(0, bytes.LastIndex(stacks, []byte("SIGQUIT"))):])
	}
	d.cmd = nil
}

// destroy takes the daemon and all that it made away, then looks for leftovers.
func (d *daemon) destroy() {
	d.term()
	if d.t.Failed() {
		d.t.Logf("daemon log:\n%s", d.logTail())
	}
	argv := append([]string{filepath.Join(bin, "satld"), "cleanup"}, d.flags()...)
	if d.netns != "" {
		argv = append([]string{"nsenter", "--net=" + netnsDir + d.netns, "--"}, argv...)
	}
	out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		d.t.Errorf("cleanup: %v\n%s", err, out)
	}
	// The shim ends by itself, a moment after the last that it held.
	left := d.leftovers()
	for begun := time.Now(); len(left) > 0 && !slowday.Over(begun, 5*time.Second); left = d.leftovers() {
		time.Sleep(50 * time.Millisecond)
	}
	for _, l := range left {
		d.t.Errorf("left behind: %s", l)
	}
	d.log.Close()
	if err := os.RemoveAll(d.dir); err != nil {
		d.t.Errorf("remove scratch directory: %v", err)
	}
}

// leftovers names what of this daemon is still on the machine.
func (d *daemon) leftovers() []string {
	var left []string
	if data, err := os.ReadFile("/proc/self/mountinfo"); err == nil {
		for line := range strings.Lines(string(data)) {
			if strings.Contains(line, d.dir) {
				left = append(left, "mount "+strings.TrimSpace(line))
			}
		}
	}
	procs, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, p := range procs {
		if data, err := os.ReadFile(p); err == nil && bytes.Contains(data, []byte(d.dir)) {
			left = append(left, "process "+p+" "+string(bytes.ReplaceAll(data, []byte{0}, []byte{' '})))
		}
	}
	links, _ := net.Interfaces()
	for _, l := range links {
		if l.Name == d.network {
			left = append(left, "interface "+l.Name)
		}
		addrs, _ := l.Addrs()
		for _, a := range addrs {
			if strings.HasPrefix(a.String(), d.subnet+".") {
				left = append(left, "interface "+l.Name+" "+a.String())
			}
		}
	}
	if out, err := exec.Command("nft", "list", "ruleset").Output(); err == nil && strings.Contains(string(out), d.subnet+".") {
		left = append(left, "nft rules of "+d.subnet)
	}
	return left
}

// logTail is the end of the daemon's log, without gRPC's own lines, which are
// most of it where a node is away.
func (d *daemon) logTail() string {
	data, _ := os.ReadFile(d.log.Name())
	var tail []byte
	for line := range bytes.Lines(data) {
		if !bytes.Contains(line, []byte(" module=grpc")) {
			tail = append(tail, line...)
		}
	}
	return string(tail[max(0, len(tail)-16000):])
}

// get asks the API by HTTP.
func (d *daemon) get(path string) ([]byte, error) {
	client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var dialer net.Dialer
			return dialer.DialContext(ctx, "unix", d.sock)
		},
	}}
	resp, err := client.Get("http://satl/v1.47" + path)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var buf bytes.Buffer
	if _, err := buf.ReadFrom(resp.Body); err != nil {
		return nil, err
	}
	if resp.StatusCode >= 400 {
		return nil, fmt.Errorf("GET %s: %s: %s", path, resp.Status, buf.String())
	}
	return buf.Bytes(), nil
}

// try runs the docker CLI against the daemon.
func (d *daemon) try(args ...string) (stdout, stderr string, err error) {
	return d.client("docker", nil, args...)
}

func (d *daemon) client(program string, stdin []byte, args ...string) (stdout, stderr string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), slowday.Of(90*time.Second))
	defer cancel()
	cmd := exec.CommandContext(ctx, program, append([]string{"-H", "unix://" + d.sock}, args...)...)
	cmd.Env = append(os.Environ(), "DOCKER_CONFIG="+filepath.Join(d.dir, "docker-config"))
	cmd.Stdin = bytes.NewReader(stdin)
	var out, errb bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errb
	err = cmd.Run()
	if ctx.Err() != nil {
		err = fmt.Errorf("%s did not end within 90s: %w", strings.Join(args, " "), err)
	}
	return out.String(), errb.String(), err
}

// docker runs the docker CLI, which must succeed, and returns its trimmed output.
// What is refused with nothing done and the advice to try again, as while nobody
// leads, is tried again: a starved machine comes to elections.
func (d *daemon) docker(args ...string) string {
	d.t.Helper()
	for begun := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		out, stderr, err := d.try(args...)
		if err == nil {
			return strings.TrimSpace(out)
		}
		if !strings.Contains(stderr, ": try again") || slowday.Over(begun, 10*time.Second) {
			d.t.Fatalf("docker %s: %v\nstdout: %s\nstderr: %s", strings.Join(args, " "), err, out, stderr)
		}
	}
}

// refused runs the docker CLI, which must fail naming want.
func (d *daemon) refused(want string, args ...string) {
	d.t.Helper()
	out, stderr, err := d.try(args...)
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		d.t.Errorf("docker %s was not refused (%v): %s", strings.Join(args, " "), err, out)
		return
	}
	if !strings.Contains(stderr, want) {
		d.t.Errorf("docker %s: want %q in: %s", strings.Join(args, " "), want, stderr)
	}
}

// inspect decodes `docker inspect` of one object.
func (d *daemon) inspect(kind, name string) map[string]any {
	d.t.Helper()
	args := []string{"inspect", name}
	if kind != "" {
		args = []string{kind, "inspect", name}
	}
	var list []map[string]any
	if err := json.Unmarshal([]byte(d.docker(args...)), &list); err != nil || len(list) != 1 {
		d.t.Fatalf("inspect %s: %v, %d objects", name, err, len(list))
	}
	return list[0]
}

// path walks a decoded document by keys.
func path(doc any, keys ...string) any {
	for _, k := range keys {
		m, ok := doc.(map[string]any)
		if !ok {
			return nil
		}
		doc = m[k]
	}
	return doc
}

// eventually waits until ok holds; what says what for.
func eventually(t *testing.T, within time.Duration, what string, ok func() bool) {
	t.Helper()
	begun := time.Now()
	for !ok() {
		if slowday.Over(begun, within) {
			t.Fatalf("not within %s: %s", within, what)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// task is a row of a service's tasks as the API tells it.
type task struct {
	ID           string
	NodeID       string
	Slot         int
	DesiredState string
	Status       struct {
		State, Err, Message string
		ContainerStatus     struct {
			ContainerID string
			PID         int
			ExitCode    int
		}
	}
}

// tasks lists a service's tasks, newest last.
func (d *daemon) tasks(service string) []task {
	d.t.Helper()
	list, err := d.tryTasks(service)
	if err != nil {
		d.t.Fatal(err)
	}
	return list
}

func (d *daemon) tryTasks(service string) (list []task, err error) {
	data, err := d.get("/tasks?filters=" + `%7B%22service%22%3A%5B%22` + service + `%22%5D%7D`)
	if err != nil {
		return nil, err
	}
	return list, json.Unmarshal(data, &list)
}

// running are the tasks of a service that are RUNNING and wanted so.
func (d *daemon) running(service string) []task {
	d.t.Helper()
	return slices.DeleteFunc(d.tasks(service), notRunning)
}

func notRunning(t task) bool { return t.Status.State != "running" || t.DesiredState != "running" }
