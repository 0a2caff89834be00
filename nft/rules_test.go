// SPDX-License-Identifier: BSD-2-Clause

package nft

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"satld/platform/command"
	"satld/redirect"
)

var update = flag.Bool("update", false, "write the golden files anew")

func ports(list ...string) (out []netip.AddrPort) {
	for _, s := range list {
		out = append(out, netip.MustParseAddrPort(s))
	}
	return out
}

var (
	front    = redirect.Subnet{Bridge: "satl0", Prefix: netip.MustParsePrefix("10.88.0.0/20")}
	back     = redirect.Subnet{Bridge: "sb0123456789", Prefix: netip.MustParsePrefix("10.88.16.0/20")}
	internal = redirect.Subnet{Bridge: "sb9876543210", Prefix: netip.MustParsePrefix("10.88.32.0/20"), Internal: true}
)

func TestGolden(t *testing.T) {
	hostIP := netip.MustParseAddr("192.0.2.1")
	for name, r := range map[string]redirect.Rules{
		"nothing":  {},
		"networks": {Subnets: []redirect.Subnet{internal, back, front}},
		"pools": {Subnets: []redirect.Subnet{front}, Pools: []redirect.Pool{
			{Proto: "tcp", Published: 8080, Members: ports("10.88.0.3:80", "10.88.0.2:80")},
			{Proto: "tcp", Published: 8081, Members: ports("10.88.0.2:80", "10.88.0.4:8000")},
			{Proto: "udp", Published: 53, Members: ports("10.88.0.5:5353")},
			{Proto: "sctp", Published: 9, Members: ports("10.88.0.5:9")},
		}},
		"empty": {Subnets: []redirect.Subnet{front}, Pools: []redirect.Pool{
			{Proto: "tcp", Published: 8080}, {Proto: "udp", Published: 53}, {Proto: "sctp", Published: 9},
		}},
		"hostip": {Subnets: []redirect.Subnet{front}, Pools: []redirect.Pool{
			{Proto: "tcp", Published: 8080, Members: ports("10.88.0.2:80")},
			{Proto: "tcp", HostIP: hostIP, Published: 8080},
			{Proto: "udp", Published: 53},
			{Proto: "udp", HostIP: hostIP, Published: 53, Members: ports("10.88.0.5:5353")},
		}},
	} {
		got := script("satl_test", plan(r))
		path := filepath.Join("testdata", name+".nft")
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
}

func TestCheck(t *testing.T) {
	for _, r := range []redirect.Rules{
		{Pools: []redirect.Pool{{Proto: "icmp", Published: 1}}},
		{Pools: []redirect.Pool{{Proto: "tcp; flush ruleset", Published: 1}}},
		{Pools: []redirect.Pool{{Proto: "tcp", HostIP: netip.MustParseAddr("2001:db8::1"), Published: 1}}},
		{Pools: []redirect.Pool{{Proto: "tcp", Published: 1, Members: ports("[2001:db8::1]:80")}}},
		{Pools: []redirect.Pool{{Proto: "tcp", Published: 1, Members: ports("10.0.0.1:0")}}},
		{Subnets: []redirect.Subnet{{Bridge: "a\" drop\nx", Prefix: front.Prefix}}},
		{Subnets: []redirect.Subnet{{Bridge: "satl*", Prefix: front.Prefix}}},
		{Subnets: []redirect.Subnet{{Bridge: "satl0"}}},
	} {
		if check(r) == nil {
			t.Errorf("%+v passes", r)
		}
	}
}

// fake is an nft in memory, as far as the Redirector's own logic goes.
type fake struct {
	calls []string
	fail  func(command.Command) error
	list  string
}

func (f *fake) run(_ context.Context, c command.Command) (string, error) {
	f.calls = append(f.calls, c.String()+"\n"+c.Stdin)
	if f.fail != nil {
		if err := f.fail(c); err != nil {
			return "", err
		}
	}
	return f.list, nil
}

// refused is nft's failure with the words.
func refused(words string) error {
	return &command.Error{Command: command.Of("nft", "-f", "-"), Status: 1, Err: errors.New("exit status 1"), Stderr: words}
}

func TestApplyFallsBackToANewTable(t *testing.T) {
	f := &fake{}
	f.fail = func(c command.Command) error {
		if !strings.HasPrefix(c.Stdin, removal("satl_t")) {
			return refused("Error: Could not process rule: File exists")
		}
		return nil
	}
	r := &Redirector{table: "satl_t", run: f.run, log: slog.New(slog.DiscardHandler)}
	if err := r.Apply(t.Context(), redirect.Rules{}); err != nil || len(f.calls) != 2 {
		t.Errorf("%v after %d calls", err, len(f.calls))
	}
	// What else may be wrong is no reason to take the rules away for a moment.
	f.calls, f.fail = nil, func(command.Command) error { return refused("Error: Out of memory") }
	if err := r.Apply(t.Context(), redirect.Rules{}); !command.Says(err, "Out of memory") || len(f.calls) != 1 {
		t.Errorf("%v after %d calls", err, len(f.calls))
	}
}

func TestFailedApplyIsNotWritten(t *testing.T) {
	f := &fake{fail: func(command.Command) error { return refused("Error: no") }}
	r := &Redirector{table: "satl_t", run: f.run}
	err := r.Apply(t.Context(), redirect.Rules{})
	if err == nil || !strings.Contains(err.Error(), "nft -f -: exit status 1: Error: no") {
		t.Errorf("%v", err)
	}
	if r.written != nil {
		t.Error("a failed write counts as written")
	}
}

func TestBoundedTime(t *testing.T) {
	if testing.Short() {
		t.Skip("takes two seconds")
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "nft"), []byte("#!/bin/sh\nsleep 60 & wait\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	r, err := New(Config{Table: "satl_t"})
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	err = r.Apply(t.Context(), redirect.Rules{})
	if took := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || took > Timeout+4*time.Second { // two of them to kill it
		t.Errorf("%v after %s", err, took)
	}
}

func TestNew(t *testing.T) {
	for _, bad := range []string{"", "a b", "x;y", strings.Repeat("a", 40), "1a"} {
		if _, err := New(Config{Table: bad}); err == nil {
			t.Errorf("table %q passes", bad)
		}
	}
	t.Setenv("PATH", t.TempDir())
	if _, err := New(Config{Table: "satl_t"}); err == nil || !strings.Contains(err.Error(), "apt install nftables") {
		t.Errorf("without nft: %v", err)
	}
}

// TestHolds: whatever differs in the listing is seen.
func TestHolds(t *testing.T) {
	written := plan(redirect.Rules{Subnets: []redirect.Subnet{front}, Pools: []redirect.Pool{{Proto: "tcp", Published: 80, Members: ports("10.88.0.2:80")}, {Proto: "tcp", Published: 81}}})
	render := func(rules []rule, chains []baseChain) []byte {
		var objects []map[string]any
		for _, c := range chains {
			objects = append(objects, map[string]any{"chain": map[string]any{"name": c.name, "type": c.kind, "hook": c.hook, "prio": c.priority, "policy": "accept"}})
		}
		for _, r := range rules {
			objects = append(objects, map[string]any{"rule": map[string]any{"chain": r.chain, "comment": r.comment(), "expr": r.text}})
		}
		text, err := json.Marshal(map[string]any{"nftables": objects})
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	if same, err := holds(render(written, baseChains), written); !same || err != nil {
		t.Fatalf("%t, %v", same, err)
	}
	for i := range written {
		without := append(append([]rule{}, written[:i]...), written[i+1:]...)
		if same, _ := holds(render(without, baseChains), written); same {
			t.Errorf("%v is missing and not missed", written[i])
		}
		changed := append([]rule{}, written...)
		changed[i].text += " "
		if same, _ := holds(render(changed, baseChains), written); same {
			t.Errorf("%v is changed", written[i])
		}
		twice := append(append([]rule{}, written...), written[i])
		if same, _ := holds(render(twice, baseChains), written); same {
			t.Errorf("%v is there twice", written[i])
		}
	}
	for i := range baseChains {
		without := append(append([]baseChain{}, baseChains[:i]...), baseChains[i+1:]...)
		if same, _ := holds(render(written, without), written); same {
			t.Errorf("chain %v is missing and not missed", baseChains[i])
		}
	}
	extra := append(append([]rule{}, written...), rule{"somebody", "drop"})
	if same, _ := holds(render(extra, baseChains), written); same {
		t.Error("a foreign chain's rules are not seen")
	}
	if _, err := holds([]byte("{"), written); err == nil {
		t.Error("a torn listing is read")
	}
}

func FuzzHolds(f *testing.F) {
	f.Add(`{"nftables":[{"metainfo":{}},{"chain":{"name":"a"}},{"rule":{"chain":"b","comment":"c"}}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		if same, _ := holds([]byte(text), plan(redirect.Rules{Subnets: []redirect.Subnet{front}})); same {
			t.Error("accepted")
		}
	})
}

// TestCuts covers cases/pool.md, pool-1, pool-2 and pool-9: which entries go.
func TestCuts(t *testing.T) {
	h := hostView{
		local:   func(a netip.Addr) bool { return a.IsLoopback() || a == netip.MustParseAddr("192.0.2.1") },
		subnets: []redirect.Subnet{front},
	}
	a, b := ports("10.88.0.2:53")[0], ports("10.88.0.3:53")[0]
	flow := func(proto string, keep ...netip.AddrPort) redirect.Flow {
		return redirect.Flow{Proto: proto, Published: 53, Keep: keep}
	}
	gone := func(proto string, all bool) redirect.Flow {
		return redirect.Flow{Proto: proto, Published: 53, Backend: a, All: all}
	}
	e := func(proto, dialled string, answers netip.AddrPort) entry {
		return entry{proto: proto, dialled: netip.MustParseAddrPort(dialled), answers: answers}
	}
	open := e("tcp", "192.0.2.1:53", a)
	open.halfOpen = true
	for i, c := range []struct {
		flow redirect.Flow
		e    entry
		want bool
	}{
		// UDP to a member that left; the member that stays.
		{flow("udp", b), e("udp", "192.0.2.1:53", a), true},
		{flow("udp", b), e("udp", "127.0.0.1:53", a), true},
		{flow("udp", b), e("udp", "192.0.2.1:53", b), false},
		// The entry made while the port had no rule.
		{flow("udp", b), e("udp", "192.0.2.1:53", ports("192.0.2.1:53")[0]), true},
		// Another port, protocol, and what only passes through.
		{flow("udp", b), e("udp", "192.0.2.1:54", a), false},
		{flow("udp", b), e("tcp", "192.0.2.1:53", a), false},
		{flow("udp", b), e("udp", "198.51.100.1:53", ports("198.51.100.1:53")[0]), false},
		{flow("udp", b), e("udp", "192.0.2.1:53", ports("172.17.0.2:53")[0]), false},
		// Established TCP is left alone until the process is gone.
		{flow("tcp", b), e("tcp", "192.0.2.1:53", a), false},
		{flow("tcp", b), open, true},
		{gone("tcp", false), e("tcp", "192.0.2.1:53", a), false},
		{gone("tcp", true), e("tcp", "192.0.2.1:53", a), true},
		{gone("tcp", true), e("tcp", "192.0.2.1:53", b), false},
		{gone("udp", true), e("udp", "192.0.2.1:53", a), true},
		// The host's own server on the port.
		{flow("tcp", b), e("tcp", "192.0.2.1:53", ports("192.0.2.1:53")[0]), false},
		// Only the address that is published.
		{redirect.Flow{Proto: "udp", HostIP: netip.MustParseAddr("192.0.2.1"), Published: 53}, e("udp", "127.0.0.1:53", ports("127.0.0.1:53")[0]), false},
		{redirect.Flow{Proto: "udp", HostIP: netip.MustParseAddr("192.0.2.1"), Published: 53}, e("udp", "192.0.2.1:53", a), true},
	} {
		if got := cuts(c.flow, c.e, h); got != c.want {
			t.Errorf("row %d: %+v, %+v: %t", i, c.flow, c.e, got)
		}
	}
}

func manyRules(n int) redirect.Rules {
	r := redirect.Rules{Subnets: []redirect.Subnet{front}}
	for i := range n {
		p := redirect.Pool{Proto: "tcp", Published: uint16(20000 + i)}
		for j := range 3 {
			p.Members = append(p.Members, netip.MustParseAddrPort(fmt.Sprintf("10.88.%d.%d:80", j, i+2)))
		}
		r.Pools = append(r.Pools, p)
	}
	return r
}
