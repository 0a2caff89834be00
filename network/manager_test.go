// SPDX-License-Identifier: BSD-2-Clause

package network

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"
)

// fakeLinks is a host in memory.
type fakeLinks struct {
	mark      mark
	hostUses  []usedPrefix
	foreign   map[string]bool
	bridges   map[string]Network
	wired     map[string][]wire
	attachErr error
	detachErr error
	seen      func(containerID string) // called by attach
	peers     map[string][]Peer        // by network
	carrier   int                      // the MTU of the interface that carries tunnels
	resizeErr error
}

func newFakeLinks() *fakeLinks {
	return &fakeLinks{foreign: map[string]bool{}, bridges: map[string]Network{}, wired: map[string][]wire{}, peers: map[string][]Peer{}}
}

func (f *fakeLinks) boot(context.Context) (string, error)       { return "boot", nil }
func (f *fakeLinks) warnings(context.Context) []string          { return nil }
func (f *fakeLinks) prepare(context.Context) error              { return nil }
func (f *fakeLinks) close() error                               { return nil }
func (f *fakeLinks) used(context.Context) ([]usedPrefix, error) { return f.hostUses, nil }
func (f *fakeLinks) owned(context.Context) (out []ownedLink, err error) {
	for name, n := range f.bridges {
		out = append(out, ownedLink{name, "n", n.ID})
	}
	for id := range f.wired {
		out = append(out, ownedLink{"v-" + id, "c", id})
	}
	return out, nil
}
func (f *fakeLinks) exists(_ context.Context, name string) (bool, bool, error) {
	_, ours := f.bridges[name]
	return ours || f.foreign[name], ours, nil
}
func (f *fakeLinks) ensureBridge(_ context.Context, n Network) error {
	f.bridges[n.Bridge] = n
	return nil
}
func (f *fakeLinks) carrierMTU(context.Context, netip.Addr) (int, error) { return f.carrier, nil }
func (f *fakeLinks) resize(_ context.Context, containerID string, wires []wire) error {
	for _, w := range wires {
		for i, has := range f.wired[containerID] {
			if has.NetworkID == w.NetworkID && f.resizeErr == nil {
				f.wired[containerID][i].MTU = w.MTU
			}
		}
	}
	return f.resizeErr
}
func (f *fakeLinks) tunnel(_ context.Context, n Network, _ netip.Addr, peers []Peer) error {
	f.peers[n.ID] = peers
	return nil
}
func (f *fakeLinks) deleteLink(_ context.Context, name string) error {
	delete(f.bridges, name)
	return nil
}
func (f *fakeLinks) attach(_ context.Context, id string, wires []wire) (string, error) {
	if f.seen != nil {
		f.seen(id)
	}
	if f.attachErr != nil {
		return "", f.attachErr
	}
	f.wired[id] = wires
	return "/ns/" + id, nil
}
func (f *fakeLinks) detach(_ context.Context, id string, _ []wire, _ time.Duration) error {
	if f.detachErr != nil {
		return f.detachErr
	}
	delete(f.wired, id)
	return nil
}

func (f *fakeLinks) faults(_ context.Context, nets []Network, _ map[string][]wire) (out []fault, err error) {
	for _, n := range nets {
		if _, has := f.bridges[n.Bridge]; !has {
			out = append(out, bridgeIs(n, "was gone"))
		}
	}
	return out, nil
}
func (f *fakeLinks) join(context.Context, string, []wire) error { return nil }

func open(t *testing.T, dir string, f *fakeLinks, change ...func(*Config)) *Manager {
	t.Helper()
	m, err := tryOpen(t, dir, f, change...)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func tryOpen(t *testing.T, dir string, f *fakeLinks, change ...func(*Config)) (*Manager, error) {
	t.Helper()
	cfg := Config{StateDir: dir, links: f}
	for _, c := range change {
		c(&cfg)
	}
	return Open(t.Context(), cfg)
}

func pool(p string) func(*Config) { return func(c *Config) { c.Pool = netip.MustParsePrefix(p) } }

func TestOpenMakesDefaultNetwork(t *testing.T) {
	f := newFakeLinks()
	m := open(t, t.TempDir(), f)
	n, ok := m.Get(DefaultID)
	want := Network{ID: DefaultID, Name: "satl0", Bridge: "satl0", Subnet: netip.MustParsePrefix("10.88.0.0/20"), Gateway: netip.MustParseAddr("10.88.0.1")}
	if !ok || n != want || f.bridges["satl0"] != want {
		t.Errorf("%+v, bridges %v", n, f.bridges)
	}
	if err := m.Remove(t.Context(), DefaultID); !errdefs.IsPermissionDenied(err) {
		t.Errorf("removing the node's own network: %v", err)
	}
}

func TestOpenRefuses(t *testing.T) {
	for _, c := range []struct {
		name string
		host func(*fakeLinks)
		want []string
	}{
		{"another daemon's network", func(f *fakeLinks) {
			f.hostUses = []usedPrefix{{netip.MustParsePrefix("10.88.0.0/20"), "interface satl9"}}
		}, []string{"10.88.0.0/16", "interface satl9", "--network-pool"}},
		{"a wider route", func(f *fakeLinks) {
			f.hostUses = []usedPrefix{{netip.MustParsePrefix("10.0.0.0/8"), "a route through interface tun0"}}
		}, []string{"tun0", "--network-pool"}},
		{"a foreign interface", func(f *fakeLinks) { f.foreign["satl0"] = true }, []string{"satl0", "--network-name"}},
	} {
		f := newFakeLinks()
		c.host(f)
		_, err := tryOpen(t, t.TempDir(), f)
		if !errdefs.IsConflict(err) {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		for _, w := range c.want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %q lacks %q", c.name, err, w)
			}
		}
		if len(f.bridges) > 0 {
			t.Errorf("%s: made %v", c.name, f.bridges)
		}
	}
}

func TestEnsureAndRemove(t *testing.T) {
	f := newFakeLinks()
	m := open(t, t.TempDir(), f, pool("10.9.0.0/23"))
	a, err := m.Ensure(t.Context(), Network{ID: "a", Name: "front"})
	if err != nil || a.Subnet.String() != "10.9.1.0/24" || len(a.Bridge) > maxIfName || a.Bridge == "satl0" {
		t.Fatalf("%+v, %v", a, err)
	}
	if again, err := m.Ensure(t.Context(), Network{ID: "a", Name: "front"}); err != nil || again != a {
		t.Errorf("not idempotent: %+v, %v", again, err)
	}
	if _, err := m.Ensure(t.Context(), Network{ID: "b", Name: "back"}); !errdefs.IsResourceExhausted(err) {
		t.Errorf("a third block of two: %v", err)
	}
	for _, n := range []Network{
		{ID: "c", Subnet: netip.MustParsePrefix("10.9.1.128/25")},
		{ID: "a", Subnet: netip.MustParsePrefix("10.10.0.0/24")},
		{ID: "a", Internal: true},
	} {
		if _, err := m.Ensure(t.Context(), n); !errdefs.IsConflict(err) {
			t.Errorf("%+v: %v", n, err)
		}
	}
	own, err := m.Ensure(t.Context(), Network{ID: "d", Subnet: netip.MustParsePrefix("172.31.9.0/24"), Internal: true})
	if err != nil || own.Gateway.String() != "172.31.9.1" {
		t.Errorf("%+v, %v", own, err)
	}
	if _, _, err := m.Attach(t.Context(), "c1", Anywhere("a")); err != nil {
		t.Fatal(err)
	}
	if err := m.Remove(t.Context(), "a"); !errdefs.IsConflict(err) {
		t.Errorf("removed while attached: %v", err)
	}
	if err := m.Detach(t.Context(), "c1"); err != nil {
		t.Fatal(err)
	}
	if err := m.Remove(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	if _, ok := m.Get("a"); ok || len(f.bridges) != 2 {
		t.Errorf("still there: %v", f.bridges)
	}
	if err := m.Remove(t.Context(), "a"); err != nil {
		t.Errorf("twice: %v", err)
	}
}

func TestAttach(t *testing.T) {
	f := newFakeLinks()
	dir := t.TempDir()
	m := open(t, dir, f)
	if _, err := m.Ensure(t.Context(), Network{ID: "in", Internal: true}); err != nil {
		t.Fatal(err)
	}
	// Whatever the system is asked to make is on disk already.
	f.seen = func(id string) {
		l, _, err := loadLeases(filepath.Join(dir, "network", "leases.json"), "boot")
		if err != nil || len(l.Leases[id]) == 0 {
			t.Errorf("%s is made before its lease is written: %v", id, err)
		}
	}
	ns, at, err := m.Attach(t.Context(), "c1", Anywhere("in", DefaultID))
	if err != nil || ns != "/ns/c1" || len(at) != 2 {
		t.Fatal(ns, at, err)
	}
	if at[0].Interface != "eth0" || at[1].Interface != "eth1" || at[1].Addr.String() != "10.88.0.2/20" || at[1].MAC != "02:42:0a:58:00:02" || at[0].Addr.String() != "10.88.16.2/20" {
		t.Errorf("%+v", at)
	}
	if w := f.wired["c1"]; w[0].Default || !w[1].Default {
		t.Errorf("the default route leads into the internal network: %+v", w)
	}
	again := open(t, dir, f)
	if _, at2, err := again.Attach(t.Context(), "c1", Anywhere("in", DefaultID)); err != nil || at2[0] != at[0] || at2[1] != at[1] {
		t.Errorf("after a restart: %v, %v", at2, err)
	}
	if got := again.Attachments("c1"); len(got) != 2 || got[0] != at[0] {
		t.Errorf("attachments: %v", got)
	}
	if _, _, err := again.Attach(t.Context(), "c1", Anywhere(DefaultID)); !errdefs.IsConflict(err) {
		t.Errorf("other networks: %v", err)
	}
	if _, _, err := again.Attach(t.Context(), "c2", Anywhere("nope")); !errdefs.IsNotFound(err) {
		t.Errorf("unknown network: %v", err)
	}
	if _, _, err := again.Attach(t.Context(), "../c2", nil); !errdefs.IsInvalidArgument(err) {
		t.Errorf("bad ID: %v", err)
	}
}

func TestFailedAttachLeavesNothing(t *testing.T) {
	f := newFakeLinks()
	m := open(t, t.TempDir(), f)
	f.attachErr = errors.New("no more veth")
	if _, _, err := m.Attach(t.Context(), "c1", Anywhere(DefaultID)); !errors.Is(err, f.attachErr) {
		t.Errorf("%v", err)
	}
	if at := m.Attachments("c1"); len(at) > 0 || len(f.wired) > 0 {
		t.Errorf("left %v, %v", at, f.wired)
	}
}

func TestFullDisk(t *testing.T) {
	f := newFakeLinks()
	dir := t.TempDir()
	m := open(t, dir, f)
	// A directory that is gone fails a write as a full disk does, for root too.
	if err := os.RemoveAll(filepath.Join(dir, "network")); err != nil {
		t.Fatal(err)
	}
	if _, _, err := m.Attach(t.Context(), "c1", Anywhere(DefaultID)); err == nil {
		t.Error("attached without a lease on disk")
	}
	if len(f.wired) > 0 || len(m.Attachments("c1")) > 0 {
		t.Error("half made")
	}
	if _, err := m.Ensure(t.Context(), Network{ID: "n"}); err == nil || len(f.bridges) != 1 {
		t.Errorf("network made without a record: %v", f.bridges)
	}
}

func TestReuseDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := open(t, t.TempDir(), newFakeLinks(), pool("10.9.9.0/30"))
		if _, _, err := m.Attach(t.Context(), "c1", Anywhere(DefaultID)); err != nil {
			t.Fatal(err)
		}
		if _, _, err := m.Attach(t.Context(), "c2", Anywhere(DefaultID)); !errdefs.IsResourceExhausted(err) {
			t.Errorf("a second container on one address: %v", err)
		}
		if err := m.Detach(t.Context(), "c1"); err != nil {
			t.Fatal(err)
		}
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, _, err := m.Attach(short, "c2", Anywhere(DefaultID)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("given out again after less than a second: %v", err)
		}
		start := time.Now()
		if _, _, err := m.Attach(t.Context(), "c2", Anywhere(DefaultID)); err != nil {
			t.Fatal(err)
		}
		if waited := time.Since(start); waited != DefaultReuseDelay-time.Second {
			t.Errorf("waited %s", waited)
		}
	})
}

func TestReuseDelaySurvivesRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, f := t.TempDir(), newFakeLinks()
		m := open(t, dir, f)
		if _, _, err := m.Attach(t.Context(), "c1", Anywhere(DefaultID)); err != nil {
			t.Fatal(err)
		}
		if err := m.Detach(t.Context(), "c1"); err != nil {
			t.Fatal(err)
		}
		_, at, err := open(t, dir, f).Attach(t.Context(), "c2", Anywhere(DefaultID))
		if err != nil || at[0].Addr.Addr().String() != "10.88.0.3" {
			t.Errorf("%v, %v", at, err)
		}
	})
}

func TestSweep(t *testing.T) {
	f := newFakeLinks()
	m := open(t, t.TempDir(), f)
	for i := range 4 {
		if _, _, err := m.Attach(t.Context(), fmt.Sprintf("c%d", i), Anywhere(DefaultID)); err != nil {
			t.Fatal(err)
		}
	}
	f.wired["stray"] = nil
	if err := m.Sweep(t.Context(), map[string]bool{"c1": true}); err != nil {
		t.Fatal(err)
	}
	if len(f.wired) != 1 || f.wired["c1"] == nil || len(m.Attachments("c1")) != 1 || len(m.Attachments("c2")) != 0 {
		t.Errorf("left %v", f.wired)
	}
	if err := m.Destroy(t.Context()); err != nil || len(f.wired)+len(f.bridges) > 0 {
		t.Errorf("destroyed: %v, %v, %v", err, f.wired, f.bridges)
	}
}

// What a dying jail holds at the start goes later, and its address is not given
// out before.
func TestSweepLater(t *testing.T) {
	f := newFakeLinks()
	m := open(t, t.TempDir(), f, pool("10.9.9.0/30"))
	if _, _, err := m.Attach(t.Context(), "c1", Anywhere(DefaultID)); err != nil {
		t.Fatal(err)
	}
	f.detachErr = fmt.Errorf("jail c1 is dying: %w", errdefs.ErrUnavailable)
	if err := m.Sweep(t.Context(), nil); !errdefs.IsUnavailable(err) {
		t.Errorf("%v", err)
	}
	if _, err := m.Repair(t.Context()); err != nil || len(f.wired) != 1 {
		t.Errorf("held: %v, %v", err, f.wired)
	}
	if _, _, err := m.Attach(t.Context(), "c2", Anywhere(DefaultID)); !errdefs.IsResourceExhausted(err) {
		t.Errorf("the address of a jail that still answers to it: %v", err)
	}
	f.detachErr = errors.New("ifconfig: out of luck")
	if _, err := m.Repair(t.Context()); !errors.Is(err, f.detachErr) {
		t.Errorf("%v", err)
	}
	f.detachErr = nil
	for range 2 {
		if done, err := m.Repair(t.Context()); err != nil || len(done) > 0 || len(f.wired) > 0 || len(m.Attachments("c1")) > 0 {
			t.Errorf("%v, %v, left %v", done, err, f.wired)
		}
	}
}

func TestChangedFlags(t *testing.T) {
	f, dir := newFakeLinks(), t.TempDir()
	m := open(t, dir, f)
	if _, _, err := m.Attach(t.Context(), "c1", Anywhere(DefaultID)); err != nil {
		t.Fatal(err)
	}
	if _, err := tryOpen(t, dir, f, pool("10.99.0.0/16")); !errdefs.IsConflict(err) || !strings.Contains(err.Error(), "1 containers") {
		t.Errorf("changed under a container: %v", err)
	}
	if err := m.Detach(t.Context(), "c1"); err != nil {
		t.Fatal(err)
	}
	m = open(t, dir, f, pool("10.99.0.0/16"), func(c *Config) { c.Name = "other0" })
	if n, _ := m.Get(DefaultID); n.Subnet.String() != "10.99.0.0/20" || n.Bridge != "other0" || len(f.bridges) != 1 {
		t.Errorf("%+v, %v", n, f.bridges)
	}
}

func TestLeasesFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "leases.json")
	l := emptyLeases("boot1")
	l.Networks["n"] = networkRecord{Network: Network{ID: "n", Subnet: netip.MustParsePrefix("10.0.0.0/24")}}
	l.Leases["c"] = []Attachment{{NetworkID: "n", Addr: netip.MustParsePrefix("10.0.0.2/24")}}
	m := &Manager{file: path, state: l}
	done := m.change()
	err := m.save()
	if done(); err != nil {
		t.Fatal(err)
	}
	if got, _, err := loadLeases(path, "boot1"); err != nil || got.Leases["c"][0] != l.Leases["c"][0] {
		t.Errorf("%+v, %v", got, err)
	}
	if got, _, err := loadLeases(path, "boot2"); err != nil || len(got.Leases) > 0 || len(got.Networks) != 1 {
		t.Errorf("after a reboot: %+v, %v", got, err)
	}
	if err := os.WriteFile(path, []byte(`{"leases":`), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, aside, err := loadLeases(path, "boot1"); err != nil || aside == "" || len(got.Leases) > 0 {
		t.Errorf("torn file: %+v, %q, %v", got, aside, err)
	}
	if err := os.WriteFile(path, []byte(`{"version":99}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := loadLeases(path, "boot1"); err == nil {
		t.Error("a newer version is read as if it were ours")
	}
	if err := os.WriteFile(path, []byte(`{"version":1,"networks":null,"leases":null,"released":null}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, _, err := loadLeases(path, ""); err != nil || got.Networks == nil || got.Leases == nil || got.Released == nil {
		t.Errorf("nulls: %+v, %v", got, err)
	}
}

// TestOldLeases: a file as the first version wrote it is still read.
func TestOldLeases(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("testdata", "leases-v1.json"))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "leases.json")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	l, aside, err := loadLeases(path, "6fd6c2f8-0000-4000-8000-000000000001")
	if err != nil || aside != "" {
		t.Fatal(aside, err)
	}
	n := l.Networks[DefaultID]
	if n.Bridge != "satl0" || n.Subnet.String() != "10.88.0.0/20" || n.Cursor.String() != "10.88.0.3" || !l.Networks["back"].Internal {
		t.Errorf("%+v", l.Networks)
	}
	at := l.Leases["c1"]
	if len(at) != 2 || at[0].Addr.String() != "10.88.0.2/20" || at[1].Interface != "eth1" || at[1].MAC != "02:42:0a:58:10:02" {
		t.Errorf("%+v", at)
	}
	if _, held := l.Released[netip.MustParseAddr("10.88.0.3")]; !held {
		t.Errorf("%v", l.Released)
	}
}

func FuzzLeases(f *testing.F) {
	f.Add(`{"version":1,"networks":{"n":{"ID":"n","Subnet":"10.0.0.0/24","cursor":""}},"leases":{"c":[{"Addr":"10.0.0.2/24"}]}}`)
	f.Add(`null`)
	f.Fuzz(func(t *testing.T, text string) {
		path := filepath.Join(t.TempDir(), "leases.json")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if l, _, err := loadLeases(path, "b"); err == nil && (l.Networks == nil || l.Leases == nil || l.Released == nil) {
			t.Error("nil map")
		}
	})
}
