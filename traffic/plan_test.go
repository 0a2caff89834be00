// SPDX-License-Identifier: BSD-2-Clause

package traffic

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"testing"

	"github.com/containerd/errdefs"
	"pgregory.net/rapid"

	"satld/redirect"
)

func addr(last byte) netip.Addr { return netip.AddrFrom4([4]byte{10, 88, 0, last}) }

// task is a member of service web that publishes 8080->80/tcp and 53->53/udp.
func task(n byte, change ...func(*Member)) Member {
	m := Member{
		ContainerID: fmt.Sprintf("container%06d", n), Name: fmt.Sprintf("web.%d.task%d", n, n), TaskID: fmt.Sprintf("task%d", n),
		ServiceID: "s-web", ServiceName: "web", Slot: uint64(n),
		Endpoints: []Endpoint{{NetworkID: "front", Addr: addr(n)}},
		Ports:     []Port{{Proto: "tcp", Published: 8080, Target: 80}, {Proto: "udp", Published: 53, Target: 53}},
		Process:   true,
	}
	for _, c := range change {
		c(&m)
	}
	return m
}

func serving(m *Member)   { m.Serving = true }
func unhealthy(m *Member) { m.Unhealthy = true }
func failOpen(m *Member)  { m.FailOpen = true }
func ended(m *Member)     { m.Process = false }
func service(name string) func(*Member) {
	return func(m *Member) {
		m.ServiceName, m.ServiceID = name, "s-"+name
		m.Name = fmt.Sprintf("%s.%d.%s", name, m.Slot, m.TaskID)
	}
}

func inPool(members []Member, proto string, published uint16) (in []string, exists bool) {
	for _, p := range Plan(members, nil).Pools {
		if p.Proto == proto && p.Published == published {
			exists = true
			for _, m := range p.Members {
				in = append(in, m.String())
			}
		}
	}
	return in, exists
}

func TestPlan(t *testing.T) {
	for _, c := range []struct {
		name    string
		members []Member
		want    []string // of 8080/tcp
		none    bool     // no such pool at all
	}{
		{name: "nobody", none: true},
		{name: "starting: refused, not fallen through", members: []Member{task(2)}},
		{name: "serving", members: []Member{task(3, serving), task(2, serving)}, want: []string{"10.88.0.2:80", "10.88.0.3:80"}},
		{name: "one of two", members: []Member{task(2, serving), task(3)}, want: []string{"10.88.0.2:80"}},
		{name: "serving without a process", members: []Member{task(2, serving, ended)}},
		// cases/pool.md, pool-8.
		{name: "1 of 3 healthy", members: []Member{task(2, serving, failOpen), task(3, unhealthy, failOpen), task(4, unhealthy, failOpen)}, want: []string{"10.88.0.2:80"}},
		{name: "0 of 3, closed", members: []Member{task(2, unhealthy), task(3, unhealthy)}},
		{name: "0 of 3, open", members: []Member{task(2, unhealthy, failOpen), task(3, unhealthy, failOpen), task(4, failOpen)}, want: []string{"10.88.0.2:80", "10.88.0.3:80"}},
		{name: "0 of 3, open, one draining", members: []Member{task(2, failOpen), task(3, failOpen, unhealthy, ended)}},
		// Two services on one port: only while one goes and the other comes.
		{name: "the one that serves has it", members: []Member{task(2, service("a")), task(3, service("b"), serving)}, want: []string{"10.88.0.3:80"}},
		{name: "both serve", members: []Member{task(2, service("b"), serving), task(3, service("a"), serving)}, want: []string{"10.88.0.3:80"}},
		// An address that was given to somebody else.
		{name: "address reused", members: []Member{task(2, serving, ended), task(9, service("b"), func(m *Member) { m.Endpoints[0].Addr = addr(2) })}},
		{name: "no address", members: []Member{task(2, serving, func(m *Member) { m.Endpoints = nil })}, none: true},
	} {
		got, exists := inPool(c.members, "tcp", 8080)
		if !slices.Equal(got, c.want) || exists == c.none {
			t.Errorf("%s: %v (exists: %t)", c.name, got, exists)
		}
	}
}

func TestCheck(t *testing.T) {
	for name, change := range map[string]func(*Member){
		"protocol":   func(m *Member) { m.Ports[0].Proto = "icmp" },
		"published":  func(m *Member) { m.Ports[0].Published = 0 },
		"target":     func(m *Member) { m.Ports[0].Target = 0 },
		"IPv6 host":  func(m *Member) { m.Ports[0].HostIP = netip.MustParseAddr("2001:db8::1") },
		"IPv6 task":  func(m *Member) { m.Endpoints[0].Addr = netip.MustParseAddr("2001:db8::1") },
		"no address": func(m *Member) { m.Endpoints[0].Addr = netip.Addr{} },
		"no ID":      func(m *Member) { m.ContainerID = "" },
	} {
		if err := task(2, change).Check(); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := task(2, func(m *Member) { m.Ports[0].HostIP = netip.IPv6Unspecified() }).Check(); err != nil {
		t.Errorf("every address, written as ::, is refused: %v", err)
	}
}

// anyMembers draws members of up to four services and loose containers, with
// overlapping ports and, now and then, addresses.
func anyMembers() *rapid.Generator[[]Member] {
	return rapid.Custom(func(t *rapid.T) []Member {
		var all []Member
		for i := range rapid.IntRange(0, 12).Draw(t, "members") {
			m := Member{
				ContainerID: fmt.Sprint("c", i), ServiceID: rapid.SampledFrom([]string{"", "a", "b", "c"}).Draw(t, "service"),
				Endpoints: []Endpoint{{NetworkID: "n", Addr: addr(byte(rapid.IntRange(2, 20).Draw(t, "addr")))}},
				Serving:   rapid.Bool().Draw(t, "serving"), Unhealthy: rapid.Bool().Draw(t, "unhealthy"),
				Process: rapid.Bool().Draw(t, "process"), FailOpen: rapid.Bool().Draw(t, "failopen"),
			}
			for range rapid.IntRange(0, 2).Draw(t, "ports") {
				m.Ports = append(m.Ports, Port{
					Proto: rapid.SampledFrom([]string{"tcp", "udp"}).Draw(t, "proto"), Published: uint16(rapid.IntRange(8080, 8082).Draw(t, "published")),
					HostIP: rapid.SampledFrom([]netip.Addr{{}, netip.IPv4Unspecified(), netip.MustParseAddr("192.0.2.1")}).Draw(t, "host"), Target: 80,
				})
			}
			all = append(all, m)
		}
		return all
	})
}

func TestPlanProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		members := anyMembers().Draw(t, "all")
		rules := Plan(members, nil)
		if again := Plan(rapid.Permutation(members).Draw(t, "order"), nil); !rules.Equal(again) {
			t.Fatal("the order of the members matters")
		}
		if !rules.Equal(rules.Normalise()) {
			t.Fatal("not in canonical order")
		}
		groupServes := map[string]bool{}
		for _, m := range members {
			groupServes[m.group()] = groupServes[m.group()] || m.serves()
		}
		byAddr := map[netip.Addr]string{}
		for _, p := range rules.Pools {
			published, groups := false, map[string]bool{}
			for _, m := range members {
				for _, q := range m.Ports {
					published = published || redirect.MakeKey(q.Proto, q.HostIP, q.Published) == p.Key()
				}
			}
			if !published {
				t.Fatalf("pool %s that nobody publishes", p.Key())
			}
			for _, backend := range p.Members {
				var here []Member // who may stand behind the backend
				for _, m := range members {
					if m.Endpoints[0].Addr == backend.Addr() && m.Process && (m.Serving || m.FailOpen && m.Unhealthy && !groupServes[m.group()]) {
						here = append(here, m)
					}
				}
				if len(here) == 0 {
					t.Fatalf("pool %s holds %s, where nobody serves", p.Key(), backend)
				}
				if len(here) == 1 {
					groups[here[0].group()] = true
					if was, ok := byAddr[backend.Addr()]; ok && was != here[0].group() {
						t.Fatalf("%s is under two services", backend)
					}
					byAddr[backend.Addr()] = here[0].group()
				}
			}
			if len(groups) > 1 {
				t.Fatalf("pool %s mixes %v", p.Key(), groups)
			}
		}
		// Nobody is forgotten: where addresses and ports do not clash, who
		// serves is in.
		for _, m := range members {
			alone := true
			for _, o := range members {
				if o.ContainerID != m.ContainerID && (o.Endpoints[0].Addr == m.Endpoints[0].Addr || o.group() != m.group()) {
					alone = false
				}
			}
			for _, q := range m.Ports {
				if !alone || !m.serves() {
					continue
				}
				in, _ := poolOf(rules, redirect.MakeKey(q.Proto, q.HostIP, q.Published))
				if !slices.Contains(in, netip.AddrPortFrom(m.Endpoints[0].Addr, q.Target)) {
					t.Fatalf("%s serves and is not in %v", m.ContainerID, in)
				}
			}
		}
	})
}

func poolOf(r redirect.Rules, k redirect.Key) ([]netip.AddrPort, bool) {
	for _, p := range r.Pools {
		if p.Key() == k {
			return p.Members, true
		}
	}
	return nil, false
}

func TestStaleFlows(t *testing.T) {
	a, b := netip.AddrPortFrom(addr(2), 53), netip.AddrPortFrom(addr(3), 53)
	pool := func(members ...netip.AddrPort) redirect.Pool {
		return redirect.Pool{Proto: "udp", HostIP: netip.IPv4Unspecified(), Published: 53, Members: members}
	}
	flow := func(keep ...netip.AddrPort) []redirect.Flow {
		return []redirect.Flow{{Proto: "udp", HostIP: netip.IPv4Unspecified(), Published: 53, Keep: keep}}
	}
	rules := func(pools ...redirect.Pool) redirect.Rules { return redirect.Rules{Pools: pools} }
	none := rules()
	for i, c := range []struct {
		old  *redirect.Rules
		now  redirect.Rules
		want []redirect.Flow
	}{
		{nil, rules(pool(a)), flow(a)},
		{&none, rules(pool(a)), flow(a)},                     // a pool comes
		{ptr(rules(pool(a, b))), rules(pool(b)), flow(b)},    // a member leaves
		{ptr(rules(pool(a))), rules(pool(a, b)), flow(a, b)}, // a member comes: also what strayed
		{ptr(rules(pool(a))), rules(pool()), flow()},         // nobody left
		{ptr(rules(pool(a))), none, flow()},                  // the service goes
		{ptr(rules(pool(a))), rules(pool(a)), nil},           // nothing changed
		{ptr(rules(pool(a, b))), rules(pool(a, b), redirect.Pool{Proto: "tcp", HostIP: netip.IPv4Unspecified(), Published: 53}),
			[]redirect.Flow{{Proto: "tcp", HostIP: netip.IPv4Unspecified(), Published: 53}}},
	} {
		if got := staleFlows(c.old, c.now); !reflect.DeepEqual(got, c.want) && len(got)+len(c.want) > 0 {
			t.Errorf("row %d: %+v, want %+v", i, got, c.want)
		}
	}
}

func ptr[T any](v T) *T { return &v }
