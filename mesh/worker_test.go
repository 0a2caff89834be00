// SPDX-License-Identifier: BSD-2-Clause

package mesh

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// A worker hears through a manager what another node says, at once, and asks
// that node for itself: where it gets no answer it sends no traffic, whatever
// the manager knows (spec/application-health.txt, "Each gateway node polls for
// itself and does not share the result").
func TestWorkerAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		report := func(seq uint64, state State) Report {
			return Report{Boot: "b", Seq: seq, Tasks: map[string]State{"t": state}}
		}
		manager := &Directory{Boot: "m"}
		page := func(said Report, down bool) {
			nodes := []Node{{ID: "a", Addr: "a:1", Down: down, Said: said}, {ID: "here", Addr: "h:1"}, {ID: "idle", Addr: "i:1"}}
			manager.Set(nodes, []Entry{
				{NodeID: "a", Host: "a"}, // a node's own addresses
				{NodeID: "a", Host: "a", Member: task("a", "t", true).Member},
				{NodeID: "here", Host: "h", Member: task("here", "own", true).Member},
			})
			synctest.Wait()
		}
		w := &world{answer: report(1, Serving)}
		o := w.observer(DefaultSettings())
		var latest Latest
		o.View = func() (View, <-chan struct{}) {
			p, changed := latest.Get()
			return p.View("here"), changed
		}
		asked := map[string]int{}
		ask := o.Ask
		o.Ask = func(ctx context.Context, n Node) (Report, error) {
			w.set(func() { asked[n.Addr]++ })
			return ask(ctx, n)
		}
		r := &Reader{Log: quiet, Ask: manager.Read, Page: latest.Set}
		go r.Run(ctx)
		page(report(1, Serving), false)
		go o.Run(ctx)
		synctest.Wait()
		begun := time.Now()
		if len(w.serving) != 1 || !w.serves("t") || o.Verdict("t") != Passes || len(asked) != 1 || asked["a:1"] != 1 {
			t.Fatalf("at the start: serving %v, %q, asked %v", w.serving, o.Verdict("t"), asked)
		}
		page(report(2, Out), false)
		if w.serves("t") || time.Since(begun) != 0 {
			t.Error("what the node said to the manager was not believed at once")
		}
		page(report(3, Serving), false)
		if !w.serves("t") {
			t.Error("it was not believed again")
		}
		// The node is cut off from this one alone, and goes on telling the
		// manager.
		w.set(func() { w.err = errors.New("no answer") })
		time.Sleep(5 * time.Second)
		page(report(5, Serving), false)
		if !w.serves("t") {
			t.Error("one miss took the task out")
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if w.serves("t") || o.Verdict("t") != Silent {
			t.Errorf("two misses: %q", o.Verdict("t"))
		}
		page(report(6, Serving), false)
		if w.serves("t") {
			t.Error("the manager's word brought back a node that does not answer")
		}
		w.set(func() { w.err, w.answer = nil, report(6, Serving) })
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if !w.serves("t") {
			t.Error("an answer did not bring it back")
		}
		page(Report{}, true)
		n := asked["a:1"]
		time.Sleep(time.Minute)
		synctest.Wait()
		if w.serves("t") || o.Verdict("t") != NodeDown || asked["a:1"] != n {
			t.Errorf("down: %q, asked %d times", o.Verdict("t"), asked["a:1"]-n)
		}
	})
}
