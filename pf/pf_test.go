// SPDX-License-Identifier: BSD-2-Clause

package pf

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"satld/platform/command"
	"satld/redirect"
)

func configOf(m *memory) Config {
	return Config{
		Group: "satl01234567g", Run: m.run,
		Uplinks: func(context.Context) ([]string, error) { return []string{"vtnet0"}, nil },
		Addrs: func() ([]netip.Addr, error) {
			return []netip.Addr{netip.MustParseAddr("192.0.2.1"), front.Gateway()}, nil
		},
	}
}

func open(t interface {
	Helper()
	Fatal(...any)
}, m *memory, change ...func(*Config)) *Redirector {
	t.Helper()
	cfg := configOf(m)
	for _, c := range change {
		c(&cfg)
	}
	r, err := New(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func rulesOf(pools ...redirect.Pool) redirect.Rules {
	return redirect.Rules{Pools: pools, Subnets: []redirect.Subnet{front}}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// An anchor is loaded when its text changes, and that is with the set of ports
// and networks; members come and go by -T replace, the last one too.
func TestCalls(t *testing.T) {
	text := func(cs []call) string {
		var b strings.Builder
		for _, c := range cs {
			b.WriteString(strings.Join(c.args, " ") + "\n")
		}
		return b.String()
	}
	a := rulesOf(web("10.88.0.2:80"))
	where := anchors{nat: "satl/nat", rdr: "satl/rdr"}
	const pool, closed = "-a satl/rdr -t satl_p8080_tcp_80 -T replace", "-a satl/rdr -t satl_c8080_tcp -T replace"
	for i, c := range []struct {
		old  *state
		now  state
		want string
	}{
		{nil, state{a, here}, "-a satl/nat -f -\n-a satl/rdr -f -\n"},
		{&state{a, here}, state{a, here}, ""},
		{&state{a, here}, state{rulesOf(web("10.88.0.2:80", "10.88.0.3:80")), here}, pool + " 10.88.0.2 10.88.0.3\n"},
		{&state{a, here}, state{rulesOf(web()), here}, closed + " 0.0.0.0/0\n" + pool + "\n"},
		{&state{rulesOf(web()), here}, state{a, here}, pool + " 10.88.0.2\n" + closed + "\n"},
		{&state{a, here}, state{rulesOf(web("10.88.0.2:81")), here}, "-a satl/rdr -f -\n"}, // another target port
		{&state{a, here}, state{rulesOf(), here}, "-a satl/rdr -f -\n"},
		{&state{a, here}, state{rulesOf(web("10.88.0.2:80"), redirect.Pool{Proto: "udp", Published: 53, Target: 53}), here}, "-a satl/rdr -f -\n"},
		{&state{a, here}, state{redirect.Rules{Pools: a.Pools, Subnets: []redirect.Subnet{front, internal}}, here}, "-a satl/nat -f -\n-a satl/rdr -f -\n"},
		{&state{a, here}, state{a, place{group: here.group, uplinks: []string{"em0"}}}, "-a satl/nat -f -\n"},
	} {
		if got := text(where.calls(c.old, c.now)); got != c.want {
			t.Errorf("row %d:\n%swant:\n%s", i, got, c.want)
		}
	}
}

// cases/pool.md, pool-3: whatever came before, and whichever calls failed on
// the way, after a successful Apply the tables hold the set that was wanted; and
// with one rule for each, no address is under two.
func TestTablesHoldWhatWasWanted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newMemory()
		r := open(t, m)
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			want := someRules.Draw(t, "rules")
			n := rapid.IntRange(0, 4).Draw(t, "fails at") // 0 never
			m.fail = func(line string) error {
				if n--; n == 0 {
					return errors.New(line + ": exit status 1")
				}
				return nil
			}
			err := r.Apply(t.Context(), want)
			m.fail = nil
			if err != nil {
				continue
			}
			fresh := newMemory()
			if err := open(t, fresh).Apply(t.Context(), want); err != nil {
				t.Fatal(err)
			}
			if got, want := m.holds("satl/rdr"), fresh.holds("satl/rdr"); got != want {
				t.Fatalf("holds\n%s\nwant\n%s", got, want)
			}
			if m.anchors["satl/nat"].text != fresh.anchors["satl/nat"].text {
				t.Fatal("another nat")
			}
			if same, err := r.Audit(t.Context()); !same || err != nil {
				t.Fatalf("audit after apply: %t, %v", same, err)
			}
		}
	})
}

// cases/pool.md, pool-5: nothing is ever written outside our anchors.
func TestOnlyOurAnchorsAreWritten(t *testing.T) {
	m := newMemory()
	r := open(t, m, func(c *Config) { c.Suffix = "b" })
	for i := range 100 {
		p := web("10.88.0.2:80")
		if i%3 == 0 {
			p = web()
		}
		must(t, r.Apply(t.Context(), rulesOf(p)))
		_, err := r.Audit(t.Context())
		must(t, err)
	}
	must(t, r.Cut(t.Context(), []redirect.Flow{{Proto: "udp", Published: 8080}}))
	must(t, r.Clear(t.Context()))
	r.Warnings(t.Context(), nil)
	reads := []string{"pfctl -s nat", "pfctl -s rules", "pfctl -s info", "pfctl -s Interfaces -v", "pfctl -ss -vv", "sysctl -n net.pf.filter_local"}
	for _, c := range m.calls {
		if !slices.Contains(reads, c) && !strings.HasPrefix(c, "pfctl -a satl/rdr_b ") && !strings.HasPrefix(c, "pfctl -a satl/nat_b ") {
			t.Errorf("outside our anchors: %s", c)
		}
	}
	if len(m.anchors) > 0 {
		t.Errorf("left %v", m.anchors)
	}
}

func TestNewWantsTheHooks(t *testing.T) {
	m := newMemory()
	m.nat, m.rules = "nat-anchor \"satl/*\" all\n", "block all\n"
	_, err := New(t.Context(), configOf(m))
	if err == nil || !strings.Contains(err.Error(), `rdr-anchor "satl/*" and anchor "satl/*" missing`) ||
		!strings.Contains(err.Error(), `nat-anchor "satl/*"; rdr-anchor "satl/*"; anchor "satl/*"`) {
		t.Errorf("%v", err)
	}
	m.fail = func(string) error {
		return &command.Error{Status: 1, Stderr: "pfctl: /dev/pf: No such file or directory", Err: errors.New("exit status 1")}
	}
	if _, err := New(t.Context(), configOf(m)); err == nil || !strings.Contains(err.Error(), "pf is not loaded") {
		t.Errorf("%v", err)
	}
	for _, c := range m.calls {
		if c != "pfctl -s nat" && c != "pfctl -s rules" {
			t.Errorf("called %s", c)
		}
	}
}

// Rules of a network's own tasks, pools and uplinks that somebody changes are
// found by the next audit, and the Apply after it writes everything.
func TestAudit(t *testing.T) {
	for name, spoil := range map[string]func(m *memory){
		"rules flushed":  func(m *memory) { m.anchors["satl/rdr"].text = "" },
		"all flushed":    func(m *memory) { m.anchors = map[string]*anchor{} },
		"nat flushed":    func(m *memory) { m.anchors["satl/nat"].text = "" },
		"member deleted": func(m *memory) { m.anchors["satl/rdr"].tables["satl_p8080_tcp_80"] = []string{"10.88.0.2"} },
		"member swapped": func(m *memory) {
			m.anchors["satl/rdr"].tables["satl_p8080_tcp_80"] = []string{"10.88.0.2", "10.88.0.9"}
		},
		"closed by somebody": func(m *memory) { m.anchors["satl/rdr"].tables["satl_c8080_tcp"] = []string{everybody} },
		"table killed":       func(m *memory) { delete(m.anchors["satl/rdr"].tables, "satl_p8080_tcp_80") },
	} {
		m := newMemory()
		r := open(t, m)
		if same, err := r.Audit(t.Context()); !same || err != nil {
			t.Errorf("before the first Apply: %t, %v", same, err)
		}
		rules := rulesOf(web("10.88.0.2:80", "10.88.0.3:80"))
		must(t, r.Apply(t.Context(), rules))
		was, text := m.holds("satl/rdr"), m.anchors["satl/rdr"].text
		if same, err := r.Audit(t.Context()); !same || err != nil {
			t.Errorf("%s: untouched: %t, %v", name, same, err)
		}
		spoil(m)
		if same, err := r.Audit(t.Context()); same || err != nil {
			t.Errorf("%s: %t, %v", name, same, err)
		}
		must(t, r.Apply(t.Context(), rules))
		if m.holds("satl/rdr") != was || m.anchors["satl/rdr"].text != text {
			t.Errorf("%s: not repaired", name)
		}
	}
}

// The rules follow the host's interfaces, and its main ruleset is watched:
// without our anchors in it nothing works, which is said once and shown.
func TestAuditWatchesTheHost(t *testing.T) {
	m := newMemory()
	up := []string{"vtnet0"}
	var out bytes.Buffer
	r := open(t, m, func(c *Config) {
		c.Uplinks = func(context.Context) ([]string, error) { return up, nil }
		c.Logger = slog.New(slog.NewTextHandler(&out, nil))
	})
	rules := rulesOf(web("10.88.0.2:80"))
	must(t, r.Apply(t.Context(), rules))
	up = []string{"vtnet0", "wg0"}
	if same, err := r.Audit(t.Context()); !same || err != nil {
		t.Errorf("%t, %v", same, err)
	}
	if text := m.anchors["satl/nat"].text; !strings.Contains(text, "nat on wg0 inet from 10.88.0.0/20 to any -> (wg0)") {
		t.Errorf("%s", text)
	}
	if w := r.Warnings(t.Context(), nil); len(w) > 0 {
		t.Errorf("%v", w)
	}
	m.rules, m.off = "", true
	out.Reset()
	for range 3 {
		if same, err := r.Audit(t.Context()); !same || err != nil {
			t.Errorf("%t, %v", same, err)
		}
	}
	if n := strings.Count(out.String(), "level=ERROR"); n != 1 {
		t.Errorf("said %d times: %s", n, out.String())
	}
	if w := strings.Join(r.Warnings(t.Context(), nil), "; "); !strings.Contains(w, "pf is disabled") || !strings.Contains(w, `anchor "satl/*" missing`) {
		t.Errorf("%s", w)
	}
	m.rules = "anchor \"satl/*\" all\n"
	if _, err := r.Audit(t.Context()); err != nil || !strings.Contains(out.String(), "again") {
		t.Errorf("%v, %s", err, out.String())
	}
}

// With net.pf.filter_local the host's own connections are pf's, unless the
// operator's rules skip lo0.
func TestFiltersLocal(t *testing.T) {
	m := newMemory()
	r := open(t, m)
	for _, c := range []struct {
		sysctl, skip string
		want         bool
	}{{"", "", false}, {"0", "", false}, {"1", "", true}, {"1", " (skip)", false}} {
		if c.sysctl != "" {
			m.sysctl["net.pf.filter_local"] = c.sysctl
		}
		m.skip = c.skip
		if got, err := r.FiltersLocal(t.Context()); got != c.want || err != nil {
			t.Errorf("%+v: %t, %v", c, got, err)
		}
	}
}

// cases/pool.md, pool-9: the kills name the pool's flows one by one, and so
// much as fits into a bounded time.
func TestCut(t *testing.T) {
	m := newMemory()
	r := open(t, m)
	must(t, r.Apply(t.Context(), rulesOf(redirect.Pool{Proto: "udp", Published: 5300, Target: 53, Members: ports("10.88.0.3:53")})))
	m.states = "all udp 10.88.0.2:53 (192.0.2.1:5300) <- 192.0.2.9:1 SINGLE:SINGLE\n   id: 7 creatorid: 8\n" +
		"all udp 10.88.0.3:53 (192.0.2.1:5300) <- 192.0.2.9:2 SINGLE:SINGLE\n   id: 9 creatorid: 8\n" +
		"all tcp 192.0.2.1:22 <- 192.0.2.9:3 ESTABLISHED:ESTABLISHED\n   id: a creatorid: 8\n"
	must(t, r.Cut(t.Context(), []redirect.Flow{{Proto: "udp", Published: 5300, Keep: ports("10.88.0.3:53")}}))
	if !slices.Equal(m.killed, []string{"7"}) {
		t.Errorf("killed %v", m.killed)
	}
	m.calls = nil
	must(t, r.Cut(t.Context(), nil))
	if len(m.calls) > 0 {
		t.Errorf("for nothing: %v", m.calls)
	}
}

func TestCheckOnly(t *testing.T) {
	m := newMemory()
	m.nat = ""
	r := open(t, m, func(c *Config) { c.CheckOnly = true })
	must(t, r.Apply(t.Context(), rulesOf(web("10.88.0.2:80"))))
	if same, err := r.Audit(t.Context()); !same || err != nil {
		t.Errorf("%t, %v", same, err)
	}
	must(t, errors.Join(r.Cut(t.Context(), []redirect.Flow{{Proto: "udp", Published: 1}}), r.Clear(t.Context())))
	if len(m.anchors) > 0 || !slices.Contains(m.calls, "pfctl -a satl/rdr -nf -") {
		t.Errorf("%v, %v", m.anchors, m.calls)
	}
	if w := strings.Join(r.Warnings(t.Context(), nil), "; "); !strings.Contains(w, "only checked") || !strings.Contains(w, "nat-anchor") {
		t.Errorf("%s", w)
	}
	r.cfg.Group = "BAD" // what pfctl refuses is an error
	r.at.group = "BAD"
	if err := r.Apply(t.Context(), rulesOf()); err == nil || !strings.Contains(err.Error(), "syntax error") {
		t.Errorf("%v", err)
	}
}

// cases/pool.md, pool-4: a call that fails fails the Apply, and the next one
// writes everything, as nobody knows what the anchors hold.
func TestAfterAFailureAllIsWritten(t *testing.T) {
	m := newMemory()
	r := open(t, m)
	must(t, r.Apply(t.Context(), rulesOf(web("10.88.0.2:80", "10.88.0.3:80"))))
	m.fail = func(line string) error {
		if strings.Contains(line, "-T replace") {
			return fmt.Errorf("%s: exit status 1", line)
		}
		return nil
	}
	if err := r.Apply(t.Context(), rulesOf(web("10.88.0.3:80"))); err == nil {
		t.Error("a failure is swallowed")
	}
	m.fail, m.calls = nil, nil
	must(t, r.Apply(t.Context(), rulesOf(web("10.88.0.3:80"))))
	if !slices.Contains(m.calls, "pfctl -a satl/rdr -f -") || !slices.Contains(m.calls, "pfctl -a satl/nat -f -") {
		t.Errorf("%v", m.calls)
	}
}

// A pfctl that gave up over an interface that went, or was killed, and what it
// leaves of the anchor, keep nothing from being written or cleared.
func TestLoadsGetThrough(t *testing.T) {
	m := newMemory()
	r := open(t, m)
	must(t, r.Apply(t.Context(), rulesOf(web("10.88.0.2:80"))))
	gone := 2
	m.fail = func(line string) error {
		if gone--; gone >= 0 && line == "pfctl -a satl/rdr -f -" {
			m.anchors["satl/rdr"].stuck = true
			return &command.Error{Status: 1, Stderr: "pfctl: SIOCGIFGROUP: Device not configured", Err: errors.New("exit status 1")}
		}
		return nil
	}
	want := rulesOf(web("10.88.0.2:80"), redirect.Pool{Proto: "udp", Published: 53, Members: ports("10.88.0.2:53")})
	must(t, r.Apply(t.Context(), want))
	if a := m.anchors["satl/rdr"]; !a.stuck || !strings.Contains(a.text, "port 53 tag") || gone > 0 {
		t.Errorf("%+v, %d", a, gone)
	}
	must(t, r.Apply(t.Context(), want))
	if same, err := r.Audit(t.Context()); !same || err != nil {
		t.Errorf("%t, %v", same, err)
	}
	must(t, r.Clear(t.Context()))
	if a := m.anchors["satl/rdr"]; a.text != "" || len(a.tables) > 0 {
		t.Errorf("left %+v", a)
	}
	// What pfctl does not understand is said and not tried in other ways.
	m.calls, r.at.group = nil, "BAD"
	if err := r.Apply(t.Context(), rulesOf()); err == nil || !strings.Contains(err.Error(), "syntax error") {
		t.Errorf("%v", err)
	}
}

// Where pfctl takes longer than it should, rules are written all the same after
// a few attempts, and from then on at the first.
func TestSlowPfctl(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		takes := time.Duration(0)
		r := open(t, m, func(c *Config) {
			c.Run = func(ctx context.Context, c command.Command) (string, error) {
				if takes > c.Bound {
					time.Sleep(c.Bound)
					return "", &command.Error{Command: c, Status: -1, Err: context.DeadlineExceeded}
				}
				time.Sleep(takes)
				return m.run(ctx, c)
			}
		})
		takes = 8 * time.Second
		rules, attempts := rulesOf(web("10.88.0.2:80")), 1
		for ; r.Apply(t.Context(), rules) != nil; attempts++ {
			if attempts > 3 {
				t.Fatalf("pf's rules are never written with a pfctl that takes %v", takes)
			}
		}
		for range 20 {
			must(t, r.Apply(t.Context(), rules))
			if same, err := r.Audit(t.Context()); !same || err != nil {
				t.Fatalf("%t, %v", same, err)
			}
			time.Sleep(time.Minute)
		}
	})
}

// An audit that is broken off, at whatever it asks, has found nothing: the next
// change is written as the one before, not all anew, and with what is known of
// the host.
func TestAuditBrokenOff(t *testing.T) {
	m := newMemory()
	var cut func() error // in place of the host's interfaces
	r := open(t, m, func(c *Config) {
		c.Uplinks = func(context.Context) ([]string, error) {
			if cut != nil {
				return nil, cut()
			}
			return []string{"vtnet0"}, nil
		}
	})
	some, none := rulesOf(web("10.88.0.2:80")), rulesOf(web())
	must(t, r.Apply(t.Context(), some))
	rdr, nat := m.anchors["satl/rdr"].text, m.anchors["satl/nat"].text
	m.calls = nil
	if same, err := r.Audit(t.Context()); !same || err != nil {
		t.Fatalf("%t, %v", same, err)
	}
	steps := len(m.calls)
	if steps < 5 {
		t.Fatalf("an audit is %q", m.calls)
	}
	for step := -1; step < steps; step++ { // -1 is the interfaces
		ctx, cancel := context.WithCancel(t.Context())
		broken, n := func() error { cancel(); return ctx.Err() }, 0
		if step < 0 {
			cut = broken
		}
		m.fail = func(string) error {
			if n++; n == step+1 {
				return broken()
			}
			return nil
		}
		if same, err := r.Audit(ctx); same || err == nil {
			t.Fatalf("broken off at %d: %t, %v", step, same, err)
		}
		cut, m.fail, m.calls = nil, nil, nil
		for _, rules := range []redirect.Rules{none, some} {
			must(t, r.Apply(t.Context(), rules))
		}
		for _, c := range m.calls {
			if strings.Contains(c, "-f") {
				t.Errorf("broken off at %d: an anchor is loaded for a change of members: %s", step, c)
			}
		}
		if m.anchors["satl/rdr"].text != rdr || m.anchors["satl/nat"].text != nat {
			t.Errorf("broken off at %d: %s%s", step, m.anchors["satl/rdr"].text, m.anchors["satl/nat"].text)
		}
	}
}
