// SPDX-License-Identifier: BSD-2-Clause

package mesh

import (
	"context"
	"fmt"
	"log/slog"
	"reflect"
	"sync"
	"time"

	"satld/traffic"
)

// Entry is a task or node of the cluster as a worker has to know it: who may
// be reached, and behind which node the address is.
type Entry struct {
	NodeID string
	Host   string         // the node's address, without a port
	Member traffic.Member // as the store has it, see Task; nobody has judged it
}

// Page is the directory as of a version: what a manager's store has, and what
// the nodes said to that manager. Versions are those of one manager's one run,
// and told apart from all others'.
type Page struct {
	Version string
	Nodes   []Node
	Entries []Entry
}

// View is what a worker knows by the page: of the other nodes those that it
// may have to send to, and their tasks. self is the worker's own ID.
func (p Page) View(self string) View {
	var v View
	runs := make(map[string]bool)
	for _, e := range p.Entries {
		if e.NodeID != self && e.Member.TaskID != "" {
			v.Tasks = append(v.Tasks, Task{e.NodeID, e.Member})
			runs[e.NodeID] = true
		}
	}
	for _, n := range p.Nodes {
		if runs[n.ID] {
			v.Nodes = append(v.Nodes, n)
		}
	}
	return v
}

// Directory is what a manager hands to workers. A worker that knows a version
// waits until there is a newer one.
type Directory struct {
	Boot string // random, anew with each run of the daemon

	mu     sync.Mutex // one Set at a time
	n      uint64
	latest Latest // Version "" before the first Set
}

// DirectoryWait is the longest that Read keeps a worker waiting.
const DirectoryWait = 20 * time.Second

// Set replaces the directory.
func (d *Directory) Set(nodes []Node, entries []Entry) {
	d.mu.Lock()
	defer d.mu.Unlock()
	page, _ := d.latest.Get()
	if d.n > 0 && reflect.DeepEqual(entries, page.Entries) && reflect.DeepEqual(nodes, page.Nodes) {
		return
	}
	d.n++
	d.latest.Set(Page{fmt.Sprintf("%s/%d", d.Boot, d.n), nodes, entries})
}

// Read returns the directory once it has another version than the one known,
// "" being none; without a change within DirectoryWait it returns it all the same.
func (d *Directory) Read(ctx context.Context, known string) (Page, error) {
	limit := time.NewTimer(DirectoryWait)
	defer limit.Stop()
	for {
		page, changed := d.latest.Get()
		if page.Version != "" && page.Version != known {
			return page, nil
		}
		select {
		case <-changed:
		case <-limit.C:
			return page, nil
		case <-ctx.Done():
			return Page{}, ctx.Err()
		}
	}
}

// Latest keeps the newest page. It may be used from several goroutines.
type Latest struct {
	mu      sync.Mutex
	page    Page
	changed chan struct{} // nil until somebody waits
}

// Set replaces the page.
func (l *Latest) Set(p Page) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.page = p
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
}

// Get gives the page, and a channel closed at the next Set.
func (l *Latest) Get() (Page, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.changed == nil {
		l.changed = make(chan struct{})
	}
	return l.page, l.changed
}

// Reader follows the directory of whatever manager answers.
type Reader struct {
	// Ask asks any manager for its directory, as Directory.Read answers it.
	Ask func(ctx context.Context, known string) (Page, error)
	// Page is given the directory, whole, at each change.
	Page func(page Page)
	Log  *slog.Logger
}

// readRetry is the wait after a manager that did not answer.
const readRetry = 500 * time.Millisecond

// Run follows until ctx is done. What was read last stays while no manager
// answers.
func (r *Reader) Run(ctx context.Context) error {
	version := ""
	for ctx.Err() == nil {
		bounded, cancel := context.WithTimeout(ctx, DirectoryWait+5*time.Second)
		page, err := r.Ask(bounded, version)
		cancel()
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			r.Log.Debug("no manager tells who serves elsewhere", "error", err)
			select {
			case <-ctx.Done():
			case <-time.After(readRetry):
			}
		case page.Version != version:
			version = page.Version
			r.Page(page)
		}
	}
	return nil
}
