// SPDX-License-Identifier: BSD-2-Clause

package cluster

import (
	"context"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/docker/go-events"
	"github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/manager/state"
	"github.com/moby/swarmkit/v2/manager/state/store"
	"golang.org/x/sync/errgroup"

	"satld/executor"
	"satld/mesh"
	"satld/traffic"
)

// Traffic is this node's table of who may be reached; *traffic.Table is one.
type Traffic interface {
	Own() ([]traffic.Member, <-chan struct{})
	SetRemote(members []traffic.Member)
}

// keepMesh tells other nodes who serves here and finds out who serves there,
// until ctx is done.
func (n *member) keepMesh(ctx context.Context) error {
	if n.cfg.Traffic == nil {
		<-ctx.Done()
		return nil
	}
	g, ctx := errgroup.WithContext(ctx)
	teller := &mesh.Teller{
		Life: n.cfg.life, Own: n.cfg.Traffic.Own, Log: n.log, Managers: n.otherManagers,
		Tell: func(ctx context.Context, addr string, r mesh.Report) error { return n.ask(ctx, addr, "tell", r, nil) },
	}
	g.Go(func() error { return teller.Run(ctx) })
	if n.raft == nil {
		g.Go(func() error { return n.followDirectory(ctx) })
		return g.Wait()
	}
	// Not out of the store as it is after a start, which knows of no other node
	// and would take all of them out of traffic.
	select {
	case <-n.loaded:
	case <-ctx.Done():
		return g.Wait()
	}
	watch := newStoreWatch(n.store, n.cfg.Traffic.Own)
	defer watch.close()
	var seen elsewhere // between View and Members, which one goroutine calls in turn
	n.observer.View = func() (mesh.View, <-chan struct{}) {
		changed := watch.changed()
		seen = n.elsewhere()
		n.conns.keep(keysOf(seen.view), true)
		return seen.view, changed
	}
	n.observer.Members = func(members []traffic.Member, said map[string]mesh.Report) {
		n.cfg.Traffic.SetRemote(members)
		said[n.id.nodeID()], _ = n.cfg.life.Report(n.cfg.Traffic.Own)
		nodes, entries := seen.page(said)
		n.directory.Set(nodes, entries)
		n.reach(entries)
	}
	g.Go(func() error { return watch.run(ctx) })
	g.Go(func() error { return n.observer.Run(ctx) })
	return g.Wait()
}

// newObserver is this node's view of the others.
func (n *member) newObserver() *mesh.Observer {
	return &mesh.Observer{
		Settings: n.cfg.NodeHealth, Log: n.log,
		Ask: func(ctx context.Context, node mesh.Node) (r mesh.Report, err error) {
			return r, n.askNode(ctx, node.ID, node.Addr, "serving", struct{}{}, &r)
		},
	}
}

// followDirectory is a worker's way to know of the other nodes, which it then
// asks for itself, until ctx is done. What they say to a manager comes with the
// directory, within moments.
func (n *member) followDirectory(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	var latest mesh.Latest
	n.observer.View = func() (mesh.View, <-chan struct{}) {
		page, changed := latest.Get()
		v := page.View(n.id.nodeID())
		n.conns.keep(keysOf(v), true)
		return v, changed
	}
	n.observer.Members = func(members []traffic.Member, _ map[string]mesh.Report) { n.cfg.Traffic.SetRemote(members) }
	// Not before there is a directory: see keepMesh.
	observe := sync.OnceFunc(func() { g.Go(func() error { return n.observer.Run(ctx) }) })
	reader := &mesh.Reader{Log: n.log,
		Ask: func(ctx context.Context, known string) (page mesh.Page, err error) {
			peer, err := n.broker.Remotes().Select()
			if err != nil {
				return page, err
			}
			return page, n.ask(ctx, peer.Addr, "directory", known, &page)
		},
		Page: func(page mesh.Page) {
			latest.Set(page)
			observe()
			n.reach(page.Entries)
		},
	}
	g.Go(func() error { return reader.Run(ctx) })
	return g.Wait()
}

// reach hands on which addresses of overlay networks are on which other node.
func (n *member) reach(entries []mesh.Entry) {
	if n.cfg.Reach == nil {
		return
	}
	host, _, err := net.SplitHostPort(n.advertise)
	if err != nil {
		return
	}
	n.cfg.Reach(host, slices.DeleteFunc(slices.Clone(entries), func(e mesh.Entry) bool { return e.NodeID == n.id.nodeID() }))
}

// otherManagers are the addresses of the managers besides this node.
func (n *member) otherManagers() []string {
	var out []string
	for _, p := range n.known() {
		out = append(out, p.Addr)
	}
	slices.Sort(out)
	return out
}

// elsewhere is what a manager's store has of nodes and their tasks.
type elsewhere struct {
	view  mesh.View
	here  mesh.Node    // this node, as others ask it
	own   []mesh.Entry // its tasks
	nodes []mesh.Entry
	hosts map[string]string // of nodes, by ID
}

func (n *member) elsewhere() elsewhere {
	e, self := elsewhere{hosts: map[string]string{}}, n.id.nodeID()
	var nodes []*api.Node
	var tasks []*api.Task
	var err error
	n.store.View(func(tx store.ReadTx) {
		if nodes, err = store.FindNodes(tx, store.All); err == nil {
			tasks, err = store.FindTasks(tx, store.All)
		}
	})
	if err != nil { // of unknown selectors only, and All is known
		return e
	}
	unready := map[string]bool{} // nodes that an operator took out of traffic
	for _, node := range nodes {
		unready[node.ID] = !Ready(node.Spec.Annotations)
		addr := addrOf(node)
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			continue // it has not described itself yet
		}
		e.hosts[node.ID] = host
		e.nodes = append(e.nodes, nodeEntry(node, host))
		down := node.Status.State == api.NodeStatus_DOWN || node.Status.State == api.NodeStatus_DISCONNECTED
		if other := (mesh.Node{ID: node.ID, Addr: addr, Down: down}); node.ID == self {
			e.here = other
		} else {
			e.view.Nodes = append(e.view.Nodes, other)
		}
	}
	for _, t := range tasks {
		if e.hosts[t.NodeID] == "" || t.Status.State > api.TaskStateRunning || t.Status.State < api.TaskStateAssigned {
			continue
		}
		m, ok := executor.RemoteMember(t)
		if !ok {
			continue
		}
		// An operator's word is no observation: it needs nobody to be asked.
		m.Serving = m.Serving && Ready(t.Annotations) && !unready[t.NodeID]
		if t.NodeID == self {
			e.own = append(e.own, mesh.Entry{NodeID: self, Host: e.hosts[self], Member: m})
		} else {
			e.view.Tasks = append(e.view.Tasks, mesh.Task{NodeID: t.NodeID, Member: m})
		}
	}
	return e
}

// keysOf are the nodes of a view as conns knows them.
func keysOf(v mesh.View) map[string]bool {
	keys := make(map[string]bool, len(v.Nodes))
	for _, node := range v.Nodes {
		keys[node.ID+"@"+node.Addr] = true
	}
	return keys
}

// page is the directory: all nodes, with what they said last, and all tasks.
func (e elsewhere) page(said map[string]mesh.Report) ([]mesh.Node, []mesh.Entry) {
	nodes, entries := slices.Clone(e.view.Nodes), slices.Concat(e.nodes, e.own)
	if e.here.ID != "" {
		nodes = append(nodes, e.here)
	}
	for i := range nodes {
		nodes[i].Said = said[nodes[i].ID]
	}
	for _, t := range e.view.Tasks {
		entries = append(entries, mesh.Entry{NodeID: t.NodeID, Host: e.hosts[t.NodeID], Member: t.Member})
	}
	slices.SortFunc(entries, func(a, b mesh.Entry) int { return strings.Compare(a.Member.ContainerID, b.Member.ContainerID) })
	return nodes, entries
}

// nodeEntry is a node's own addresses in overlay networks, which answers to
// redirected traffic go to.
func nodeEntry(node *api.Node, host string) mesh.Entry {
	e := mesh.Entry{NodeID: node.ID, Host: host, Member: traffic.Member{ContainerID: "node." + node.ID}}
	for _, at := range node.Attachments {
		if p, ok := executor.AttachedAt(at); ok && at.Network != nil {
			e.Member.Endpoints = append(e.Member.Endpoints, traffic.Endpoint{NetworkID: at.Network.ID, Addr: p.Addr(), Nameless: true})
		}
	}
	return e
}

// storeWatch turns changes of the store, and of this node's own table, into
// channels that close.
type storeWatch struct {
	events chan events.Event
	cancel func()
	own    func() ([]traffic.Member, <-chan struct{})

	mu   sync.Mutex
	next chan struct{}
}

// watchPace is the least time between two looks at a store that changes all
// the time: a task's way into traffic may take 250 ms.
const watchPace = 20 * time.Millisecond

func newStoreWatch(s *store.MemoryStore, own func() ([]traffic.Member, <-chan struct{})) *storeWatch {
	w := &storeWatch{own: own, next: make(chan struct{})}
	w.events, w.cancel = state.Watch(s.WatchQueue(),
		api.EventCreateTask{}, api.EventUpdateTask{}, api.EventDeleteTask{},
		api.EventCreateNode{}, api.EventUpdateNode{}, api.EventDeleteNode{})
	return w
}

func (w *storeWatch) close() { w.cancel() }

// changed is closed after the next change.
func (w *storeWatch) changed() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.next
}

func (w *storeWatch) run(ctx context.Context) error {
	for {
		_, moved := w.own()
		select {
		case <-ctx.Done():
			return nil
		case <-w.events:
			drain(w.events)
		case <-moved:
		}
		w.mu.Lock()
		close(w.next)
		w.next = make(chan struct{})
		w.mu.Unlock()
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(watchPace):
		}
	}
}
