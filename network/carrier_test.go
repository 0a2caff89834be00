// SPDX-License-Identifier: BSD-2-Clause

package network

import (
	"errors"
	"net/netip"
	"testing"
)

// Overlay networks, and what is in them, have what the interface that carries
// them leaves: at the start and when it changes, also over a failure and a
// restart. Networks of the node alone have nothing to do with it.
func TestMTUFollowsItsCarrier(t *testing.T) {
	f := newFakeLinks()
	dir := t.TempDir()
	m := open(t, dir, f)
	self := netip.MustParseAddr("192.0.2.1")
	follow := func() error { return m.SetPeers(t.Context(), self, nil) }
	check := func(when string, want int) {
		t.Helper()
		n, _ := m.Get("over")
		if got := f.wired["c1"][1].MTU; n.MTU != want || f.bridges[n.Bridge].MTU != want || got != want || f.wired["c1"][0].MTU != 0 {
			t.Errorf("%s: network %d, bridge %d, container %d, want %d; in its own network %d", when, n.MTU, f.bridges[n.Bridge].MTU, got, want, f.wired["c1"][0].MTU)
		}
	}
	f.carrier = 1400
	if err := follow(); err != nil { // before there is any
		t.Fatal(err)
	}
	if _, err := m.Ensure(t.Context(), over()); err != nil {
		t.Fatal(err)
	}
	if _, _, err := m.Attach(t.Context(), "c1", append(Anywhere(DefaultID), Place{"over", netip.MustParseAddr("10.89.1.7")})); err != nil {
		t.Fatal(err)
	}
	check("at the start", 1350)

	f.carrier, f.resizeErr = 9000, errors.New("busy")
	if err := follow(); !errors.Is(err, f.resizeErr) {
		t.Errorf("a failure: %v", err)
	}
	f.resizeErr = nil
	if err := follow(); err != nil {
		t.Error(err)
	}
	check("grown", 8950)
	for carrier, want := range map[int]int{0: 8950, 600: 576, 65535: 65485} {
		f.carrier = carrier
		if err := follow(); err != nil {
			t.Error(err)
		}
		check("in bounds", want)
		f.carrier = 9000
		if err := follow(); err != nil {
			t.Error(err)
		}
	}
	// Told the network again, as the store has it.
	if n, err := m.Ensure(t.Context(), over()); err != nil || n.MTU != 8950 {
		t.Errorf("told again: %+v, %v", n, err)
	}

	// It shrank while no daemon ran, and the last one did not get to the container.
	m = open(t, dir, f)
	f.wired["c1"][1].MTU = 1450
	if err := follow(); err != nil {
		t.Error(err)
	}
	check("after a restart", 8950)
}
