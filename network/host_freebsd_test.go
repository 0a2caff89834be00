// SPDX-License-Identifier: BSD-2-Clause

//go:build freebsdhost

package network

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"satld/network/jailtest"
	"satld/platform/command"
)

func TestMain(m *testing.M) { jailtest.Main(m) }

// freebsd opens a Manager on the host itself, with names and a pool of the
// test's own. Whatever it makes is gone when the test ends.
func freebsd(t *testing.T, dir string) *Manager {
	t.Helper()
	jailtest.Require(t)
	slow := func(ctx context.Context, c command.Command) (string, error) {
		c.Bound = time.Minute // a guest may be emulated, on a busy machine
		return command.Run(ctx, c)
	}
	m, err := Open(t.Context(), Config{StateDir: dir, Name: "nth0", Pool: netip.MustParsePrefix("10.66.0.0/16"), tools: slow, frames: setFrame})
	jailtest.Must(t, err)
	return m
}

func destroy(t *testing.T, m *Manager) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	for {
		err := m.Destroy(ctx)
		if err == nil {
			break
		}
		if !errdefs.IsUnavailable(err) || ctx.Err() != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
	}
	if left, err := m.links.owned(ctx); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
}

// Jails with networks: what is reached and what is not, and no 127.0.0.1.
func TestHostJailsReachEachOther(t *testing.T) {
	m := freebsd(t, t.TempDir())
	defer destroy(t, m)
	back, err := m.Ensure(t.Context(), Network{ID: "back", Name: "back", Internal: true})
	jailtest.Must(t, err)
	a, b := jailtest.New(t, "nthA"), jailtest.New(t, "nthB")
	_, atA, err := m.Attach(t.Context(), a.Name, Anywhere("back", DefaultID))
	jailtest.Must(t, err)
	_, atB, err := m.Attach(t.Context(), b.Name, Anywhere("back"))
	jailtest.Must(t, err)
	if _, again, err := m.Attach(t.Context(), a.Name, Anywhere("back", DefaultID)); err != nil || again[1] != atA[1] {
		t.Errorf("again: %v, %v", again, err)
	}
	a.Serve(t, "tcp4", "0.0.0.0:80", "a")
	backA, frontA := atA[0].Addr.Addr().String(), atA[1].Addr.Addr().String()
	for _, from := range []*jailtest.Jail{nil, a, b} {
		if got, err := from.Ask(t, backA+":80"); got != "a" {
			t.Errorf("%v to %s: %q, %v", from, backA, got, err)
		}
	}
	if got, err := (*jailtest.Jail)(nil).Ask(t, frontA+":80"); got != "a" {
		t.Errorf("host to %s: %q, %v", frontA, got, err)
	}
	if got, err := a.Ask(t, "127.0.0.1:80"); err == nil {
		t.Errorf("a task has 127.0.0.1: %q", got)
	}
	out, err := jailtest.Run("jexec", a.Name, "ifconfig", "-a")
	jailtest.Must(t, err)
	inside := parseIfconfig(out)
	if lo, _ := find(inside, "lo0"); !lo.Up || len(lo.Inet) > 0 {
		t.Errorf("lo0: %+v", lo)
	}
	if routes, err := jailtest.Run("jexec", a.Name, "netstat", "-rn", "-f", "inet"); err != nil || !strings.Contains(routes, "default            10.66.0.1") {
		t.Errorf("%s, %v", routes, err)
	}
	if routes, err := jailtest.Run("jexec", b.Name, "netstat", "-rn", "-f", "inet"); err != nil || strings.Contains(routes, "default") {
		t.Errorf("a way out of an internal network: %s, %v", routes, err)
	}
	// The host listens on the gateway.
	l, err := net.Listen("tcp4", back.Gateway.String()+":8053")
	jailtest.Must(t, err)
	defer l.Close()
	go func() {
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			fmt.Fprintln(c, "host")
			c.Close()
		}
	}()
	if got, err := b.Ask(t, back.Gateway.String()+":8053"); got != "host" {
		t.Errorf("b to its gateway: %q, %v", got, err)
	}
	for _, used := range []string{"10.66.0.0/20", "10.66.16.0/20"} {
		all, err := m.links.used(t.Context())
		jailtest.Must(t, err)
		for _, u := range all {
			if u.Prefix.Overlaps(netip.MustParsePrefix(used)) {
				t.Errorf("our own %s is taken for another's: %v", used, u)
			}
		}
	}
	up, err := m.Uplinks(t.Context())
	if err != nil || len(up) == 0 || strings.Contains(strings.Join(up, " "), "nth0") {
		t.Errorf("uplinks: %v, %v", up, err)
	}
	jailtest.Must(t, a.Remove())
	jailtest.Must(t, b.Remove())
	for _, j := range []*jailtest.Jail{a, b} {
		untilDetached(t, m, j)
	}
	if at := atB[0]; len(m.Attachments(b.Name)) > 0 {
		t.Errorf("still has %v", at)
	}
}

func untilDetached(t *testing.T, m *Manager, j *jailtest.Jail) {
	t.Helper()
	begun := time.Now()
	for {
		err := m.Detach(t.Context(), j.Name)
		if err == nil {
			t.Logf("%s detached after %s", j.Name, time.Since(begun).Round(100*time.Millisecond))
			return
		}
		if !errdefs.IsUnavailable(err) || time.Since(begun) > 2*time.Minute {
			t.Fatal(err)
		}
	}
}

// A jail that lives, or dies slowly over an open connection, keeps its link;
// the pair goes when its end is back. 20 times, with traffic (cases/jail.md,
// jail-2).
func TestHostDetachWaits(t *testing.T) {
	m := freebsd(t, t.TempDir())
	defer destroy(t, m)
	for i := range 20 {
		j := jailtest.New(t, fmt.Sprintf("nthD%d", i))
		_, at, err := m.Attach(t.Context(), j.Name, Anywhere(DefaultID))
		jailtest.Must(t, err)
		j.Serve(t, "tcp4", "0.0.0.0:80", "x")
		c, err := net.Dial("tcp4", at[0].Addr.Addr().String()+":80")
		jailtest.Must(t, err)
		if i == 0 {
			if err := m.detach(t.Context(), j.Name, time.Second); !errdefs.IsUnavailable(err) {
				t.Errorf("under a jail that lives: %v", err)
			}
		}
		go func() { _, _ = io.Copy(c, strings.NewReader(strings.Repeat("traffic\n", 1<<16))) }()
		jailtest.Must(t, j.Remove())
		// A client that does not read and does not close would keep the jail
		// dying for as long.
		time.AfterFunc(time.Duration(i%2)*2*time.Second, func() { c.Close() })
		untilDetached(t, m, j)
	}
}

// The next life of a daemon sweeps what an earlier one left, made and half made,
// and nothing else.
func TestHostSweep(t *testing.T) {
	dir := t.TempDir()
	m := freebsd(t, dir)
	_, err := jailtest.Run("ifconfig", "epair900", "create")
	jailtest.Must(t, err)
	defer jailtest.Run("ifconfig", "epair900a", "destroy")
	a, b := jailtest.New(t, "nthS1"), jailtest.New(t, "nthS2")
	for _, j := range []*jailtest.Jail{a, b} {
		_, _, err := m.Attach(t.Context(), j.Name, Anywhere(DefaultID))
		jailtest.Must(t, err)
	}
	jailtest.Must(t, m.begin("epair901", unfinished{For: "nthS3", As: "sv000000000000"}))
	_, err = jailtest.Run("ifconfig", "epair901", "create")
	jailtest.Must(t, err)
	jailtest.Must(t, a.Remove())
	m = freebsd(t, dir)
	defer destroy(t, m)
	if err := m.Sweep(t.Context(), map[string]bool{b.Name: true}); err != nil && !errdefs.IsUnavailable(err) {
		t.Fatal(err)
	}
	for begun := time.Now(); len(m.Attachments(a.Name)) > 0; time.Sleep(time.Second) {
		if _, err := m.Repair(t.Context()); err != nil || time.Since(begun) > 2*time.Minute {
			t.Fatal(err)
		}
	}
	all, err := m.links.(*ifconfigLinks).list(t.Context())
	jailtest.Must(t, err)
	for name, want := range map[string]bool{
		"epair900a": true, "epair900b": true, "epair901a": false,
		m.mark.veth(a.Name, "eth0"): false, m.mark.veth(b.Name, "eth0"): true, "nth0": true,
	} {
		if _, there := find(all, name); there != want {
			t.Errorf("%s there: %t", name, there)
		}
	}
	jailtest.Must(t, b.Remove())
	untilDetached(t, m, b)
}

func TestHostRepair(t *testing.T) {
	m := freebsd(t, t.TempDir())
	defer destroy(t, m)
	j := jailtest.New(t, "nthR")
	_, at, err := m.Attach(t.Context(), j.Name, Anywhere(DefaultID))
	jailtest.Must(t, err)
	j.Serve(t, "tcp4", "0.0.0.0:80", "r")
	outer := m.mark.veth(j.Name, "eth0")
	for _, c := range [][]string{
		{"ifconfig", "nth0", "down"},
		{"ifconfig", "nth0", "inet", "10.66.0.1", "delete"},
		{"ifconfig", outer, "down"},
		{"ifconfig", "nth0", "deletem", outer},
		{"ifconfig", "nth0", "destroy"},
	} {
		_, err := jailtest.Run(c...)
		jailtest.Must(t, err)
		if done, err := m.Repair(t.Context()); err != nil || len(done) == 0 {
			t.Errorf("%v: %v, %v", c, done, err)
		}
		if done, err := m.Repair(t.Context()); err != nil || len(done) > 0 {
			t.Errorf("%v, again: %v, %v", c, done, err)
		}
		if got, err := (*jailtest.Jail)(nil).Ask(t, at[0].Addr.Addr().String()+":80"); got != "r" {
			t.Errorf("%v: %q, %v", c, got, err)
		}
	}
	jailtest.Must(t, j.Remove())
	untilDetached(t, m, j)
}

func TestHostMTU(t *testing.T) {
	m := freebsd(t, t.TempDir())
	defer destroy(t, m)
	_, err := jailtest.Run("ifconfig", "nth0", "mtu", "1400")
	jailtest.Must(t, err)
	j := jailtest.New(t, "nthM")
	_, _, err = m.Attach(t.Context(), j.Name, Anywhere(DefaultID))
	jailtest.Must(t, err)
	out, err := jailtest.Run("jexec", j.Name, "ifconfig", m.mark.inner(j.Name, "eth0"))
	jailtest.Must(t, err)
	if i := parseIfconfig(out)[0]; i.MTU != 1400 {
		t.Errorf("%+v", i)
	}
	jailtest.Must(t, j.Remove())
	untilDetached(t, m, j)
}
