// SPDX-License-Identifier: BSD-2-Clause

package traffic

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/prometheus/client_golang/prometheus"

	"satld/redirect"
)

// Config of a Table.
type Config struct {
	// Redirector writes the packet filter; nil means that nobody does
	// (--redirect off), and every change counts as confirmed.
	Redirector Redirector
	// Subnets tells the networks to route out, at each pass; call Nudge when
	// they changed. nil is none.
	Subnets func() []redirect.Subnet
	// Known tells whether a service of that name (lower case) exists though
	// no member of it is here, and which networks it is in; optional.
	Known      func(service string) (networks []string, exists bool)
	Logger     *slog.Logger          // nil is slog.Default
	Registerer prometheus.Registerer // nil registers nothing

	// Settle is how long Run waits for Settled before it first writes: a
	// daemon that was restarted must not empty the pools that it left in
	// place before it has found its tasks again. 0 is DefaultSettle.
	Settle time.Duration
	// SettleRemote is how much longer Run waits for the first SetRemote, so that
	// the pools left in place do not lose the members of other nodes either. It
	// waits no longer than until a member of this node is to leave. 0 is not at
	// all.
	SettleRemote time.Duration
}

// DefaultSettle is within the second that a restarted daemon has to set pools
// right (DESIGN.md, section 5).
const DefaultSettle = time.Second

// record is a member and what only this package knows of it.
type record struct {
	Member
	withdrawn bool // by Withdraw, until a Put that serves
}

// starting tells that the member never served yet and is not on its way out.
func (r *record) starting() bool { return r.Process && !r.Serving && !r.Unhealthy && !r.withdrawn }

// Table is the members of this node. It implements Traffic and dns.Names.
type Table struct {
	cfg     Config
	log     *slog.Logger
	metrics metrics
	nudge   chan struct{} // holds one: the loop has something to look at
	settled chan struct{}
	told    chan struct{} // closed by the first SetRemote
	leaving chan struct{} // holds one: a member of this node is to leave
	// complete is closed when no more is to be heard of other nodes after a
	// start: a name that is not known by now does not exist.
	complete chan struct{}

	mu       sync.Mutex // guards what follows
	members  map[string]*record
	remote   map[string]*record // of other nodes; never one that is in members
	moved    chan struct{}      // closed and renewed when a member of this node changes
	gen      uint64             // counts changes
	applied  uint64             // the change up to which the packet filter is confirmed
	progress chan struct{}      // closed and renewed when applied, failure or stopped changes
	ended    []redirect.Flow    // flows of members that were removed, to cut
	failure  error              // of the last attempt
	since    time.Time          // of the first failure in a row
	settling bool
	knows    bool // told is closed
	stopped  bool
}

// New makes an empty Table. Changes can be made at once; they reach the packet
// filter when Run runs.
func New(cfg Config) *Table {
	cfg.Settle = cmp.Or(cfg.Settle, DefaultSettle)
	t := &Table{
		cfg: cfg, log: cfg.Logger, metrics: newMetrics(cfg.Registerer),
		nudge: make(chan struct{}, 1), settled: make(chan struct{}), told: make(chan struct{}), complete: make(chan struct{}), leaving: make(chan struct{}, 1),
		members: make(map[string]*record), progress: make(chan struct{}), moved: make(chan struct{}), settling: true,
	}
	if cfg.SettleRemote == 0 {
		close(t.complete)
	}
	if t.log == nil {
		t.log = slog.Default()
	}
	if t.cfg.Redirector == nil {
		t.cfg.Redirector = nobody{}
	}
	return t
}

// Settled tells that every task of an earlier life of the daemon was Put:
// the packet filter may be written from now on. Calling it again does nothing.
func (t *Table) Settled() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.settling {
		t.settling = false
		close(t.settled)
	}
}

// Nudge makes the loop look at Subnets again.
func (t *Table) Nudge() {
	select {
	case t.nudge <- struct{}{}:
	default:
	}
}

// Put implements Traffic. While the Table is settling it does not wait.
func (t *Table) Put(ctx context.Context, m Member) error {
	if err := m.Check(); err != nil {
		return err
	}
	m.Endpoints, m.Ports = slices.Clone(m.Endpoints), slices.Clone(m.Ports)
	t.mu.Lock()
	old := t.members[m.ContainerID]
	r := &record{Member: m, withdrawn: old != nil && old.withdrawn && !m.Serving}
	t.members[m.ContainerID] = r
	served := old != nil && old.serves()
	gen, wait := t.changed(), r.serves() && len(m.Ports) > 0 && !t.settling
	if served && !r.serves() {
		t.leaves()
	}
	t.mu.Unlock()
	if served != r.serves() {
		t.log.Info("traffic changed", "task_id", m.TaskID, "container", m.Name, "service", m.ServiceName, "serving", r.serves())
	}
	if !wait {
		return nil
	}
	if err := t.confirmed(ctx, gen); err != nil {
		return fmt.Errorf("send traffic to %s: %w", m.Name, err)
	}
	return nil
}

// Withdraw implements Traffic. A container that is not here is withdrawn.
func (t *Table) Withdraw(ctx context.Context, containerID string) error {
	t.mu.Lock()
	r := t.members[containerID]
	if r == nil {
		t.mu.Unlock()
		return nil
	}
	m, served := r.Member, r.serves()
	t.members[containerID] = &record{Member: m, withdrawn: true}
	t.members[containerID].Serving, t.members[containerID].Unhealthy = false, false
	gen := t.changed()
	t.leaves()
	t.mu.Unlock()
	if served {
		t.log.Info("traffic changed", "task_id", m.TaskID, "container", m.Name, "service", m.ServiceName, "serving", false)
	}
	if len(m.Ports) == 0 {
		return nil
	}
	if err := t.confirmed(ctx, gen); err != nil {
		return fmt.Errorf("withdraw %s from traffic: %w", m.Name, err)
	}
	return nil
}

// Remove implements Traffic. It returns when no pool has the member's address,
// which somebody else may get next; cutting its flows follows.
func (t *Table) Remove(ctx context.Context, containerID string) error {
	t.mu.Lock()
	r := t.members[containerID]
	if r == nil {
		t.mu.Unlock()
		return nil
	}
	delete(t.members, containerID)
	t.ended = append(t.ended, endedFlows(r.Member)...)
	gen := t.changed()
	t.leaves()
	t.mu.Unlock()
	if len(r.Ports) == 0 {
		return nil
	}
	if err := t.confirmed(ctx, gen); err != nil {
		return fmt.Errorf("remove %s from traffic: %w", r.Name, err)
	}
	return nil
}

// leaves ends the wait for SetRemote: traffic to a member that stops is worse
// than a pool without those of other nodes for a moment.
func (t *Table) leaves() {
	select {
	case t.leaving <- struct{}{}:
	default:
	}
}

// changed counts a change and wakes the loop; the caller holds the lock.
func (t *Table) changed() uint64 {
	t.gen++
	close(t.moved)
	t.moved = make(chan struct{})
	t.Nudge()
	return t.gen
}

// confirmed waits until the packet filter holds what the Table held at gen.
func (t *Table) confirmed(ctx context.Context, gen uint64) error {
	for {
		t.mu.Lock()
		done, stopped, progress, failure := t.applied >= gen, t.stopped, t.progress, t.failure
		t.mu.Unlock()
		switch {
		case done:
			return nil
		case stopped:
			return fmt.Errorf("the packet filter is not being written any more: %w", errdefs.ErrUnavailable)
		}
		select {
		case <-progress:
		case <-ctx.Done():
			if failure != nil {
				return fmt.Errorf("packet filter not confirmed: %w (it is tried again; last: %v)", ctx.Err(), failure)
			}
			return fmt.Errorf("packet filter not confirmed: %w", ctx.Err())
		}
	}
}

// SetRemote gives the members of other nodes, whole: they are in pools and
// names like this node's own. One that is also a member here (it moved) is not
// taken. It does not wait for the packet filter.
func (t *Table) SetRemote(members []Member) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.knows {
		t.knows = true
		close(t.told)
	}
	next := make(map[string]*record, len(members))
	same := true
	for _, m := range members {
		if m.Check() != nil || t.members[m.ContainerID] != nil {
			continue
		}
		old := t.remote[m.ContainerID]
		if old != nil && equal(old.Member, m) {
			next[m.ContainerID] = old
			continue
		}
		same = false
		next[m.ContainerID] = &record{Member: m, withdrawn: old != nil && (old.withdrawn || old.Serving) && !m.Serving}
	}
	for id, r := range t.remote {
		if next[id] == nil {
			same = false
			t.ended = append(t.ended, endedFlows(r.Member)...)
		}
	}
	if same {
		return
	}
	t.remote = next
	t.gen++
	t.Nudge()
}

// everyone is every member, this node's first.
func (t *Table) everyone() iter.Seq[*record] {
	return func(yield func(*record) bool) {
		for _, r := range t.members {
			if !yield(r) {
				return
			}
		}
		for id, r := range t.remote {
			if t.members[id] == nil && !yield(r) {
				return
			}
		}
	}
}

// equal compares what traffic is decided by.
func equal(a, b Member) bool {
	ae, be, ap, bp := a.Endpoints, b.Endpoints, a.Ports, b.Ports
	a.Endpoints, b.Endpoints, a.Ports, b.Ports = nil, nil, nil, nil
	return reflect.DeepEqual(a, b) && slices.Equal(ap, bp) && slices.EqualFunc(ae, be, func(x, y Endpoint) bool {
		return x.NetworkID == y.NetworkID && x.Addr == y.Addr && x.Nameless == y.Nameless && slices.Equal(x.Aliases, y.Aliases)
	})
}

// Own returns this node's members, with Serving as traffic sees it, and a
// channel that is closed when one of them changes.
func (t *Table) Own() ([]Member, <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.own(), t.moved
}

// Members returns every member, those of other nodes too, sorted by container ID.
func (t *Table) Members() []Member {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.snapshot()
}

func (t *Table) snapshot() []Member {
	var all []Member
	for r := range t.everyone() {
		all = append(all, r.Member)
	}
	return sorted(all)
}

func (t *Table) own() []Member {
	all := make([]Member, 0, len(t.members))
	for _, r := range t.members {
		all = append(all, r.Member)
	}
	return sorted(all)
}

func sorted(all []Member) []Member {
	slices.SortFunc(all, func(a, b Member) int { return strings.Compare(a.ContainerID, b.ContainerID) })
	return all
}

// Pools returns the pools as they should be now.
func (t *Table) Pools() []redirect.Pool { return Plan(t.Members(), nil).Pools }

// FailOpen returns the IDs of the services whose traffic goes to members that
// do not pass, because nobody does; sorted.
func (t *Table) FailOpen() []string {
	var ids []string
	for id := range failsOpen(slices.Values(t.Members())) {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// Health is nil while the packet filter holds what it should, and else says
// since when it does not and why.
func (t *Table) Health() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.failure == nil {
		return nil
	}
	return fmt.Errorf("packet filter not as it should be since %s: %w", t.since.UTC().Format(time.RFC3339), t.failure)
}

// Clear takes everything of ours out of the packet filter; for the uninstall,
// when Run has ended. Stopping the daemon does not: clients are to notice nothing.
func (t *Table) Clear(ctx context.Context) error { return t.cfg.Redirector.Clear(ctx) }

// nobody is the Redirector of --redirect off.
type nobody struct{}

func (nobody) Apply(context.Context, redirect.Rules) error { return nil }
func (nobody) Audit(context.Context) (bool, error)         { return true, nil }
func (nobody) Cut(context.Context, []redirect.Flow) error  { return nil }
func (nobody) Clear(context.Context) error                 { return nil }
