// SPDX-License-Identifier: BSD-2-Clause

package raft

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	hraft "github.com/hashicorp/raft"
	"github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/manager/state"
	"github.com/moby/swarmkit/v2/manager/state/store"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// desk is an fsm with its store, fed by hand: the test decides when, and
// whether, an entry is applied.
type desk struct {
	*fsm
	index   uint64
	pending chan *pendingEntry
}

// pendingEntry is a proposal on its way: its entry, and the proposer's hold on it.
type pendingEntry struct {
	log hraft.Log
	p   *proposal
}

var _ state.Proposer = (*desk)(nil)

func newDesk() *desk {
	d := &desk{fsm: newFSM(testLogger()), pending: make(chan *pendingEntry, 1)}
	d.fsm.store = store.NewMemoryStore(d)
	d.lead(true)
	return d
}

func (d *desk) ProposeValue(_ context.Context, actions []api.StoreAction, commit func()) error {
	p, err := d.register(requestID(), commit)
	if err != nil {
		return err
	}
	entry, err := newEntry(p.id, p.base, actions)
	if err != nil {
		return err
	}
	d.pending <- &pendingEntry{entry, p}
	return <-p.done
}

func (d *desk) GetVersion() *api.Version { return &api.Version{Index: d.version()} }
func (d *desk) ChangesBetween(_, _ api.Version) ([]state.Change, error) {
	return nil, errdefs.ErrNotImplemented
}

// propose starts a write and returns its entry and the channel of its result.
func (d *desk) propose(id, name string) (*pendingEntry, <-chan error) {
	result := make(chan error, 1)
	go func() {
		result <- d.fsm.store.Update(func(tx store.Tx) error { return store.CreateService(tx, service(id, name)) })
	}()
	return <-d.pending, result
}

func (d *desk) apply(e *pendingEntry) any {
	d.index++
	e.log.Index = d.index
	return d.Apply(&e.log)
}

// abandon is what ProposeValue does when it stops waiting.
func (d *desk) abandon(e *pendingEntry) bool {
	if !d.giveUp(e.p, true) {
		return false
	}
	e.p.done <- &WriteError{Reason: ErrUnknown}
	return true
}

func TestCommitThroughTheWaitingTransaction(t *testing.T) {
	d := newDesk()
	e, result := d.propose("a", "web")
	if names(d.fsm.store)["a"] != "" {
		t.Error("the write is visible before its entry is applied")
	}
	if r := d.apply(e); r != nil {
		t.Errorf("apply: %v", r)
	}
	if err := <-result; err != nil {
		t.Errorf("write: %v", err)
	}
	if names(d.fsm.store)["a"] != "web" {
		t.Error("the write is not visible")
	}
}

// TestLateCommit is case store-2: the client is told that the outcome is
// unknown, tries again, and there is one service, whether or not the entry
// comes after all.
func TestLateCommit(t *testing.T) {
	for _, late := range []bool{true, false} {
		d := newDesk()
		e, result := d.propose("a", "web")
		if !d.abandon(e) {
			t.Fatal("nobody met the entry, and still it could not be given up")
		}
		err := <-result
		if !errors.Is(err, ErrUnknown) {
			t.Fatalf("write: %v", err)
		}
		if !errdefs.IsUnavailable(err) || status.Code(err) != codes.Unavailable {
			t.Errorf("%v is not unavailable to its caller", err)
		}
		retry := d.fsm.store.Update(func(tx store.Tx) error { return store.CreateService(tx, service("b", "web")) })
		if !errors.Is(retry, ErrUndecided) {
			t.Errorf("a write behind an undecided one: %v", retry)
		}
		want := map[string]string{"b": "web"}
		if late {
			if r := d.apply(e); r != nil {
				t.Fatalf("late apply: %v", r)
			}
			want = map[string]string{"a": "web"}
			err := d.fsm.store.Update(func(tx store.Tx) error { return store.CreateService(tx, service("b", "web")) })
			if !errors.Is(err, store.ErrNameConflict) {
				t.Errorf("a second create: %v", err)
			}
		} else {
			d.lead(true) // a new term: the entry was overwritten
			e, result := d.propose("b", "web")
			d.apply(e)
			if err := <-result; err != nil {
				t.Errorf("second create: %v", err)
			}
		}
		if got := names(d.fsm.store); len(got) != 1 || got["a"] != want["a"] || got["b"] != want["b"] {
			t.Errorf("late=%v: services %v, want %v", late, got, want)
		}
	}
}

// TestTimeoutRacesApply lets the end of the wait and the apply meet: exactly
// one of the waiting transaction and the normal apply happens.
func TestTimeoutRacesApply(t *testing.T) {
	var gaveUp, committed int
	for i := range 2000 {
		d := newDesk()
		e, result := d.propose("a", "web")
		var wg sync.WaitGroup
		wg.Go(func() {
			if i%2 == 0 {
				time.Sleep(time.Duration(i%7) * time.Microsecond)
			}
			d.abandon(e)
		})
		wg.Go(func() { d.apply(e) })
		wg.Wait()
		if err := <-result; err == nil {
			committed++
		} else {
			gaveUp++
		}
		if got := names(d.fsm.store); len(got) != 1 || got["a"] != "web" {
			t.Fatalf("services %v after commit or late apply", got)
		}
		if d.version() != 1 || len(d.waiting)+len(d.undecided) != 0 {
			t.Fatalf("left over: version %d, %d waiting, %d undecided", d.version(), len(d.waiting), len(d.undecided))
		}
	}
	t.Logf("committed %d, given up %d", committed, gaveUp)
}

// TestStaleLeader lets an entry of another leader come before one of ours that
// did not know of it: ours is void, here and on a follower alike.
func TestStaleLeader(t *testing.T) {
	d, follower := newDesk(), newDesk()
	mine, result := d.propose("a", "web")
	theirs, _ := follower.propose("b", "web")
	follower.apply(theirs)

	applied := make(chan any)
	go func() { applied <- d.apply(&pendingEntry{log: theirs.log}) }()
	if err := <-result; !errors.Is(err, ErrStale) {
		t.Errorf("the overtaken write: %v", err)
	}
	if r := <-applied; r != nil {
		t.Errorf("the other leader's entry: %v", r)
	}
	if r := d.apply(mine); r != ErrStale {
		t.Errorf("the overtaken entry: %v", r)
	}
	if r := follower.apply(&pendingEntry{log: mine.log}); r != ErrStale {
		t.Errorf("the overtaken entry on the follower: %v", r)
	}
	for _, x := range []*desk{d, follower} {
		if got := names(x.fsm.store); len(got) != 1 || got["b"] != "web" {
			t.Errorf("services %v", got)
		}
		if x.version() != 2 {
			t.Errorf("version %d", x.version())
		}
	}
	if _, err := d.register(1, nil); err != nil {
		t.Errorf("a write after all is decided: %v", err)
	}
}

// TestTransactionOpenDuringForeignApply: the transaction holds the store's
// lock, the foreign entry waits for it; neither waits for ever.
func TestTransactionOpenDuringForeignApply(t *testing.T) {
	d, other := newDesk(), newDesk()
	theirs, _ := other.propose("b", "theirs")
	applied := make(chan any)
	err := d.fsm.store.Update(func(tx store.Tx) error {
		go func() { applied <- d.apply(&pendingEntry{log: theirs.log}) }()
		eventually(t, 5*time.Second, "the foreign entry waits", func() bool {
			d.mu.Lock()
			defer d.mu.Unlock()
			return d.applying
		})
		return store.CreateService(tx, service("a", "mine"))
	})
	if !errors.Is(err, ErrStale) {
		t.Errorf("write: %v", err)
	}
	if r := <-applied; r != nil {
		t.Errorf("apply: %v", r)
	}
	if got := names(d.fsm.store); len(got) != 1 || got["b"] != "theirs" {
		t.Errorf("services %v", got)
	}
}

func TestNotLeading(t *testing.T) {
	d := newDesk()
	d.lead(false)
	err := d.fsm.store.Update(func(tx store.Tx) error { return store.CreateService(tx, service("a", "web")) })
	if !errors.Is(err, ErrNotLeader) || status.Code(err) != codes.Unavailable {
		t.Errorf("write: %v", err)
	}
	d.fsm.store.View(func(tx store.ReadTx) {
		if store.GetService(tx, "a") != nil {
			t.Error("written all the same")
		}
	})
}
