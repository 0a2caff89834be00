// SPDX-License-Identifier: BSD-2-Clause

package traffic

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"satld/internal/fakefreebsd"
	"satld/internal/fakefreebsd/world"
	"satld/internal/slowday"
	"satld/pf"
	"satld/platform/command"
	"satld/redirect"
)

// The cases of cases/pool.md with pf, on the fake FreeBSD: the real Table and
// the real redirector, stand-ins for pfctl(8) and sysctl(8), and what pf would
// do with a packet. Time is the test's own: the loop's step is called for it.

// The fake host's address, and clients elsewhere.
const (
	fakeHost = "192.0.2.10"
	fakeWeb  = fakeHost + ":8080"
	fakeDNS  = fakeHost + ":53"
)

func client(n int) string { return fmt.Sprintf("203.0.113.7:%d", 40000+n) }

type fakeNode struct {
	*Table
	*fakefreebsd.Fake
	t      *testing.T
	filter *pf.Redirector
	pass   pass
	now    time.Time
}

func newFakeNode(t *testing.T) *fakeNode {
	t.Helper()
	f := fakefreebsd.Install(t)
	f.Use(t)
	for _, line := range []string{"bridge create name satl0", "satl0 group satl01234567g", "satl0 inet 10.88.0.1/20 up"} {
		_, err := f.Run("ifconfig", strings.Fields(line)...)
		must(t, err)
	}
	n := &fakeNode{Fake: f, t: t, now: time.Now()}
	n.start()
	return n
}

// start is the start of a daemon.
func (n *fakeNode) start() {
	n.t.Helper()
	filter, err := pf.New(n.t.Context(), pf.Config{
		Group: "satl01234567g", Run: command.Run,
		Uplinks: func(context.Context) ([]string, error) { return []string{"vtnet0"}, nil },
		Addrs:   func() ([]netip.Addr, error) { return []netip.Addr{netip.MustParseAddr(fakeHost), addr(1)}, nil },
	})
	must(n.t, err)
	subnet := redirect.Subnet{Bridge: "satl0", Prefix: netip.MustParsePrefix("10.88.0.0/20")}
	n.filter, n.pass = filter, pass{}
	// Settling, so that Put does not wait for a loop that is not there.
	n.Table = New(Config{Redirector: filter, Subnets: func() []redirect.Subnet { return []redirect.Subnet{subnet} }})
}

// put has exactly these members, and lets the loop take one step.
func (n *fakeNode) put(members ...Member) {
	n.t.Helper()
	keep := map[string]bool{}
	for _, m := range members {
		keep[m.ContainerID] = true
		must(n.t, n.Put(n.t.Context(), m))
	}
	for _, m := range n.Members() {
		if !keep[m.ContainerID] {
			done, cancel := context.WithCancel(n.t.Context())
			cancel() // nobody confirms before the step
			_ = n.Remove(done, m.ContainerID)
		}
	}
	n.steps(0)
}

// steps lets time pass, with every step that is due meanwhile.
func (n *fakeNode) steps(d time.Duration) {
	n.t.Helper()
	if now := time.Now(); n.pass.backoff > 0 && now.After(n.now) {
		n.now = now // a retry is due by the machine's clock
	}
	until := n.now.Add(d)
	n.step(n.t.Context(), &n.pass, n.now)
	for next := n.pass.next(); !next.After(until); next = n.pass.next() {
		n.now = next
		n.step(n.t.Context(), &n.pass, n.now)
	}
	n.now = until
}

func (n *fakeNode) to(proto, from, dialled string) string {
	n.t.Helper()
	switch v := n.Packet(proto, from, dialled); {
	case v.Refused:
		return "refused"
	case v.Dropped:
		return "dropped"
	case !v.Backend.IsValid():
		return "host"
	default:
		return v.Backend.Addr().String()
	}
}

func (n *fakeNode) expect(what, got, want string) {
	n.t.Helper()
	if got != want {
		n.t.Errorf("%s: %s, want %s", what, got, want)
	}
}

// pool is what the table of 8080/tcp holds.
func (n *fakeNode) pool() string {
	n.t.Helper()
	out, err := n.Fake.Run("pfctl", "-a", "satl/rdr", "-t", "satl_p8080_tcp_80", "-T", "show")
	must(n.t, err)
	return strings.Join(slices.Sorted(slices.Values(strings.Fields(out))), " ")
}

// pool-1: one UDP socket follows the pool through every change, and no entry
// with a removed address is left, a member that comes back included.
func TestFakeUDPFollowsThePool(t *testing.T) {
	for _, release := range []int{14, 15} {
		n := newFakeNode(t)
		n.Knobs(func(k *world.Knobs) { k.Release = release })
		a, b := task(2, serving), task(3, serving)
		n.expect("not published", n.to("udp", client(0), fakeDNS), "host")
		for _, c := range []struct {
			members []Member
			want    string
			gone    []byte
		}{
			{[]Member{a}, "10.88.0.2", nil}, // the flow that went to the host is turned
			{[]Member{task(2)}, "refused", []byte{2}},
			{[]Member{b}, "10.88.0.3", []byte{2}},
			{[]Member{a, b}, "10.88.0.3", nil}, // flows to one that stays are left
			{[]Member{a}, "10.88.0.2", []byte{3}},
			{nil, "host", []byte{2, 3}},
		} {
			n.put(c.members...)
			for _, last := range c.gone {
				if left := n.States(addr(last).String()); len(left) > 0 {
					t.Errorf("%v: left %+v", c, left)
				}
			}
			n.expect(fmt.Sprintf("FreeBSD %d, %d members", release, len(c.members)), n.to("udp", client(0), fakeDNS), c.want)
		}
	}
}

// pool-2: a drained member keeps its established connections until its process
// is gone, gets no new one, and what is half open goes at once; one that is
// unhealthy and comes back too.
func TestFakeDrain(t *testing.T) {
	n := newFakeNode(t)
	a, b := task(2, serving), task(3, serving)
	n.put(a)
	for range 2 {
		n.expect("before", n.to("tcp", client(0), fakeWeb), "10.88.0.2")
	}
	n.expect("half open", n.to("tcp", client(1), fakeWeb), "10.88.0.2")
	for _, state := range []Member{task(2), task(2, unhealthy)} {
		n.put(state, b)
		n.expect("the download goes on", n.to("tcp", client(0), fakeWeb), "10.88.0.2")
		n.expect("half open", n.to("tcp", client(1), fakeWeb), "10.88.0.3")
		for i := range 5 {
			n.expect("a new one", n.to("tcp", client(10+i), fakeWeb), "10.88.0.3")
		}
		n.put(a, b)
	}
	n.put(b)
	if left := n.States("10.88.0.2"); len(left) > 0 {
		for _, s := range left {
			if s.In {
				t.Errorf("after the end of the process: %+v", s)
			}
		}
	}
	n.expect("cut", n.to("tcp", client(0), fakeWeb), "10.88.0.3")
}

// pool-3: whatever comes between and however often a call fails, after a step
// that worked the table is the set that the members make.
func TestFakeNoDrift(t *testing.T) {
	n := newFakeNode(t)
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 1))
	in := map[byte]bool{}
	for i := range 60 {
		if random.IntN(20) == 0 {
			n.Fail("pfctl", 1+random.IntN(3))
		}
		for range 1 + random.IntN(3) {
			last := byte(2 + random.IntN(32))
			in[last] = !in[last]
		}
		var members []Member
		var want []string
		for last := range byte(34) {
			if in[last] {
				members = append(members, task(last, serving))
				want = append(want, addr(last).String())
			}
		}
		n.put(members...)
		if n.Health() != nil {
			n.Fake.Clear()
			n.steps(retryMost)
		}
		must(t, n.Health())
		slices.Sort(want)
		if len(members) == 0 {
			continue // not published
		}
		if got := n.pool(); got != strings.Join(want, " ") {
			t.Fatalf("seed %d, step %d: %s, want %v", seed, i, got, want)
		}
	}
}

// pool-4: a call that fails once, with nothing happening after it, is made good
// within seconds, and shown until then; one that hangs holds nobody for longer
// than its bound.
func TestFakeFailedCallIsRetried(t *testing.T) {
	n := newFakeNode(t)
	n.put(task(2, serving), task(3, serving))
	n.Fail("-T replace", 1)
	n.put(task(2), task(3, serving))
	if n.Health() == nil || n.pool() != "10.88.0.2 10.88.0.3" {
		t.Errorf("%v, %s", n.Health(), n.pool())
	}
	n.steps(time.Second)
	if n.Health() != nil || n.pool() != "10.88.0.3" {
		t.Errorf("a second later: %v, %s", n.Health(), n.pool())
	}
	n.Hang("-T replace", 1, time.Minute)
	begun := time.Now()
	n.put(task(2, serving), task(3, serving))
	if took := time.Since(begun); took > slowday.Of(30*time.Second) || !errors.Is(n.Health(), context.DeadlineExceeded) {
		t.Errorf("%s, %v", took, n.Health())
	}
	n.steps(time.Second)
	if n.Health() != nil || n.pool() != "10.88.0.2 10.88.0.3" {
		t.Errorf("after one that hung: %v, %s", n.Health(), n.pool())
	}
}

// pool-5: the operator's rules and tables are as they were, whatever we do.
func TestFakeHostFirewallIsLeftAlone(t *testing.T) {
	n := newFakeNode(t)
	theirs := func() (out string) {
		for _, line := range []string{"-s rules", "-s nat", "-t bruteforce -T show"} {
			text, err := n.Fake.Run("pfctl", strings.Fields(line)...)
			must(t, err)
			out += text
		}
		return out
	}
	before := theirs()
	for i := range 20 {
		n.put([]Member{task(2, serving), task(3)}[:1+i%2]...)
		n.put(task(byte(2+i%3), serving))
	}
	n.start()
	n.put(task(2, serving))
	must(t, n.filter.Clear(t.Context()))
	if after := theirs(); after != before {
		t.Errorf("became\n%s\nwas\n%s", after, before)
	}
	for _, c := range n.CallsOf("pfctl") {
		writes := strings.Contains(c, " -f") || strings.Contains(c, " -T ") || strings.Contains(c, " -F ")
		if writes && !strings.HasPrefix(c, "pfctl -a satl/rdr ") && !strings.HasPrefix(c, "pfctl -a satl/nat ") {
			t.Errorf("writes outside our anchors: %s", c)
		}
	}
	n.MainRuleset("pass all\n")
	if _, err := pf.New(t.Context(), pf.Config{Run: command.Run}); err == nil || !strings.Contains(err.Error(), `nat-anchor "satl/*"; rdr-anchor "satl/*"; anchor "satl/*"`) {
		t.Errorf("without the hooks: %v", err)
	}
}

// pool-6: what somebody flushed is back within one audit, as it was; a main
// ruleset without our hooks is shown.
func TestFakeFlushIsRepaired(t *testing.T) {
	n := newFakeNode(t)
	n.put(task(2, serving), task(3, serving, service("api"), func(m *Member) { m.Ports = []Port{{Proto: "tcp", Published: 9090, Target: 90}} }))
	dump := func() (out string) {
		for _, line := range []string{"-a satl/rdr -P -s nat", "-a satl/rdr -P -s rules", "-a satl/nat -s nat"} {
			text, err := n.Fake.Run("pfctl", strings.Fields(line)...)
			if err == nil { // an anchor that is gone is an error
				out += text
			}
		}
		return out
	}
	before := dump()
	for _, anchor := range []string{"satl/rdr", "satl/nat"} {
		_, err := n.Fake.Run("pfctl", "-a", anchor, "-F", "all")
		must(t, err)
		n.steps(auditEvery)
		if after := dump(); after != before || n.pool() != "10.88.0.2" {
			t.Errorf("%s flushed: %s, table %s", anchor, after, n.pool())
		}
	}
	for _, change := range []string{"delete 10.88.0.2", "add 10.88.0.9", "replace 10.88.0.9", "flush"} {
		_, err := n.Fake.Run("pfctl", strings.Fields("-a satl/rdr -t satl_p8080_tcp_80 -T "+change)...)
		must(t, err)
		n.steps(auditEvery)
		if got := n.pool(); got != "10.88.0.2" {
			t.Errorf("-T %s: %s", change, got)
		}
	}
	n.MainRuleset("pass all\n")
	n.steps(auditEvery)
	if w := n.filter.Warnings(t.Context(), nil); len(w) != 1 || !strings.Contains(w[0], "/etc/pf.conf must have these three lines") {
		t.Errorf("%v", w)
	}
	n.MainRuleset(fakefreebsd.MainRuleset)
	n.steps(auditEvery)
	if w := n.filter.Warnings(t.Context(), nil); len(w) > 0 {
		t.Errorf("%v", w)
	}
}

// pool-7: who reaches a published port through pf, with net.pf.filter_local 0
// and 1; package forward serves the rest.
func TestFakeMatrix(t *testing.T) {
	n := newFakeNode(t)
	n.put(task(2, serving))
	for _, c := range []struct {
		local, skip                   bool
		remote, own, loopback, sister string
	}{
		{false, true, "10.88.0.2", "host", "host", "10.88.0.2"},
		{false, false, "10.88.0.2", "host", "host", "10.88.0.2"},
		{true, false, "10.88.0.2", "10.88.0.2", "host", "10.88.0.2"},
	} {
		n.Sysctl("net.pf.filter_local", map[bool]string{false: "0", true: "1"}[c.local])
		rules := fakefreebsd.MainRuleset
		if !c.skip {
			rules = strings.Replace(rules, "set skip on lo0\n", "", 1)
		}
		n.MainRuleset(rules)
		n.steps(auditEvery)
		seen, err := n.filter.FiltersLocal(t.Context())
		if seen != c.local || err != nil {
			t.Errorf("%+v: pf sees local connections: %t, %v", c, seen, err)
		}
		for _, from := range []struct{ name, addr, dialled, want string }{
			{"remote", client(int(n.now.Unix() % 1000)), fakeWeb, c.remote},
			{"own address", fakeHost + ":50001", fakeWeb, c.own},
			{"127.0.0.1", "127.0.0.1:50002", "127.0.0.1:8080", c.loopback},
			{"another task by the gateway", "10.88.0.9:50003", "10.88.0.1:8080", c.sister},
			{"another task by the host", "10.88.0.9:50004", fakeWeb, c.sister},
		} {
			n.expect(fmt.Sprintf("local %t, skip %t: %s", c.local, c.skip, from.name), n.to("tcp", from.addr, from.dialled), from.want)
		}
		_, err = n.Fake.Run("pfctl", "-F", "states")
		must(t, err)
	}
}

// pool-9: the table first, then the states of that port and member alone; with
// nobody left, established connections stay.
func TestFakeStatesAreKilledLast(t *testing.T) {
	n := newFakeNode(t)
	a, b := task(2, serving), task(3, serving)
	n.put(a, b)
	for i := range 6 {
		n.to("udp", client(i), fakeDNS)
	}
	ssh := func() { n.expect("the operator's session", n.to("tcp", client(99), fakeHost+":22"), "host") }
	ssh()
	ssh()
	killed := func() (at []int, replaced int) {
		replaced = -1
		for i, c := range n.Calls() {
			if strings.HasPrefix(c.String(), "pfctl -k ") {
				at = append(at, i)
			}
			if strings.Contains(c.String(), "-t satl_p53_udp_53 -T replace") {
				replaced = i
			}
		}
		return at, replaced
	}
	n.put(task(2), b)
	at, replaced := killed()
	if len(at) == 0 || replaced < 0 || at[0] < replaced {
		t.Errorf("killed at %v, replaced at %d", at, replaced)
	}
	for i := range 100 { // clients that come back at once
		n.expect("reconnected", n.to("tcp", client(200+i), fakeWeb), "10.88.0.3")
	}
	ssh()
	if len(n.States("203.0.113.7")) == 0 || !slices.ContainsFunc(n.States(""), func(s world.State) bool { return s.Dialled == fakeHost+":22" }) {
		t.Error("the operator's session was cut")
	}
	n.to("tcp", client(200), fakeWeb)
	n.put(task(2), task(3))
	n.expect("nobody is left and the process runs", n.to("tcp", client(200), fakeWeb), "10.88.0.3")
	n.expect("a new one", n.to("tcp", client(500), fakeWeb), "refused")
}

// A restarted daemon finds everything in place and leaves it so: rules and
// members are the same before and after its first step.
func TestFakeRestart(t *testing.T) {
	n := newFakeNode(t)
	n.put(task(2, serving))
	before, ok := n.Anchor("satl/rdr")
	n.start()
	n.expect("while it starts", n.to("tcp", client(0), fakeWeb), "10.88.0.2")
	n.put(task(2, serving))
	if after, _ := n.Anchor("satl/rdr"); !ok || after != before {
		t.Errorf("%s\nwas\n%s", after, before)
	}
}
