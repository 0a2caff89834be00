// SPDX-License-Identifier: BSD-2-Clause

package executor

import (
	"testing"
	"testing/synctest"
	"time"

	"satld/healthcheck"
)

// A name goes before a prefix of an ID, as in Docker.
func TestServiceNamedLikeAnID(t *testing.T) {
	n := &Node{containers: map[string]*Container{}}
	for _, r := range []Record{
		{ID: "cafe0123", Name: "other.1.t1", TaskID: "t1", ServiceName: "other", Slot: 1, State: Running},
		{ID: "0123cafe", Name: "cafe.1.t2", TaskID: "t2", ServiceName: "cafe", Slot: 1, State: Running},
		{ID: "ffff0000", Name: "fff", State: Running},
	} {
		n.containers[r.ID] = newContainer(r)
	}
	for ref, want := range map[string]string{
		"cafe": "0123cafe", "cafe.1": "0123cafe", "/cafe.1.t2": "0123cafe", "cafe0": "cafe0123", "fff": "ffff0000", "ff": "ffff0000",
	} {
		if c, err := n.find(ref); err != nil || c.id != want {
			t.Errorf("%s: %v, %v, want %s", ref, c, err, want)
		}
	}
	if _, err := n.find(""); err == nil {
		t.Error("the empty name names a container")
	}
}

// Health is shown from the start of a probed task to its removal, and what it
// was found to be outlives its probing.
func TestHealthIsShownToTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		defer b.close()
		b.rt.ignoreTerm = true // so that the stop takes its grace, 2 s
		b.rt.probe = func(string) (int, string) { return 1, "gone" }
		c := prepared(t, b, webTask(everySecond(2)))
		ended := make(chan error)
		go func() { ended <- c.Start(t.Context()) }()
		shown := func() healthcheck.Health {
			t.Helper()
			s, err := b.node.Get("web.1")
			if err != nil || s.Health == nil {
				t.Fatalf("no health shown: %v, %v", s.State, err)
			}
			return *s.Health
		}
		time.Sleep(500 * time.Millisecond)
		if h := shown(); h.Status != healthcheck.Starting || h.Log == nil || len(h.Log) != 0 {
			t.Errorf("before the first probe: %+v", h)
		}
		time.Sleep(2500 * time.Millisecond) // two probes; it is being stopped
		if h := shown(); h.Status != healthcheck.Unhealthy || h.FailingStreak != 2 || !h.NextProbe.IsZero() {
			t.Errorf("while it is stopped: %+v", h)
		}
		if err := <-ended; err == nil {
			t.Error("it did not fail")
		}
		if h := shown(); h.Status != healthcheck.Unhealthy || len(h.Log) != 2 {
			t.Errorf("after its end: %+v", h)
		}
	})
}
