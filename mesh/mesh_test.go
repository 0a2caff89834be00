// SPDX-License-Identifier: BSD-2-Clause

package mesh

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"satld/traffic"
)

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

func task(node, id string, running bool) Task {
	return Task{node, traffic.Member{
		ContainerID: id, TaskID: id, Serving: running, Process: running, FailOpen: true,
		Endpoints: []traffic.Endpoint{{NetworkID: "n", Addr: netip.MustParseAddr("10.89.0.9")}},
	}}
}

func TestJudge(t *testing.T) {
	s := DefaultSettings()
	off := s
	off.Enabled = false
	node := Node{ID: "a", Addr: "a:1"}
	down := node
	down.Down = true
	said := func(state State) observation {
		return observation{}.hear(Report{Boot: "b", Seq: 1, Tasks: map[string]State{"t": state}})
	}
	missed := func(o observation, n int) observation { o.misses = n; return o }
	for _, c := range []struct {
		name      string
		s         Settings
		n         Node
		o         observation
		running   bool
		serving   bool
		unhealthy bool
		verdict   Verdict
	}{
		{"not told yet, RUNNING", s, node, observation{}, true, true, false, Unknown},
		{"not told yet, not RUNNING", s, node, observation{}, false, false, false, Unknown},
		{"told of others only", s, node, observation{}.hear(Report{Boot: "b", Seq: 1}), true, true, false, Unknown},
		{"serving", s, node, said(Serving), true, true, false, Passes},
		{"serving, but to stop", s, node, said(Serving), false, false, false, Passes},
		{"out is believed at once", s, node, said(Out), true, false, false, Fails},
		{"unhealthy can be fallen back on", s, node, said(Unhealthy), true, false, true, Fails},
		{"unhealthy and to stop cannot", s, node, said(Unhealthy), false, false, false, Fails},
		{"told of before and no more", s, node, said(Serving).hear(Report{Boot: "b", Seq: 2}), true, false, false, Ended},
		{"nor later", s, node, said(Out).hear(Report{Boot: "b", Seq: 2}).hear(Report{Boot: "b", Seq: 3}), true, false, false, Ended},
		{"nor as is passed on", s, node, said(Serving).hearsay(Report{Boot: "b", Seq: 2}), true, false, false, Ended},
		{"nor by the next daemon", s, node, said(Serving).hear(Report{Boot: "c", Seq: 1}), true, false, false, Ended},
		{"another daemon is only passed on", s, node, said(Serving).hearsay(Report{Boot: "c", Seq: 1}), true, true, false, Unknown},
		{"told of again", s, node, said(Serving).hear(Report{Boot: "b", Seq: 2}).hear(Report{Boot: "b", Seq: 3, Tasks: map[string]State{"t": Serving}}), true, true, false, Passes},
		{"one miss is no verdict", s, node, missed(said(Serving), 1), true, true, false, Passes},
		{"two are", s, node, missed(said(Serving), 2), true, false, false, Silent},
		{"two, never told", s, node, missed(observation{}, 2), true, false, false, Silent},
		{"down", s, down, said(Serving), true, false, false, NodeDown},
		{"gating off, whatever is said", off, node, missed(said(Out), 9), true, true, false, Ungated},
		{"gating off, down", off, down, observation{}, true, false, false, NodeDown},
	} {
		m, v := judge(c.s, c.n, c.o, task("a", "t", c.running))
		if m.Serving != c.serving || m.Unhealthy != c.unhealthy || v != c.verdict {
			t.Errorf("%s: serving %t, unhealthy %t, %s", c.name, m.Serving, m.Unhealthy, v)
		}
	}
}

// Of two reports of one run of a daemon the older one changes nothing.
func TestOlderReport(t *testing.T) {
	o := observation{}.hear(Report{Boot: "b", Seq: 5, Tasks: map[string]State{"t": Out}})
	if o = o.hear(Report{Boot: "b", Seq: 4, Tasks: map[string]State{"t": Serving}}); o.report.Tasks["t"] != Out {
		t.Error("an older report was believed")
	}
	if o = o.hear(Report{Boot: "c", Seq: 1, Tasks: map[string]State{"t": Serving}}); o.report.Tasks["t"] != Serving {
		t.Error("a new daemon's report was not believed")
	}
}

// What a manager passes on is news, if it is newer, and never of a daemon that
// was followed by another; it is no sign of life.
func TestHearsay(t *testing.T) {
	report := func(boot string, seq uint64, state State) Report {
		return Report{Boot: boot, Seq: seq, Tasks: map[string]State{"t": state}}
	}
	o := observation{misses: 1}
	for _, c := range []struct {
		name   string
		heard  Report // by the observer itself; zero is none
		passed Report
		state  State
	}{
		{"nothing is passed on", Report{}, Report{}, ""},
		{"the first word", Report{}, report("b", 4, Out), Out},
		{"newer", Report{}, report("b", 5, Serving), Serving},
		{"older", Report{}, report("b", 4, Out), Serving},
		{"of the daemon before", report("c", 1, Unhealthy), report("b", 6, Serving), Unhealthy},
		{"of the next one", Report{}, report("d", 1, Out), Out},
	} {
		if c.heard.Boot != "" {
			o = o.hear(c.heard)
			o.misses = 1
		}
		if o = o.hearsay(c.passed); o.report.Tasks["t"] != c.state || o.misses != 1 {
			t.Errorf("%s: %q, %d misses", c.name, o.report.Tasks["t"], o.misses)
		}
	}
	// The node itself is believed in any case.
	if o = o.hear(report("c", 2, Serving)); o.report.Tasks["t"] != Serving || o.misses != 0 {
		t.Errorf("of the node itself: %+v", o)
	}
}

// TestReportsSay: a report has another number exactly when it says something
// else, so that what changed can be told by it.
func TestReportsSay(t *testing.T) {
	serving := true
	own := func() ([]traffic.Member, <-chan struct{}) {
		return []traffic.Member{{TaskID: "t", Serving: serving, Process: true}}, nil
	}
	life := NewLife("b")
	var got []string
	for _, serving = range []bool{true, true, false, false, true} {
		r, _ := life.Report(own)
		got = append(got, fmt.Sprint(r.Seq, r.Tasks["t"]))
	}
	if want := []string{"1serving", "1serving", "2out", "2out", "3serving"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// TestReportsInOrder: a report with a larger number is never older than what it
// follows, though several are made at a time and the clock is set.
func TestReportsInOrder(t *testing.T) {
	var looked atomic.Uint64
	own := func() ([]traffic.Member, <-chan struct{}) {
		return []traffic.Member{{TaskID: fmt.Sprint(looked.Add(1))}}, nil
	}
	life := NewLife("b")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 200 {
				r, _ := life.Report(own)
				if r.Boot != "b" || r.Tasks[fmt.Sprint(r.Seq)] == "" { // the nth look is the nth report
					t.Errorf("%+v", r)
				}
			}
		})
	}
	wg.Wait()
}

// world is a node that is asked, and what an observer made of it.
type world struct {
	mu      sync.Mutex
	view    View
	changed chan struct{}
	answer  Report
	err     error
	asked   []time.Time
	serving map[string]bool
}

func (w *world) set(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
	close(w.changed)
	w.changed = make(chan struct{})
}

func (w *world) observer(s Settings) *Observer {
	w.changed = make(chan struct{})
	return &Observer{
		Settings: s, Log: quiet,
		View: func() (View, <-chan struct{}) { w.mu.Lock(); defer w.mu.Unlock(); return w.view, w.changed },
		Ask: func(context.Context, Node) (Report, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.asked = append(w.asked, time.Now())
			return w.answer, w.err
		},
		Members: func(members []traffic.Member, _ map[string]Report) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.serving = map[string]bool{}
			for _, m := range members {
				w.serving[m.TaskID] = m.Serving
			}
		},
	}
}

func (w *world) serves(id string) bool { w.mu.Lock(); defer w.mu.Unlock(); return w.serving[id] }

func TestObserver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		w := &world{view: View{Nodes: []Node{{ID: "a", Addr: "a:1"}}, Tasks: []Task{task("a", "t", true)}}}
		w.answer = Report{Boot: "b", Seq: 1, Tasks: map[string]State{"t": Serving}}
		o := w.observer(DefaultSettings())
		go o.Run(ctx)
		synctest.Wait()
		begun := time.Now()
		if !w.serves("t") || o.Verdict("t") != Passes || len(w.asked) != 1 {
			t.Fatalf("at the start: %v, %q, asked %d times", w.serving, o.Verdict("t"), len(w.asked))
		}
		// Told: at once, long before the next question.
		if err := o.Told(ctx, "a", Report{Boot: "b", Seq: 2, Tasks: map[string]State{"t": Out}}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if w.serves("t") || time.Since(begun) != 0 {
			t.Error("what the node said was not believed at once")
		}
		// The next question's answer is older, and changes nothing.
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if w.serves("t") || len(w.asked) != 2 {
			t.Errorf("after an older answer: serving %t, asked %d times", w.serves("t"), len(w.asked))
		}
		w.set(func() { w.answer.Seq = 3 })
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if !w.serves("t") {
			t.Error("a newer answer was not believed")
		}
		// One miss is forgiven, two are not; an answer heals.
		w.set(func() { w.err = errors.New("no answer") })
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if !w.serves("t") {
			t.Error("one miss took the task out")
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if w.serves("t") || o.Verdict("t") != Silent {
			t.Errorf("two misses: %q", o.Verdict("t"))
		}
		w.set(func() { w.err = nil })
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if !w.serves("t") {
			t.Error("an answer did not bring it back")
		}
		// A node that is Down is not asked, and its tasks get nothing.
		w.set(func() { w.view.Nodes = []Node{{ID: "a", Addr: "a:1", Down: true}}; w.asked = nil })
		time.Sleep(time.Minute)
		synctest.Wait()
		if w.serves("t") || len(w.asked) != 0 {
			t.Errorf("down: serving %t, asked %d times", w.serves("t"), len(w.asked))
		}
	})
}

// No more than Concurrency questions at a time, each within its timeout.
func TestManyNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		w := &world{}
		for i := range 100 {
			w.view.Nodes = append(w.view.Nodes, Node{ID: string(rune('a' + i)), Addr: "x"})
		}
		o := w.observer(DefaultSettings())
		var mu sync.Mutex
		now, most, all := 0, 0, 0
		o.Ask = func(ctx context.Context, _ Node) (Report, error) {
			mu.Lock()
			now++
			all++
			most = max(most, now)
			mu.Unlock()
			<-ctx.Done() // nobody answers
			mu.Lock()
			now--
			mu.Unlock()
			return Report{}, ctx.Err()
		}
		go o.Run(ctx)
		time.Sleep(14 * time.Second) // 100 nodes, 16 at a time, 2 s each
		synctest.Wait()
		if most != 16 || all < 100 {
			t.Errorf("%d at a time, %d in all", most, all)
		}
	})
}

func TestGatingOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		w := &world{view: View{Nodes: []Node{{ID: "a", Addr: "a:1"}}, Tasks: []Task{task("a", "t", true)}}}
		o := w.observer(Settings{Interval: time.Second})
		go o.Run(ctx)
		time.Sleep(time.Minute)
		synctest.Wait()
		if !w.serves("t") || len(w.asked) != 0 || o.Verdict("t") != Ungated {
			t.Errorf("serving %t, asked %d times, %q", w.serves("t"), len(w.asked), o.Verdict("t"))
		}
	})
}

// A change reaches every manager that answers at once, one that does not as
// soon as it does, and nobody twice.
func TestTeller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		table := traffic.New(traffic.Config{})
		var mu sync.Mutex
		heard := map[string][]Report{}
		dead := map[string]bool{"bad": true}
		teller := &Teller{Life: NewLife("b"), Own: table.Own, Log: quiet,
			Managers: func() []string { return []string{"good", "bad"} },
			Tell: func(ctx context.Context, addr string, r Report) error {
				mu.Lock()
				gone := dead[addr]
				mu.Unlock()
				if gone {
					<-ctx.Done()
					return ctx.Err()
				}
				mu.Lock()
				defer mu.Unlock()
				heard[addr] = append(heard[addr], r)
				return nil
			}}
		go teller.Run(ctx)
		synctest.Wait()
		begun := time.Now()
		m := task("here", "t", true).Member
		if err := table.Put(ctx, m); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		last := func(addr string) Report {
			mu.Lock()
			defer mu.Unlock()
			if len(heard[addr]) == 0 {
				return Report{}
			}
			return heard[addr][len(heard[addr])-1]
		}
		if last("good").Tasks["t"] != Serving || time.Since(begun) > 0 {
			t.Errorf("told %v after %v", heard, time.Since(begun))
		}
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if n := len(heard["good"]); n != 2 { // at the start, and the change
			t.Errorf("told %d times", n)
		}
		mu.Lock()
		dead["bad"] = false
		mu.Unlock()
		time.Sleep(4 * time.Second)
		synctest.Wait()
		if last("bad").Tasks["t"] != Serving {
			t.Error("the manager that is back was not told")
		}
		if a := last("good"); a.Boot != "b" || a.Seq == 0 {
			t.Errorf("%+v", a)
		}
		cancel()
		synctest.Wait()
	})
}

func TestDirectory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		one, two := &Directory{Boot: "1"}, &Directory{Boot: "2"}
		var mu sync.Mutex
		from := one
		var got [][]string
		r := &Reader{Log: quiet,
			Ask: func(ctx context.Context, known string) (Page, error) {
				mu.Lock()
				d := from
				mu.Unlock()
				if d == nil {
					return Page{}, errors.New("nobody")
				}
				return d.Read(ctx, known)
			},
			Page: func(page Page) {
				ids := map[string]bool{}
				for _, e := range page.Entries {
					ids[e.Member.TaskID] = true
				}
				mu.Lock()
				defer mu.Unlock()
				got = append(got, slices.Sorted(maps.Keys(ids)))
			}}
		go r.Run(ctx)
		synctest.Wait()
		entry := func(id string) Entry { return Entry{NodeID: "a", Host: "10.0.0.1", Member: task("a", id, true).Member} }
		begun := time.Now()
		one.Set(nil, []Entry{entry("x")})
		synctest.Wait()
		one.Set(nil, []Entry{entry("x")}) // nothing new
		synctest.Wait()
		one.Set(nil, []Entry{entry("x"), entry("y")})
		synctest.Wait()
		if time.Since(begun) != 0 || len(got) != 2 || !slices.Equal(got[1], []string{"x", "y"}) {
			t.Fatalf("%v after %v", got, time.Since(begun))
		}
		// Another manager, with a directory of its own and the same number.
		two.Set(nil, nil)
		two.Set(nil, []Entry{entry("z")})
		mu.Lock()
		from = nil
		mu.Unlock()
		one.Set(nil, nil) // ends the wait there
		synctest.Wait()
		mu.Lock()
		from = two
		mu.Unlock()
		time.Sleep(time.Second)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if last := got[len(got)-1]; !slices.Equal(last, []string{"z"}) {
			t.Errorf("%v", got)
		}
	})
}
