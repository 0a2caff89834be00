// SPDX-License-Identifier: BSD-2-Clause

package network

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"pgregory.net/rapid"
)

func TestCheckPool(t *testing.T) {
	for pool, want := range map[string]string{
		"10.88.0.0/16":  "",
		"10.9.9.0/24":   "",
		"10.9.9.0/30":   "",
		"10.9.9.0/31":   "length",
		"0.0.0.0/0":     "length",
		"10.88.1.0/16":  "did you mean 10.88.0.0/16",
		"fd00::/64":     "IPv4",
		"10.88.0.99/24": "did you mean 10.88.0.0/24",
	} {
		err := CheckPool(netip.MustParsePrefix(pool))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", pool, err, want)
		}
		if want != "" && !errdefs.IsInvalidArgument(err) {
			t.Errorf("%s: %v is not an invalid argument", pool, err)
		}
	}
	if CheckPool(netip.Prefix{}) == nil {
		t.Error("a pool that is none passes")
	}
}

func TestBlocks(t *testing.T) {
	for _, c := range []struct {
		pool        string
		count       int
		first, last string
	}{
		{"10.88.0.0/16", 16, "10.88.0.0/20", "10.88.240.0/20"},
		{"10.0.0.0/8", 16, "10.0.0.0/12", "10.240.0.0/12"},
		{"10.88.0.0/20", 16, "10.88.0.0/24", "10.88.15.0/24"},
		{"10.88.0.0/22", 4, "10.88.0.0/24", "10.88.3.0/24"},
		{"10.88.7.0/24", 1, "10.88.7.0/24", "10.88.7.0/24"},
		{"10.88.7.128/29", 1, "10.88.7.128/29", "10.88.7.128/29"},
	} {
		b := Blocks(netip.MustParsePrefix(c.pool))
		if len(b) != c.count || b[0].String() != c.first || b[len(b)-1].String() != c.last {
			t.Errorf("%s: %v", c.pool, b)
		}
	}
}

func TestFreeBlock(t *testing.T) {
	pool := netip.MustParsePrefix("10.88.0.0/22")
	taken := []netip.Prefix{netip.MustParsePrefix("10.88.0.0/24"), netip.MustParsePrefix("10.88.1.128/25")}
	if b, err := freeBlock(pool, taken); err != nil || b.String() != "10.88.2.0/24" {
		t.Errorf("%v, %v", b, err)
	}
	if _, err := freeBlock(pool, append(taken, pool)); !errdefs.IsResourceExhausted(err) || !strings.Contains(err.Error(), "all 4 blocks") {
		t.Errorf("full: %v", err)
	}
	small := netip.MustParsePrefix("10.88.0.0/24")
	if _, err := freeBlock(small, []netip.Prefix{small}); !errdefs.IsResourceExhausted(err) || !strings.Contains(err.Error(), "--network-pool") {
		t.Errorf("small: %v", err)
	}
}

// TestPick draws and gives back at random and checks each draw: inside the
// subnet, not the gateway or broadcast, not taken, not given back too recently;
// and that it waits or refuses only when it must.
func TestPick(t *testing.T) {
	const reuse = 10 * time.Second
	rapid.Check(t, func(t *rapid.T) {
		subnet := netip.PrefixFrom(netip.MustParseAddr("10.88.0.0"), rapid.IntRange(28, 30).Draw(t, "bits"))
		room := 1<<(32-subnet.Bits()) - 3
		taken, released := map[netip.Addr]bool{}, map[netip.Addr]time.Time{}
		now := time.Unix(1000, 0)
		var cursor netip.Addr
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 4).Draw(t, "seconds")) * time.Second)
			if len(taken) > 0 && rapid.Bool().Draw(t, "give back") {
				for a := range taken {
					delete(taken, a)
					released[a] = now
					break
				}
				continue
			}
			a, wait, err := pick(subnet, cursor, taken, released, now, reuse)
			usable := 0
			for i := range room {
				c := fromUint(toUint(subnet.Addr()) + 2 + uint32(i))
				if at, held := released[c]; !taken[c] && !(held && now.Sub(at) < reuse) {
					usable++
				}
			}
			switch {
			case err != nil:
				if len(taken) != room || !errdefs.IsResourceExhausted(err) {
					t.Fatalf("refused with %d of %d taken: %v", len(taken), room, err)
				}
			case wait > 0:
				if usable > 0 || wait > reuse {
					t.Fatalf("waits %s with %d usable", wait, usable)
				}
				now = now.Add(wait)
				if _, again, err := pick(subnet, cursor, taken, released, now, reuse); again != 0 || err != nil {
					t.Fatalf("after the wait: %s, %v", again, err)
				}
			default:
				if !subnet.Contains(a) || a == gatewayOf(subnet) || a == lastOf(subnet) || a == subnet.Addr() || taken[a] {
					t.Fatalf("%s of %s", a, subnet)
				}
				if at, held := released[a]; held && now.Sub(at) < reuse {
					t.Fatalf("%s was given back %s ago", a, now.Sub(at))
				}
				taken[a], cursor = true, a
			}
		}
	})
}

func TestPickGoesRound(t *testing.T) {
	subnet := netip.MustParsePrefix("10.88.0.0/29")
	var cursor netip.Addr
	var got []string
	for range 7 {
		a, _, err := pick(subnet, cursor, nil, nil, time.Now(), time.Second)
		if err != nil {
			t.Fatal(err)
		}
		cursor = a
		got = append(got, a.String())
	}
	want := "10.88.0.2 10.88.0.3 10.88.0.4 10.88.0.5 10.88.0.6 10.88.0.2 10.88.0.3"
	if strings.Join(got, " ") != want {
		t.Errorf("%v", got)
	}
}

func TestPickClockSetBack(t *testing.T) {
	subnet := netip.MustParsePrefix("10.88.0.0/30")
	released := map[netip.Addr]time.Time{netip.MustParseAddr("10.88.0.2"): time.Unix(9000, 0)}
	_, wait, err := pick(subnet, netip.Addr{}, nil, released, time.Unix(1000, 0), 10*time.Second)
	if err != nil || wait != 10*time.Second {
		t.Errorf("waits %s, %v; a clock set back must not hold an address for hours", wait, err)
	}
}

// TestForgetClockSetBack: an address that was released in the future is free
// again after the delay, and not when the clock is there.
func TestForgetClockSetBack(t *testing.T) {
	subnet, addr, now := netip.MustParsePrefix("10.88.0.0/30"), netip.MustParseAddr("10.88.0.2"), time.Unix(1000, 0)
	l := leases{Released: map[netip.Addr]time.Time{addr: time.Unix(9000, 0)}}
	for _, c := range []struct{ after, wait time.Duration }{{0, 10 * time.Second}, {4 * time.Second, 6 * time.Second}, {10 * time.Second, 0}} {
		l.forget(now.Add(c.after), 10*time.Second)
		_, wait, err := pick(subnet, netip.Addr{}, nil, l.Released, now.Add(c.after), 10*time.Second)
		if err != nil || wait != c.wait {
			t.Errorf("after %v: waits %v, %v", c.after, wait, err)
		}
	}
}

func TestNames(t *testing.T) {
	m, other := mark("01234567"), mark("89abcdef")
	if kind, id, ok := m.parse(m.label("c", "abc")); kind != "c" || id != "abc" || !ok {
		t.Error("label does not come back")
	}
	for _, foreign := range []string{"", "satl", "satl:01234567", "satl:01234567:c", "satl:01234567:c:", other.label("c", "abc"), "my uplink"} {
		if _, _, ok := m.parse(foreign); ok {
			t.Errorf("%q taken for ours", foreign)
		}
	}
	for _, n := range []string{m.veth("abc", "eth0"), m.bridge("n", 0), m.group()} {
		if len(n) > maxIfName {
			t.Errorf("%s is too long", n)
		}
	}
	if m.veth("abc", "eth0") == m.veth("abc", "eth1") || m.veth("abc", "eth0") == other.veth("abc", "eth0") {
		t.Error("two links with one name")
	}
	for _, bad := range []string{"", "..", "a/b", "-x", "a b", "a\nb", strings.Repeat("a", 129)} {
		if !errors.Is(checkID("container", bad), errdefs.ErrInvalidArgument) {
			t.Errorf("ID %q passes", bad)
		}
	}
	if checkIfName("sixteen-letters-") == nil || checkIfName("satl0") != nil {
		t.Error("interface names")
	}
}
