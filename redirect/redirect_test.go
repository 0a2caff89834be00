// SPDX-License-Identifier: BSD-2-Clause

package redirect

import (
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestKeyString(t *testing.T) {
	for _, c := range []struct {
		key  Key
		want string
	}{
		{MakeKey("tcp", netip.Addr{}, 8080), "8080/tcp"},
		{MakeKey("udp", netip.IPv4Unspecified(), 53), "53/udp"},
		{MakeKey("udp", netip.IPv6Unspecified(), 53), "53/udp"},
		{MakeKey("tcp", netip.MustParseAddr("192.0.2.1"), 80), "192.0.2.1:80/tcp"},
	} {
		if got := c.key.String(); got != c.want {
			t.Errorf("%#v: %s, want %s", c.key, got, c.want)
		}
	}
	if MakeKey("tcp", netip.Addr{}, 1) != MakeKey("tcp", netip.IPv6Unspecified(), 1) {
		t.Error("every address has two keys")
	}
}

func TestNormalise(t *testing.T) {
	member := rapid.Custom(func(t *rapid.T) netip.AddrPort {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 88, 0, byte(rapid.IntRange(2, 6).Draw(t, "addr"))}), uint16(rapid.IntRange(80, 81).Draw(t, "port")))
	})
	pool := rapid.Custom(func(t *rapid.T) Pool {
		return Pool{
			Proto:     rapid.SampledFrom([]string{"tcp", "udp"}).Draw(t, "proto"),
			HostIP:    rapid.SampledFrom([]netip.Addr{{}, netip.IPv4Unspecified(), netip.MustParseAddr("192.0.2.1")}).Draw(t, "host"),
			Published: uint16(rapid.IntRange(8080, 8083).Draw(t, "published")),
			Members:   rapid.SliceOfN(member, 0, 5).Draw(t, "members"),
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		in := Rules{Pools: rapid.SliceOfN(pool, 0, 8).Draw(t, "pools")}
		out := in.Normalise()
		if !out.Equal(out.Normalise()) {
			t.Fatal("not idempotent")
		}
		shuffled := Rules{Pools: rapid.Permutation(in.Pools).Draw(t, "order")}
		if !out.Equal(shuffled.Normalise()) {
			t.Fatal("order matters")
		}
		seen := map[Key]bool{}
		for _, p := range out.Pools {
			if seen[p.Key()] {
				t.Fatalf("two pools of %s", p.Key())
			}
			seen[p.Key()] = true
			if !slices.IsSortedFunc(p.Members, netip.AddrPort.Compare) || len(slices.Compact(slices.Clone(p.Members))) != len(p.Members) {
				t.Fatalf("members %v", p.Members)
			}
		}
		for _, p := range in.Pools {
			if !seen[p.Key()] {
				t.Fatalf("%s lost", p.Key())
			}
		}
	})
}
