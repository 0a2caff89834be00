// SPDX-License-Identifier: BSD-2-Clause

package traffic

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func table(t *testing.T, members ...Member) *Table {
	t.Helper()
	tab := New(Config{})
	for _, m := range members {
		if err := tab.Put(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	return tab
}

func notReady(m *Member) { m.NotReadyNames = true }
func alias(names ...string) func(*Member) {
	return func(m *Member) { m.Endpoints[0].Aliases = names }
}
func inNetwork(id string) func(*Member) {
	return func(m *Member) { m.Endpoints[0].NetworkID = id }
}

// TestNames: cases/gate-dns.md, gate-dns-2, gate-dns-3 and the table in names.go.
func TestNames(t *testing.T) {
	tab := table(t,
		task(2, serving, alias("www", "db.1")),
		task(3),
		task(4, unhealthy),
		task(5, service("db"), notReady, alias("postgres")),
		task(6, service("db"), notReady, serving, alias("postgres", "tasks.own")),
		task(7, service("db"), notReady, ended),
		task(8, service("db"), notReady, unhealthy),
		task(9, service("Mixed"), serving, inNetwork("back")),
		Member{ContainerID: "fedcba9876543210", Name: "loose", Process: true, Serving: true, Endpoints: []Endpoint{{NetworkID: "front", Addr: addr(10)}, {NetworkID: "back", Addr: addr(110)}}},
		Member{ContainerID: "0000000000000000", Name: "web", Process: true, Serving: true, Endpoints: []Endpoint{{NetworkID: "front", Addr: addr(11)}}},
		task(12, service("gone")),
		task(13, service("drained"), notReady, serving),
		task(14, service("open"), failOpen, unhealthy, func(m *Member) { m.Endpoints[0].Aliases = []string{"door"} }),
		task(15, service("open"), failOpen), // starting
		task(16, service("half"), failOpen, unhealthy),
		task(17, service("half"), failOpen, serving),
	)
	done, cancel := context.WithCancel(t.Context())
	cancel()
	if err := tab.Withdraw(done, "container000013"); !errors.Is(err, context.Canceled) {
		t.Fatalf("nobody writes the packet filter, and yet: %v", err)
	}
	host, inFront, inBack := netip.MustParseAddr("127.0.0.1"), addr(3), addr(9)
	for _, c := range []struct {
		asker netip.Addr
		name  string
		want  string // "-": not known
	}{
		{host, "web", "10.88.0.2"},
		{host, "WEB.", "10.88.0.2"},
		{host, "tasks.web", "10.88.0.2"},
		{host, "www", "10.88.0.2"},
		{host, "web.3", "10.88.0.3"},
		{host, "web.3.task3", "10.88.0.3"},
		{host, "container000", "10.88.0.2 10.88.0.3 10.88.0.4 10.88.0.5 10.88.0.6 10.88.0.8 10.88.0.9 10.88.0.12 10.88.0.13 10.88.0.14 10.88.0.15 10.88.0.16 10.88.0.17"}, // same first 12 here
		{host, "fedcba987654", "10.88.0.10 10.88.0.110"},
		{host, "fedcba98765", "-"},
		{host, "loose", "10.88.0.10 10.88.0.110"},
		{host, "db", "10.88.0.6"},
		{host, "tasks.db", "10.88.0.5 10.88.0.6"},
		{host, "postgres", "10.88.0.6"},
		{host, "tasks.Postgres", "10.88.0.5 10.88.0.6"},
		{host, "tasks.www", "10.88.0.2"},
		{host, "tasks.own", "10.88.0.6"},
		{host, "db.7", ""},
		{host, "db.1", "10.88.0.2"}, // an alias goes before a container
		{host, "db.5.task5", "10.88.0.5"},
		{host, "gone", ""},
		{host, "tasks.gone", ""},
		{host, "drained", ""},
		{host, "tasks.drained", ""},
		{host, "drained.13", "10.88.0.13"},
		// Names fail open as pools do (cases/pool.md, pool-8).
		{host, "open", "10.88.0.14"},
		{host, "tasks.open", "10.88.0.14"},
		{host, "door", "10.88.0.14"},
		{host, "half", "10.88.0.17"},
		{host, "mixed", "10.88.0.9"},
		{host, "nobody", "-"},
		{host, "tasks.nobody", "-"},
		{host, "tasks.", "-"},
		{host, "", "-"},
		{host, "web.example.com", "-"},
		{host, "web.0", "-"},
		// Starting, it resolves others and itself.
		{inFront, "web", "10.88.0.2"},
		{inFront, "web.3", "10.88.0.3"},
		{inFront, "loose", "10.88.0.10"},
		{inFront, "mixed", "-"},
		{inBack, "loose", "10.88.0.110"},
		{inBack, "web", "-"},
		{inBack, "mixed", "10.88.0.9"},
		{addr(110), "web", "10.88.0.2"}, // asks through its other network
	} {
		addrs, known := tab.Lookup(c.asker, c.name)
		var texts []string
		for _, a := range addrs {
			texts = append(texts, a.String())
		}
		got := strings.Join(texts, " ")
		if !known {
			got = "-"
			if len(addrs) > 0 {
				t.Errorf("%s: unknown with addresses %v", c.name, addrs)
			}
		}
		if got != c.want {
			t.Errorf("%s asks for %s: %q, want %q", c.asker, c.name, got, c.want)
		}
	}
	if name, known := tab.Reverse(addr(3)); name != "web.3.task3" || !known {
		t.Errorf("reverse: %q, %t", name, known)
	}
	for _, a := range []netip.Addr{addr(7), addr(99)} {
		if name, known := tab.Reverse(a); known {
			t.Errorf("reverse of %s: %q", a, name)
		}
	}
}

// A service without members is known where its networks are, and nowhere else:
// there it is like any name that does not exist.
func TestNameOfServiceWithoutTasks(t *testing.T) {
	services := map[string][]string{"web": {"front"}, "hidden": {"back"}}
	tab := New(Config{Known: func(s string) (networks []string, exists bool) {
		networks, exists = services[s]
		return networks, exists
	}})
	if err := tab.Put(t.Context(), task(2, service("asks"), serving, noPorts, inNetwork("front"))); err != nil {
		t.Fatal(err)
	}
	host := netip.MustParseAddr("127.0.0.1")
	for _, c := range []struct {
		asker netip.Addr
		name  string
		want  bool
	}{
		{addr(2), "web", true}, {addr(2), "tasks.web", true}, {addr(2), "db", false},
		{addr(2), "hidden", false}, {addr(2), "tasks.hidden", false}, {host, "hidden", true},
	} {
		if addrs, known := tab.Lookup(c.asker, c.name); known != c.want || len(addrs) > 0 {
			t.Errorf("%s asks for %s: %v, %t, want %t", c.asker, c.name, addrs, known, c.want)
		}
	}
}

// A member of a service that the asker shares no network with does not make
// its name known.
func TestNameOfServiceElsewhere(t *testing.T) {
	tab := New(Config{Known: func(s string) ([]string, bool) { return []string{"back"}, s == "db" }})
	for _, m := range []Member{task(2, serving, noPorts, inNetwork("front")), task(3, service("db"), serving, noPorts, inNetwork("back"))} {
		if err := tab.Put(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	if addrs, known := tab.Lookup(addr(2), "db"); known || len(addrs) > 0 {
		t.Errorf("%v, %t", addrs, known)
	}
	if addrs, known := tab.Lookup(addr(3), "db"); !known || len(addrs) != 1 {
		t.Errorf("from its own network: %v, %t", addrs, known)
	}
}

// After a start an unknown name is waited for until other nodes were heard of,
// or were not for long enough.
func TestUnknownNamesWaitForOtherNodes(t *testing.T) {
	for _, told := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			tab := New(Config{SettleRemote: 5 * time.Second})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go tab.Run(ctx)
			tab.Settled()
			begun := time.Now()
			soon, end := context.WithTimeout(ctx, 2*time.Second)
			defer end()
			if tab.Await(soon, "web") || time.Since(begun) != 2*time.Second {
				t.Errorf("not held for as long as it may: %v", time.Since(begun))
			}
			if !tab.Await(ctx, "example.com") || time.Since(begun) != 2*time.Second {
				t.Error("a name that is no service's was held")
			}
			if told {
				time.AfterFunc(time.Second, func() { tab.SetRemote(nil) })
			}
			want := map[bool]time.Duration{true: 3 * time.Second, false: 5 * time.Second}[told]
			if !tab.Await(ctx, "tasks.web.") || time.Since(begun) != want {
				t.Errorf("settled after %v, want %v", time.Since(begun), want)
			}
		})
	}
}

// TestStaleAddresses: cases/gate-dns.md, gate-dns-4, as far as names go.
func TestStaleAddresses(t *testing.T) {
	tab := table(t, task(2, serving, noPorts), task(3, serving, noPorts))
	if err := tab.Withdraw(t.Context(), "container000002"); err != nil {
		t.Fatal(err)
	}
	if got, _ := tab.Lookup(netip.Addr{}, "web"); !slices.Equal(got, []netip.Addr{addr(3)}) {
		t.Errorf("%v", got)
	}
	if err := tab.Remove(t.Context(), "container000003"); err != nil {
		t.Fatal(err)
	}
	if got, known := tab.Lookup(netip.Addr{}, "web"); len(got) > 0 || !known {
		t.Errorf("%v, %t", got, known)
	}
	// The address comes back under another service.
	if err := tab.Put(t.Context(), task(3, service("db"), serving, noPorts)); err != nil {
		t.Fatal(err)
	}
	if got, _ := tab.Lookup(netip.Addr{}, "web"); len(got) > 0 {
		t.Errorf("web has the address of db: %v", got)
	}
}

func noPorts(m *Member) { m.Ports = nil }

func BenchmarkLookup(b *testing.B) {
	tab := New(Config{})
	for i := range 1000 {
		m := task(byte(i), serving, noPorts)
		m.ContainerID = strings.Repeat("x", 20) + string(rune(i+1000))
		m.Endpoints[0].Addr = netip.AddrFrom4([4]byte{10, 88, byte(i >> 8), byte(i)})
		_ = tab.Put(b.Context(), m)
	}
	for b.Loop() {
		tab.Lookup(addr(2), "nobody")
	}
}
