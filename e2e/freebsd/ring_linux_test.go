// SPDX-License-Identifier: BSD-2-Clause

package freebsd

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/docker/docker/api/types/swarm"
	"github.com/vishvananda/netlink"

	"satld/internal/fakefreebsd"
	"satld/internal/fakefreebsd/world"
	"satld/network/nettest"
)

// hostAddr is the address of the fake host's one interface, in the namespace
// too, and stranger that of a client somewhere behind it.
const (
	hostAddr = "192.0.2.10"
	stranger = "203.0.113.7"
)

// ring is one satld on a FreeBSD of its own, in a namespace of its own.
type ring struct {
	*fakefreebsd.Fake
	t      *testing.T
	ns     *nettest.NS
	addr   string // of vtnet0
	dir    string
	state  string
	sock   string
	extra  []string
	log    *os.File
	cmd    *exec.Cmd
	exited chan error

	ruleset string // the operator's
}

// newRing makes a host and starts satld on it. At the end of the test all that
// satld made is taken away, and the test fails by what is left.
func newRing(t *testing.T, extra ...string) *ring {
	t.Helper()
	r := newHost(t, extra...)
	r.up()
	return r
}

// up starts the first daemon of a host and gives it the images.
func (r *ring) up() {
	r.t.Helper()
	r.start()
	r.docker("load", "-q", "-i", must(r.t, images))
}

// newHost is a ring without a daemon yet.
func newHost(t *testing.T, extra ...string) *ring {
	t.Helper()
	return newHostAt(t, hostAddr, extra...)
}

// newHostAt is one whose interface has another address.
func newHostAt(t *testing.T, addr string, extra ...string) *ring {
	t.Helper()
	need(t)
	dir, err := os.MkdirTemp("", "satl-freebsd-")
	if err != nil {
		t.Fatal(err)
	}
	r := &ring{t: t, addr: addr, dir: dir, state: filepath.Join(dir, "state"), sock: filepath.Join(dir, "satl.sock"), extra: extra}
	t.Cleanup(func() {
		// Only a directory that nothing is mounted in is removed.
		if mounts, err := os.ReadFile("/proc/self/mounts"); err != nil || strings.Contains(string(mounts), dir) {
			t.Errorf("mounted below %s still (%v):\n%s", dir, err, mounts)
		} else if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	r.Fake, r.ruleset = fakefreebsd.Install(t), fakefreebsd.MainRuleset
	r.RealNetwork()
	r.Change(func(w *world.World) { w.Link("", "vtnet0").Inet = []string{addr + "/24"} })
	r.ns = nettest.New(t)
	nettest.Must(t, r.ns.Do(func() error { return equip(addr) }))
	if r.log, err = os.Create(filepath.Join(dir, "satld.log")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.destroy)
	return r
}

func must(t *testing.T, f func() (string, error)) string {
	t.Helper()
	s, err := f()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// equip gives a namespace what the fake host says it has.
func equip(address string) error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "vtnet0"
	nic := &netlink.Veth{LinkAttrs: attrs, PeerName: "cable"}
	if err := errors.Join(netlink.LinkSetUp(lo), netlink.LinkAdd(nic)); err != nil {
		return err
	}
	for _, name := range []string{"vtnet0", "cable"} {
		l, err := netlink.LinkByName(name)
		if err == nil {
			err = netlink.LinkSetUp(l)
		}
		if err != nil {
			return err
		}
	}
	addr, err := netlink.ParseAddr(address + "/24")
	if err != nil {
		return err
	}
	if err := netlink.AddrAdd(nic, addr); err != nil {
		return err
	}
	link, err := netlink.LinkByName("vtnet0")
	if err != nil {
		return err
	}
	return netlink.RouteAdd(&netlink.Route{Gw: net.ParseIP("192.0.2.1"), LinkIndex: link.Attrs().Index})
}

func (r *ring) flags() []string {
	return append([]string{
		"--socket", r.sock, "--state-dir", r.state, "--listen-addr", "127.0.0.1:2377", "--log-level", "debug", "--log-output", "stderr",
	}, r.extra...)
}

// satld is a command of the daemon's program on this host.
func (r *ring) satld(args ...string) *exec.Cmd {
	r.t.Helper()
	cmd := exec.Command(filepath.Join(must(r.t, programs), "satld"), args...)
	cmd.Env = r.Env()
	return cmd
}

// start runs the daemon and waits until it answers.
func (r *ring) start() {
	r.t.Helper()
	r.cmd = r.satld(r.flags()...)
	r.cmd.Stdout, r.cmd.Stderr = r.log, r.log
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	nettest.Must(r.t, r.ns.Do(r.cmd.Start))
	r.exited = make(chan error, 1)
	cmd, exited := r.cmd, r.exited
	go func() { exited <- cmd.Wait() }()
	for deadline := time.Now().Add(60 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if status, _, err := r.try("GET", "/info", nil); err == nil && status == http.StatusOK {
			return
		}
		select {
		case err := <-r.exited:
			r.cmd = nil
			r.t.Fatalf("satld ended: %v\n%s", err, r.logTail())
		default:
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("satld does not answer\n%s", r.logTail())
		}
	}
}

// end stops the daemon with a signal.
func (r *ring) end(sig syscall.Signal) {
	r.t.Helper()
	if r.cmd == nil {
		return
	}
	_ = r.cmd.Process.Signal(sig)
	select {
	case err := <-r.exited:
		if sig == syscall.SIGTERM && err != nil {
			r.t.Errorf("satld stopped with %v", err)
		}
	case <-time.After(30 * time.Second):
		_ = r.cmd.Process.Kill()
		<-r.exited
		r.t.Errorf("satld did not stop within 30s of %v", sig)
	}
	r.cmd = nil
}

// firewallIsIntact looks that the operator's rules and tables are as they were,
// and that nothing but our anchors was ever written (cases/pool.md, pool-5).
func (r *ring) firewallIsIntact() {
	r.t.Helper()
	if now := r.World().PF.Main; now != r.ruleset {
		r.t.Errorf("the host's own ruleset is now:\n%s", now)
	}
	if addrs, _ := r.Table("", "bruteforce"); !slices.Equal(addrs, []string{"192.0.2.66", "198.51.100.0/24"}) {
		r.t.Errorf("the host's own table is now %v", addrs)
	}
	for _, c := range r.Calls() {
		if c.Tool != "pfctl" {
			continue
		}
		anchor := slices.Index(c.Args, "-a")
		ours := anchor >= 0 && anchor+1 < len(c.Args) && strings.HasPrefix(c.Args[anchor+1], "satl/")
		looks := slices.ContainsFunc(c.Args, func(a string) bool { return strings.HasPrefix(a, "-s") })
		oneState := strings.HasPrefix(c.String(), "pfctl -k id -k ")
		if !ours && !looks && !oneState {
			r.t.Errorf("outside our anchors: %s", c)
		}
	}
}

// destroy stops the daemon, has it clean up, and looks for what is left.
func (r *ring) destroy() {
	r.Clear()
	r.Knobs(func(k *world.Knobs) { k.NoPF = false })
	r.Dying(0)
	r.Bury()
	r.end(syscall.SIGTERM)
	cmd := r.satld(append([]string{"cleanup"}, r.flags()...)...)
	var out []byte
	err := r.ns.Do(func() (err error) { out, err = cmd.CombinedOutput(); return err })
	if err != nil {
		r.t.Errorf("cleanup: %v\n%s", err, out)
	}
	r.firewallIsIntact()
	left := r.left()
	for deadline := time.Now().Add(20 * time.Second); len(left) > 0 && time.Now().Before(deadline); left = r.left() {
		time.Sleep(50 * time.Millisecond)
	}
	for _, l := range left {
		r.t.Errorf("left behind: %s", l)
	}
	for pid := range r.processes() { // a failed test leaves no more than its word
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	if r.t.Failed() {
		calls := r.Calls()
		for _, c := range calls[max(0, len(calls)-200):] {
			r.t.Logf("call (exit %d): %s", c.Exit, c)
		}
		r.t.Logf("states: %+v", r.States(""))
		r.t.Logf("daemon log:\n%s", r.logTail())
	}
	r.log.Close()
}

// left is what there is besides a fresh host: of the fake's, of this machine's
// processes, and of the namespace's interfaces.
func (r *ring) left() []string {
	left := r.Leftovers()
	for pid, line := range r.processes() {
		left = append(left, fmt.Sprintf("process %d: %s", pid, line))
	}
	err := r.ns.Do(func() error {
		links, err := net.Interfaces()
		for _, l := range links {
			if l.Name != "lo" && l.Name != "vtnet0" && !strings.HasPrefix(l.Name, "cable") {
				left = append(left, "real interface "+l.Name)
			}
		}
		return err
	})
	if err != nil {
		left = append(left, err.Error())
	}
	return left
}

// processes are those of this machine that have the ring's directory in their
// command line.
func (r *ring) processes() map[int]string {
	found := make(map[int]string)
	procs, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, p := range procs {
		data, err := os.ReadFile(p)
		if pid, perr := strconv.Atoi(strings.Split(p, "/")[2]); err == nil && perr == nil && bytes.Contains(data, []byte(r.dir)) {
			found[pid] = string(bytes.ReplaceAll(data, []byte{0}, []byte{' '}))
		}
	}
	return found
}

func (r *ring) logTail() string {
	data, _ := os.ReadFile(r.log.Name())
	return string(data[max(0, len(data)-20000):])
}

// logged tells whether the daemon's log has a line with all of the words.
func (r *ring) logged(words ...string) bool {
	data, _ := os.ReadFile(r.log.Name())
	for line := range strings.Lines(string(data)) {
		if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(line, w) }) {
			return true
		}
	}
	return false
}

type call = fakefreebsd.Call

type taskOf = swarm.Task

// pretty is JSON for people.
func pretty(t *testing.T, data []byte) string {
	t.Helper()
	var b bytes.Buffer
	if err := json.Indent(&b, data, "", "  "); err != nil {
		t.Fatal(err)
	}
	return b.String() + "\n"
}

type fault = fakefreebsd.Fault

// makeStray makes a jail as a create that died left it.
func makeStray(r *ring, root string) error {
	if err := os.MkdirAll(root, 0o755); err != nil {
		return err
	}
	bundle := filepath.Join(r.dir, "stray")
	if err := os.Mkdir(bundle, 0o755); err != nil {
		return err
	}
	config := fmt.Sprintf(`{"ociVersion":"1.0.2","process":{"args":["/x"],"cwd":"/"},"root":{"path":%q},"annotations":{"org.freebsd.jail.vnet":"new"},
		"mounts":[{"destination":"/tmp","type":"tmpfs","source":"tmpfs"}]}`, root)
	if err := os.WriteFile(filepath.Join(bundle, "config.json"), []byte(config), 0o600); err != nil {
		return err
	}
	r.Add(fault{Match: "stray", Times: 1, Crash: true})
	cmd := exec.Command(filepath.Join(r.Bin, "ocijail"), "--root", filepath.Join(r.state, "jail/runtime"), "create", "-b", bundle, "stray")
	cmd.Env = r.Env()
	if err := cmd.Run(); err == nil || cmd.ProcessState.ExitCode() != -1 {
		return fmt.Errorf("create was not killed: %v", err)
	}
	if live, _ := r.Jails(); !slices.Contains(live, "stray") {
		return errors.New("no stray jail")
	}
	return nil
}
