// SPDX-License-Identifier: BSD-2-Clause

package raft

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	hraft "github.com/hashicorp/raft"
	"github.com/moby/swarmkit/v2/manager/state/store"
)

// trio is three nodes in one process, connected in memory.
type trio struct {
	t     *testing.T
	nodes []*member
	links []*hraft.InmemTransport
	// cutTransfers is how many transfers of a snapshot are still to be cut.
	cutTransfers atomic.Int64
	lag          atomic.Int64 // of every message on its way, as a time.Duration
}

// cutting is a link that cuts transfers of snapshots half-way, and lags.
type cutting struct {
	*hraft.InmemTransport
	left, lag *atomic.Int64
}

// lagging sends a question and has the answer, late both times.
func (c cutting) lagging(send func() error) error {
	lag := time.Duration(c.lag.Load())
	time.Sleep(lag)
	defer time.Sleep(lag)
	return send()
}

// AppendEntriesPipeline implements hraft.Transport.
func (c cutting) AppendEntriesPipeline(id hraft.ServerID, to hraft.ServerAddress) (hraft.AppendPipeline, error) {
	if c.lag.Load() > 0 {
		return nil, hraft.ErrPipelineReplicationNotSupported
	}
	return c.InmemTransport.AppendEntriesPipeline(id, to)
}

// AppendEntries implements hraft.Transport.
func (c cutting) AppendEntries(id hraft.ServerID, to hraft.ServerAddress, args *hraft.AppendEntriesRequest, resp *hraft.AppendEntriesResponse) error {
	return c.lagging(func() error { return c.InmemTransport.AppendEntries(id, to, args, resp) })
}

// RequestVote implements hraft.Transport.
func (c cutting) RequestVote(id hraft.ServerID, to hraft.ServerAddress, args *hraft.RequestVoteRequest, resp *hraft.RequestVoteResponse) error {
	return c.lagging(func() error { return c.InmemTransport.RequestVote(id, to, args, resp) })
}

// RequestPreVote implements hraft.WithPreVote.
func (c cutting) RequestPreVote(id hraft.ServerID, to hraft.ServerAddress, args *hraft.RequestPreVoteRequest, resp *hraft.RequestPreVoteResponse) error {
	return c.lagging(func() error { return c.InmemTransport.RequestPreVote(id, to, args, resp) })
}

// InstallSnapshot implements hraft.Transport.
func (c cutting) InstallSnapshot(id hraft.ServerID, to hraft.ServerAddress, args *hraft.InstallSnapshotRequest, resp *hraft.InstallSnapshotResponse, data io.Reader) error {
	if c.left.Load() > 0 {
		c.left.Add(-1)
		data = io.LimitReader(data, args.Size/2)
	}
	return c.InmemTransport.InstallSnapshot(id, to, args, resp, data)
}

// newTrio is called inside a bubble; the first node bootstraps, the others join.
func newTrio(t *testing.T) *trio { return newTrioWith(t, Config{}) }

func newTrioWith(t *testing.T, cfg Config) *trio {
	x := &trio{t: t}
	for i := range 3 {
		addr := fmt.Sprintf("10.0.0.%d:2377", i)
		_, link := hraft.NewInmemTransport(hraft.ServerAddress(addr))
		link.Connect(link.LocalAddr(), link)
		x.links = append(x.links, link)
		cfg.Dir, cfg.ID, cfg.Addr, cfg.Bootstrap, cfg.transport = t.TempDir(), fmt.Sprint("server", i), addr, i == 0, cutting{link, &x.cutTransfers, &x.lag}
		m, err := open(t, cfg)
		if err != nil {
			t.Fatal(err)
		}
		x.nodes = append(x.nodes, m)
	}
	for i := range 3 {
		x.heal(i)
	}
	<-x.nodes[0].led
	for i := 1; i < 3; i++ {
		if err := x.nodes[0].AddMember(t.Context(), fmt.Sprint("server", i), fmt.Sprintf("10.0.0.%d:2377", i)); err != nil {
			t.Fatal(err)
		}
	}
	return x
}

func (x *trio) heal(i int) {
	for j := range x.links {
		if i != j {
			x.links[i].Connect(x.links[j].LocalAddr(), x.links[j])
			x.links[j].Connect(x.links[i].LocalAddr(), x.links[i])
		}
	}
}

func (x *trio) cut(i int) {
	x.links[i].DisconnectAll()
	for j := range x.links {
		x.links[j].Disconnect(x.links[i].LocalAddr())
	}
}

// leader waits for a leader among the nodes given.
func (x *trio) leader(among ...int) int {
	x.t.Helper()
	for range 600 {
		for _, i := range among {
			if x.nodes[i].Leads() {
				return i
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
	x.t.Fatal("no leader within a minute")
	return -1
}

// agree waits until all stores hold the same services and returns them.
func (x *trio) agree() map[string]string {
	x.t.Helper()
	for range 600 {
		time.Sleep(100 * time.Millisecond)
		a, b, c := names(x.nodes[0].Store()), names(x.nodes[1].Store()), names(x.nodes[2].Store())
		if maps.Equal(a, b) && maps.Equal(b, c) &&
			x.nodes[0].fsm.version() == x.nodes[1].fsm.version() && x.nodes[1].fsm.version() == x.nodes[2].fsm.version() {
			return a
		}
	}
	x.t.Fatalf("the stores differ: %v %v %v", names(x.nodes[0].Store()), names(x.nodes[1].Store()), names(x.nodes[2].Store()))
	return nil
}

func (x *trio) close() {
	for _, m := range x.nodes {
		m.stop()
	}
}

// TestLostLeadership is case store-2 in a whole cluster: a leader that is cut
// off does not know what became of its write; once it is back all three stores
// agree, and a second try with the same name gives one service.
func TestLostLeadership(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newTrio(t)
		defer x.close()
		if err := x.nodes[0].create("a", "first"); err != nil {
			t.Fatal(err)
		}
		x.agree()
		x.cut(0)
		begin := time.Now()
		err := x.nodes[0].create("b", "web")
		if !errors.Is(err, ErrUnknown) {
			t.Fatalf("a write of a leader cut off: %v", err)
		}
		if d := time.Since(begin); d > 5*time.Second {
			t.Errorf("it was told so after %v", d)
		}
		if err := x.nodes[0].create("b2", "web"); !errors.Is(err, ErrNotLeader) && !errors.Is(err, ErrUndecided) {
			t.Errorf("the next write: %v", err)
		}
		l := x.leader(1, 2)
		if err := x.nodes[l].create("c", "web"); err != nil {
			t.Fatalf("second try at the new leader: %v", err)
		}
		x.heal(0)
		got := x.agree()
		if want := map[string]string{"a": "first", "c": "web"}; !maps.Equal(got, want) {
			t.Errorf("services %v, want %v", got, want)
		}
		// The old leader takes part again, also as a leader.
		for i := range 3 {
			if l := x.leader(0, 1, 2); l != 0 {
				x.cut(l)
				x.leader(0, 1, 2)
				x.heal(l)
			}
			l := x.leader(0, 1, 2)
			if err := x.nodes[l].create(fmt.Sprint("d", i), fmt.Sprint("later", i)); err != nil && !errors.Is(err, ErrUnknown) && !errors.Is(err, ErrNotLeader) {
				t.Fatal(err)
			}
		}
		x.agree()
	})
}

// TestManyLeaders cuts off leaders in turn while all nodes write: whatever was
// acknowledged is there, each name once, and all stores agree.
func TestManyLeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newTrio(t)
		defer x.close()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan map[string]string, 3)
		for i := range 3 {
			go func() {
				acked := map[string]string{}
				for k := 0; ctx.Err() == nil; k++ {
					id, name := fmt.Sprintf("%d-%d", i, k), fmt.Sprintf("n%d", k/2) // names collide on purpose
					if err := x.nodes[i].create(id, name); err == nil {
						acked[id] = name
					}
					time.Sleep(37 * time.Millisecond)
				}
				done <- acked
			}()
		}
		for range 6 {
			time.Sleep(3 * time.Second)
			l := x.leader(0, 1, 2)
			x.cut(l)
			time.Sleep(3 * time.Second)
			x.heal(l)
		}
		cancel()
		acked := map[string]string{}
		for range 3 {
			maps.Copy(acked, <-done)
		}
		got := x.agree()
		for id, name := range acked {
			if got[id] != name {
				t.Errorf("acknowledged service %s %s is lost", id, name)
			}
		}
		seen := map[string]string{}
		for id, name := range got {
			if other, twice := seen[name]; twice {
				t.Errorf("name %s twice: %s and %s", name, id, other)
			}
			seen[name] = id
		}
		t.Logf("%d acknowledged, %d stored", len(acked), len(got))
		if len(acked) < 50 {
			t.Errorf("only %d writes in 36 s", len(acked))
		}
		if err := x.nodes[x.leader(0, 1, 2)].Store().Update(func(tx store.Tx) error { return store.CreateService(tx, service("z", "z")) }); err != nil {
			t.Errorf("after all of it: %v", err)
		}
	})
}
