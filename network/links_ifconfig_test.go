// SPDX-License-Identifier: BSD-2-Clause

package network

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"
)

var update = flag.Bool("update", false, "write the golden files anew")

// bsdHost opens a Manager on a FreeBSD in memory; dir outlives it, as a state
// directory outlives a daemon. The mark is the same each time.
func bsdHost(t testing.TB, b *bsd, dir string) (*Manager, error) {
	t.Helper()
	return Open(t.Context(), Config{StateDir: dir, mark: "01234567", tools: b.run, frames: b.frame})
}

func mustBSD(t testing.TB, b *bsd, dir string) *Manager {
	t.Helper()
	m, err := bsdHost(t, b, dir)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// The command lines from an empty host to a container that is gone again.
func TestIfconfigCommands(t *testing.T) {
	for _, c := range []struct {
		name string
		host func(*bsd)
	}{
		{"ifconfig", func(*bsd) {}},
		{"ifconfig-old", func(b *bsd) { b.noJ = true }},
		{"ifconfig-mtu", func(b *bsd) { b.link("", "satl0").mtu = 1450 }},
	} {
		b := newBSD()
		m := mustBSD(t, b, t.TempDir())
		if _, err := m.Ensure(t.Context(), Network{ID: "back", Name: "back", Internal: true}); err != nil {
			t.Fatal(err)
		}
		c.host(b)
		b.jails["cid"] = &bsdJail{}
		ns, at, err := m.Attach(t.Context(), "cid", Anywhere("back", DefaultID))
		if err != nil || ns != "" {
			t.Fatalf("%s: %q, %v", c.name, ns, err)
		}
		checkInside(t, b, m, "cid", at, "10.88.0.1")
		b.remove("cid")
		if err := m.Detach(t.Context(), "cid"); err != nil {
			t.Fatal(err)
		}
		if err := m.Destroy(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got, want := b.foreign(), newBSD().foreign(); got != want || len(b.links) != len(newBSD().links) {
			t.Errorf("%s: left\n%s", c.name, got)
		}
		golden(t, c.name+".txt", strings.Join(b.calls, "\n")+"\n")
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s (go test -update writes it anew):\n%s", path, got)
	}
}

// checkInside looks that a jail has its links, addresses and route, that the
// bridges have the other ends, all with one MTU.
func checkInside(t *testing.T, b *bsd, m *Manager, jail string, at []Attachment, route string) {
	t.Helper()
	if j := b.jails[jail]; !j.lo0 || j.route != route {
		t.Errorf("lo0 up %t, default route %q", j.lo0, j.route)
	}
	for _, a := range at {
		n, _ := m.Get(a.NetworkID)
		bridge, outer, inner := b.link("", n.Bridge), b.link("", m.mark.veth(jail, a.Interface)), b.link(jail, m.mark.inner(jail, a.Interface))
		if bridge == nil || outer == nil || inner == nil {
			t.Fatalf("%s: bridge %v, outer %v, inner %v", a.Interface, bridge, outer, inner)
		}
		if !bridge.up || !outer.up || !inner.up || !slices.Contains(bridge.members, outer.name) || inner.ether != a.MAC || !slices.Equal(inner.inet, []netip.Prefix{a.Addr}) {
			t.Errorf("%s: bridge %+v, outer %+v, inner %+v", a.Interface, bridge, outer, inner)
		}
		if bridge.mtu != outer.mtu || outer.mtu != inner.mtu {
			t.Errorf("%s: MTU %d, %d, %d", a.Interface, bridge.mtu, outer.mtu, inner.mtu)
		}
		if kind, id, ok := m.mark.parse(inner.descr); kind != "c" || id != jail || !ok {
			t.Errorf("inner end is described %q", inner.descr)
		}
	}
}

// The daemon dies after each command in turn. Its next life goes on with the
// same container, or sweeps it: nothing of ours is left over or missing, and
// nothing of others was touched.
func TestKilledAtAnyStep(t *testing.T) {
	ids := []string{DefaultID, "back"}
	life := func(b *bsd, dir string) (*Manager, []Attachment, error) {
		m, err := bsdHost(t, b, dir)
		if err != nil {
			return nil, nil, err
		}
		if _, err := m.Ensure(t.Context(), Network{ID: "back", Name: "back"}); err != nil {
			return nil, nil, err
		}
		_, at, err := m.Attach(t.Context(), "cid", Anywhere(ids...))
		return m, at, err
	}
	whole := newBSD()
	whole.jails["cid"] = &bsdJail{}
	if _, _, err := life(whole, t.TempDir()); err != nil {
		t.Fatal(err)
	}
	for step := 1; step < len(whole.calls); step++ {
		for _, sweep := range []bool{false, true} {
			b, dir := newBSD(), t.TempDir()
			b.jails["cid"] = &bsdJail{}
			b.cut = step
			if _, _, err := life(b, dir); !errors.Is(err, errKilled) {
				t.Fatalf("step %d: %v", step, err)
			}
			b.cut = 0
			if sweep {
				b.remove("cid")
				m := mustBSD(t, b, dir)
				if err := errors.Join(m.Sweep(t.Context(), nil), m.Destroy(t.Context())); err != nil {
					t.Fatalf("step %d: %v", step, err)
				}
				if got, want := b.foreign(), newBSD().foreign(); got != want || len(b.links) != len(newBSD().links) || len(m.pending()) > 0 {
					t.Errorf("step %d, %s: left %v\n%s", step, whole.calls[step-1], m.pending(), got)
				}
				continue
			}
			m, at, err := life(b, dir)
			if err != nil {
				t.Fatalf("step %d, %s: %v", step, whole.calls[step-1], err)
			}
			checkInside(t, b, m, "cid", at, "10.88.0.1")
			if got := b.foreign(); got != newBSD().foreign() || len(m.pending()) > 0 {
				t.Errorf("step %d, %s: pending %v, others\n%s", step, whole.calls[step-1], m.pending(), got)
			}
		}
	}
}

// A number that is taken is passed over, and a pair that somebody else made
// under it stays, also after a crash between writing it down and making it.
func TestTakenNumbers(t *testing.T) {
	b, dir := newBSD(), t.TempDir()
	b.jails["cid"] = &bsdJail{}
	m := mustBSD(t, b, dir)
	u := unfinished{For: "cid", As: m.mark.veth("cid", "eth0")}
	taken := fmt.Sprintf("epair%d", m.mark.unit(u, 0))
	if _, said := b.create(taken); said != "" {
		t.Fatal(said)
	}
	b.link("", taken+"a").descr = "mine"
	if err := m.begin(taken, u); err != nil {
		t.Fatal(err)
	}
	m = mustBSD(t, b, dir)
	if len(m.pending()) > 0 {
		t.Errorf("pending %v", m.pending())
	}
	_, at, err := m.Attach(t.Context(), "cid", Anywhere(DefaultID))
	if err != nil {
		t.Fatal(err)
	}
	checkInside(t, b, m, "cid", at, "10.88.0.1")
	if l := b.link("", taken+"a"); l == nil || l.descr != "mine" {
		t.Errorf("somebody's pair: %+v", l)
	}
}

// A pair is destroyed when its inner end is back on the host and not before
// (cases/jail.md, jail-2); meanwhile the address stays taken.
func TestDetachWaitsForTheJail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBSD()
		m := mustBSD(t, b, t.TempDir())
		b.jails["cid"] = &bsdJail{}
		if _, _, err := m.Attach(t.Context(), "cid", Anywhere(DefaultID)); err != nil {
			t.Fatal(err)
		}
		outer := m.mark.veth("cid", "eth0")
		begun := time.Now()
		if err := m.Detach(t.Context(), "cid"); !errdefs.IsUnavailable(err) || time.Since(begun) != patience {
			t.Errorf("%v after %s", err, time.Since(begun))
		}
		if b.link("", outer) == nil || len(m.Attachments("cid")) != 1 {
			t.Error("destroyed under a jail that still holds it")
		}
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := m.Detach(short, "cid"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		go func() {
			time.Sleep(3 * time.Second)
			b.remove("cid")
		}()
		begun = time.Now()
		if err := m.Detach(t.Context(), "cid"); err != nil {
			t.Error(err)
		}
		if took := time.Since(begun); took < 3*time.Second || took > 4*time.Second {
			t.Errorf("took %s", took)
		}
		if b.link("", outer) != nil || len(m.Attachments("cid")) > 0 {
			t.Error("not destroyed")
		}
		if err := m.Detach(t.Context(), "cid"); err != nil {
			t.Errorf("twice: %v", err)
		}
	})
}

func TestOldToolsSayWhatIsMissing(t *testing.T) {
	b := newBSD()
	m := mustBSD(t, b, t.TempDir())
	b.noJ, b.noTools = true, true
	b.jails["cid"] = &bsdJail{}
	if _, _, err := m.Attach(t.Context(), "cid", Anywhere(DefaultID)); err == nil || !strings.Contains(err.Error(), "the image has no /sbin/ifconfig") || !strings.Contains(err.Error(), "FreeBSD 14.0") {
		t.Errorf("%v", err)
	}
}

func TestAttachWithoutNetworks(t *testing.T) {
	b := newBSD()
	m := mustBSD(t, b, t.TempDir())
	if _, _, err := m.Attach(t.Context(), "cid", nil); err == nil || !strings.Contains(err.Error(), "jail not found") {
		t.Errorf("without a jail: %v", err)
	}
	b.jails["cid"] = &bsdJail{}
	if _, at, err := m.Attach(t.Context(), "cid", nil); err != nil || len(at) > 0 || !b.jails["cid"].lo0 {
		t.Errorf("%v, %v", at, err)
	}
}

func TestForeignInterfacesAreRefused(t *testing.T) {
	b := newBSD()
	b.links = append(b.links, &bsdLink{name: "satl0", unit: "bridge7", mtu: 1500})
	if _, err := bsdHost(t, b, t.TempDir()); !errdefs.IsConflict(err) || !strings.Contains(err.Error(), "satl0") {
		t.Errorf("%v", err)
	}
	if b.link("", "satl0").descr != "" || len(b.calls) > 0 {
		t.Errorf("touched: %v", b.calls)
	}
}

func TestForwardingIsNamed(t *testing.T) {
	b := newBSD()
	m := mustBSD(t, b, t.TempDir())
	if w := m.Warnings(t.Context()); len(w) > 0 {
		t.Errorf("%v", w)
	}
	b.forwarding = false
	if w := m.Warnings(t.Context()); len(w) != 1 || !strings.Contains(w[0], "sysrc gateway_enable=YES") {
		t.Errorf("%v", w)
	}
	for _, c := range b.calls {
		if strings.HasPrefix(c, "sysctl") && strings.Contains(c, "=") {
			t.Errorf("changes the host: %s", c)
		}
	}
	if up, err := m.Uplinks(t.Context()); err != nil || !slices.Equal(up, []string{"vtnet0"}) {
		t.Errorf("%v, %v", up, err)
	}
}

func TestIfconfigRepair(t *testing.T) {
	b := newBSD()
	m := mustBSD(t, b, t.TempDir())
	b.jails["cid"] = &bsdJail{}
	_, at, err := m.Attach(t.Context(), "cid", Anywhere(DefaultID))
	if err != nil {
		t.Fatal(err)
	}
	outer := m.mark.veth("cid", "eth0")
	for _, c := range []struct {
		want   string
		change func()
	}{
		{"bridge satl0 of network satl0 was down", func() { b.link("", "satl0").up = false }},
		{"bridge satl0 of network satl0 had lost its address 10.88.0.1/20", func() { b.link("", "satl0").inet = nil }},
		{"link " + outer + " was down", func() { b.link("", outer).up = false }},
		{"link " + outer + " was not in bridge satl0", func() { b.link("", "satl0").members = nil }},
		{"bridge satl0 of network satl0 was gone; link " + outer + " was not in bridge satl0", func() {
			b.links = slices.DeleteFunc(b.links, func(l *bsdLink) bool { return l.name == "satl0" })
		}},
		{"link " + outer + " was gone", func() { b.do([]string{"ifconfig", outer, "destroy"}, "") }},
	} {
		c.change()
		done, err := m.Repair(t.Context())
		var said []string
		for _, d := range done {
			said = append(said, d.What)
		}
		if err != nil || strings.Join(said, "; ") != c.want {
			t.Errorf("%v, %v, want %s", said, err, c.want)
		}
		checkInside(t, b, m, "cid", at, "10.88.0.1")
		if again, err := m.Repair(t.Context()); err != nil || len(again) > 0 {
			t.Errorf("again: %v, %v", again, err)
		}
	}
	// A lease whose jail is not there, or was not attached yet, is no fault.
	for _, c := range []struct {
		name string
		jail *bsdJail
	}{{"going", nil}, {"coming", &bsdJail{}}} {
		b.do([]string{"ifconfig", outer, "destroy"}, "")
		if b.jails["cid"] = c.jail; c.jail == nil {
			delete(b.jails, "cid")
		}
		if done, err := m.Repair(t.Context()); err != nil || len(done) > 0 {
			t.Errorf("%s: %v, %v", c.name, done, err)
		}
	}
}
