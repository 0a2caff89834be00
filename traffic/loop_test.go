// SPDX-License-Identifier: BSD-2-Clause

package traffic

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"satld/redirect"
)

func TestPutAndWithdrawAreConfirmed(t *testing.T) {
	f := &fakeFilter{takes: 20 * time.Millisecond}
	bubble(t, f, func(t *testing.T, tab *Table) {
		must(t, tab.Put(t.Context(), task(2)))
		time.Sleep(time.Second)
		if got := f.members(); got != "" {
			t.Errorf("starting: %q, want an empty pool", got)
		}
		start := time.Now()
		must(t, tab.Put(t.Context(), task(2, serving)))
		if got := f.members(); got != "10.88.0.2" {
			t.Errorf("Put returned and the pool is %q", got)
		}
		if took := time.Since(start); took != f.takes {
			t.Errorf("a single change took %s, the write alone takes %s", took, f.takes)
		}
		start = time.Now()
		confirmed := make(chan error)
		go func() { confirmed <- tab.Withdraw(t.Context(), "container000002") }()
		synctest.Wait()
		if got, known := tab.Lookup(netip.Addr{}, "web"); len(got) > 0 || !known {
			t.Errorf("withdrawn and still in DNS before the packet filter is written: %v", got)
		}
		must(t, <-confirmed)
		if got, took := f.members(), time.Since(start); got != "" || took != f.takes {
			t.Errorf("withdrawn: %q after %s", got, took)
		}
		must(t, tab.Remove(t.Context(), "container000002"))
		if got := f.members(); got != "none" {
			t.Errorf("removed: %q", got)
		}
		for _, id := range []string{"container000002", "never was"} {
			must(t, tab.Withdraw(t.Context(), id))
			must(t, tab.Remove(t.Context(), id))
		}
	})
}

// TestBurst: changes that arrive during a write go into the next one, together.
func TestBurst(t *testing.T) {
	f := &fakeFilter{takes: 20 * time.Millisecond}
	bubble(t, f, func(t *testing.T, tab *Table) {
		before, _ := f.count()
		start := time.Now()
		var wg sync.WaitGroup
		for i := range 30 {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond / 10)
				must(t, tab.Put(t.Context(), task(byte(i+2), serving)))
			})
		}
		wg.Wait()
		after, _ := f.count()
		if n := after - before; n > 3 || time.Since(start) > 3*f.takes {
			t.Errorf("%d writes in %s for a burst", n, time.Since(start))
		}
		if n := len(strings.Fields(f.members())); n != 30 {
			t.Errorf("%d members", n)
		}
	})
}

// TestFailedApplyIsRetried: cases/pool.md, pool-4.
func TestFailedApplyIsRetried(t *testing.T) {
	f := &fakeFilter{}
	reg := prometheus.NewRegistry()
	bubble(t, f, func(t *testing.T, tab *Table) {
		must(t, tab.Put(t.Context(), task(2, serving)))
		must(t, tab.Put(t.Context(), task(3, serving)))
		fails := errors.New("exit status 1")
		n, _ := f.count()
		f.with(func() {
			f.applyErr = func(i int) error {
				if i == n+1 {
					return fails
				}
				return nil
			}
		})
		start := time.Now()
		confirmed := make(chan error)
		go func() { confirmed <- tab.Withdraw(t.Context(), "container000002") }()
		synctest.Wait()
		if err := tab.Health(); !errors.Is(err, fails) {
			t.Errorf("the failure is not to be seen: %v", err)
		}
		select {
		case err := <-confirmed:
			t.Errorf("confirmed before a successful write: %v", err)
		default:
		}
		must(t, <-confirmed)
		if took := time.Since(start); took > time.Second || f.members() != "10.88.0.3" {
			t.Errorf("%q after %s", f.members(), took)
		}
		synctest.Wait()
		if err := tab.Health(); err != nil {
			t.Errorf("after it worked: %v", err)
		}
		if got := counter(t, reg, "satl_traffic_applies_total", "failed"); got != 1 {
			t.Errorf("metric says %v failures", got)
		}
	}, func(c *Config) { c.Registerer = reg })
}

func counter(t *testing.T, reg *prometheus.Registry, name, label string) float64 {
	t.Helper()
	families, err := reg.Gather()
	must(t, err)
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			if slices.ContainsFunc(m.GetLabel(), func(l *dto.LabelPair) bool { return l.GetValue() == label }) {
				return m.GetCounter().GetValue()
			}
		}
	}
	return 0
}

func TestLastingFailure(t *testing.T) {
	f := &fakeFilter{}
	bubble(t, f, func(t *testing.T, tab *Table) {
		must(t, tab.Put(t.Context(), task(2, serving)))
		broken := errors.New("nft is gone")
		f.with(func() { f.applyErr = func(int) error { return broken } })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := tab.Withdraw(ctx, "container000002")
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "nft is gone") {
			t.Errorf("%v", err)
		}
		if got, _ := tab.Lookup(netip.Addr{}, "web"); len(got) > 0 {
			t.Error("an unconfirmed withdrawal is not in DNS")
		}
		before, _ := f.count()
		time.Sleep(time.Minute)
		if after, _ := f.count(); after-before < 11 || after-before > 16 {
			t.Errorf("%d attempts in a minute, want one each 5 s", after-before)
		}
		f.with(func() { f.applyErr = nil })
		time.Sleep(5 * time.Second)
		if f.members() != "" || tab.Health() != nil {
			t.Errorf("the change did not stand: %q, %v", f.members(), tab.Health())
		}
	})
}

// TestCutsAfterTheWrite: cases/pool.md, pool-1, pool-2, pool-9.
func TestCutsAfterTheWrite(t *testing.T) {
	f := &fakeFilter{}
	bubble(t, f, func(t *testing.T, tab *Table) {
		must(t, tab.Put(t.Context(), task(2, serving)))
		must(t, tab.Put(t.Context(), task(3, serving)))
		synctest.Wait()
		f.mu.Lock()
		f.cuts, f.order = nil, nil
		f.mu.Unlock()
		must(t, tab.Withdraw(t.Context(), "container000002"))
		synctest.Wait()
		if !slices.Equal(f.order, []string{"apply", "cut"}) {
			t.Errorf("order %v", f.order)
		}
		for _, c := range f.cuts {
			if c.All || c.Backend.IsValid() {
				t.Errorf("a draining member's established connections are cut: %+v", c)
			}
			if want := netip.AddrPortFrom(addr(3), map[string]uint16{"tcp": 80, "udp": 53}[c.Proto]); !slices.Equal(c.Keep, []netip.AddrPort{want}) {
				t.Errorf("%+v", c)
			}
		}
		if len(f.cuts) != 2 {
			t.Errorf("%+v", f.cuts)
		}
		// Its process ends: everything to it goes, and that is retried.
		once := errors.New("netlink")
		f.with(func() { f.cuts, f.cutErr = nil, func(int) error { return once } })
		must(t, tab.Remove(t.Context(), "container000002"))
		synctest.Wait()
		if err := tab.Health(); !errors.Is(err, once) {
			t.Errorf("%v", err)
		}
		f.with(func() { f.cutErr = nil })
		time.Sleep(time.Second)
		synctest.Wait()
		want := map[netip.AddrPort]bool{netip.AddrPortFrom(addr(2), 80): true, netip.AddrPortFrom(addr(2), 53): true}
		for _, c := range f.cuts {
			if c.All && want[c.Backend] {
				delete(want, c.Backend)
			}
		}
		if len(want) > 0 || tab.Health() != nil {
			t.Errorf("not cut: %v; %v", want, tab.Health())
		}
		// Once more at the next audit, then never again.
		time.Sleep(2 * auditEvery)
		synctest.Wait()
		n := len(f.cuts)
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(f.cuts) != n {
			t.Errorf("cuts go on: %+v", f.cuts[n:])
		}
	})
}

// TestRestartKeepsPools: the rules that a daemon left are not emptied before
// its next life has found its tasks.
func TestRestartKeepsPools(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeFilter{}
		tab := New(Config{Redirector: f})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- tab.Run(ctx) }()
		time.Sleep(900 * time.Millisecond)
		must(t, tab.Put(t.Context(), task(2, serving))) // does not wait
		if n, _ := f.count(); n > 0 {
			t.Error("written while settling")
		}
		tab.Settled()
		tab.Settled()
		synctest.Wait()
		if n, _ := f.count(); n != 1 || f.members() != "10.88.0.2" {
			t.Errorf("%d writes, %q", n, f.members())
		}
		stop()
		<-done
		if f.members() != "10.88.0.2" {
			t.Error("stopping emptied the pools")
		}
		if err := tab.Put(t.Context(), task(3, serving)); err == nil {
			t.Error("a change after the end counts as confirmed")
		}
		must(t, tab.Clear(t.Context()))
		// Nobody says Settled: it goes on by itself within a second.
		f2 := &fakeFilter{}
		tab = New(Config{Redirector: f2})
		ctx, stop = context.WithCancel(t.Context())
		go func() { done <- tab.Run(ctx) }()
		time.Sleep(DefaultSettle)
		synctest.Wait()
		if n, _ := f2.count(); n != 1 {
			t.Errorf("%d writes a second after the start", n)
		}
		stop()
		<-done
	})
}

func TestSubnetsFollow(t *testing.T) {
	f := &fakeFilter{}
	var subnets []redirect.Subnet
	bubble(t, f, func(t *testing.T, tab *Table) {
		subnets = []redirect.Subnet{{Bridge: "b", Prefix: netip.MustParsePrefix("10.0.0.0/24")}, {Bridge: "a", Prefix: netip.MustParsePrefix("10.1.0.0/24")}}
		tab.Nudge()
		synctest.Wait()
		if len(f.rules.Subnets) != 2 || f.rules.Subnets[0].Bridge != "a" {
			t.Errorf("%v", f.rules.Subnets)
		}
	}, func(c *Config) { c.Subnets = func() []redirect.Subnet { return subnets } })
}

func TestFailOpenIsSeen(t *testing.T) {
	f := &fakeFilter{}
	bubble(t, f, func(t *testing.T, tab *Table) {
		must(t, tab.Put(t.Context(), task(2, serving, failOpen)))
		must(t, tab.Put(t.Context(), task(2, unhealthy, failOpen)))
		synctest.Wait()
		if got := tab.FailOpen(); !slices.Equal(got, []string{"s-web"}) || f.members() != "10.88.0.2" {
			t.Errorf("%v, %q", got, f.members())
		}
		// A coming stop withdraws for good.
		must(t, tab.Withdraw(t.Context(), "container000002"))
		if got := tab.FailOpen(); len(got) > 0 || f.members() != "" {
			t.Errorf("draining: %v, %q", got, f.members())
		}
	})
}

func TestRedirectOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab := New(Config{})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- tab.Run(ctx) }()
		tab.Settled()
		must(t, tab.Put(t.Context(), task(2, serving)))
		must(t, tab.Withdraw(t.Context(), "container000002"))
		stop()
		<-done
	})
}

// TestRandomLives: cases/pool.md, pool-3: 32 replicas, 1000 random steps, one
// write in 20 fails. After each confirmed step the filter holds exactly what
// the members say, and never an address of somebody who does not serve.
func TestRandomLives(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("SATL_SEED"); s != "" {
		fmt.Sscan(s, &seed)
	}
	t.Logf("SATL_SEED=%d repeats this", seed)
	rnd, faults := rand.New(rand.NewPCG(seed, 1)), rand.New(rand.NewPCG(seed, 2))
	f := &fakeFilter{takes: 10 * time.Millisecond}
	f.applyErr = func(int) error { // in the loop's goroutine
		if faults.IntN(20) == 0 {
			return errors.New("exit status 1")
		}
		return nil
	}
	bubble(t, f, func(t *testing.T, tab *Table) {
		truth := map[byte]bool{} // present: serving?
		for step := range 1000 {
			n := byte(2 + rnd.IntN(32))
			id := task(n).ContainerID
			switch rnd.IntN(4) {
			case 0:
				must(t, tab.Put(t.Context(), task(n)))
				truth[n] = false
			case 1:
				must(t, tab.Put(t.Context(), task(n, serving)))
				truth[n] = true
			case 2:
				must(t, tab.Withdraw(t.Context(), id))
				if _, there := truth[n]; there {
					truth[n] = false
				}
			case 3:
				must(t, tab.Remove(t.Context(), id))
				delete(truth, n)
			}
			var want []netip.Addr
			for m, serves := range truth {
				if serves {
					want = append(want, addr(m))
				}
			}
			slices.SortFunc(want, netip.Addr.Compare)
			if got, _ := tab.Lookup(netip.Addr{}, "web"); !slices.Equal(got, want) {
				t.Fatalf("step %d: DNS has %v, want %v", step, got, want)
			}
			// A Put that does not serve is not waited for.
			time.Sleep(6 * time.Second)
			var texts []string
			for _, a := range want {
				texts = append(texts, a.String())
			}
			wantText := strings.Join(texts, " ")
			if len(truth) == 0 {
				wantText = "none"
			}
			if got := f.members(); got != wantText {
				t.Fatalf("step %d: the pool has %q, want %q", step, got, wantText)
			}
		}
	})
}

// TestNoTimerOnTheWay: no change waits for a timer. What one takes where the
// filter is real, BenchmarkWithdraw measures.
func TestNoTimerOnTheWay(t *testing.T) {
	f := &fakeFilter{}
	bubble(t, f, func(t *testing.T, tab *Table) {
		start := time.Now()
		for n := range byte(50) {
			must(t, tab.Put(t.Context(), task(n+2, serving)))
		}
		for n := range byte(50) {
			must(t, tab.Withdraw(t.Context(), task(n+2).ContainerID))
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("100 changes took %s of virtual time", took)
		}
	})
}
