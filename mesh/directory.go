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
	Host   string // the node's address, without a port
	Member traffic.Member
}

// Page is the directory as of a version. Versions are those of one manager's
// one run, and told apart from all others'.
type Page struct {
	Version string
	Entries []Entry
}

// Directory is what a manager hands to workers. A worker that knows a version
// waits until there is a newer one.
type Directory struct {
	Boot string // random, anew with each run of the daemon

	mu      sync.Mutex
	n       uint64
	page    Page // Version "" before the first Set
	changed chan struct{}
}

// DirectoryWait is the longest that Read keeps a worker waiting.
const DirectoryWait = 20 * time.Second

// Set replaces the directory.
func (d *Directory) Set(entries []Entry) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.n > 0 && reflect.DeepEqual(entries, d.page.Entries) {
		return
	}
	d.n++
	d.page = Page{fmt.Sprintf("%s/%d", d.Boot, d.n), entries}
	if d.changed != nil {
		close(d.changed)
	}
	d.changed = make(chan struct{})
}

// Read returns the directory once it has another version than the one known,
// "" being none; without a change within DirectoryWait it returns it all the same.
func (d *Directory) Read(ctx context.Context, known string) (Page, error) {
	limit := time.NewTimer(DirectoryWait)
	defer limit.Stop()
	for {
		d.mu.Lock()
		if d.changed == nil {
			d.changed = make(chan struct{})
		}
		page, changed := d.page, d.changed
		d.mu.Unlock()
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

// Reader follows the directory of whatever manager answers.
type Reader struct {
	// Ask asks any manager for its directory, as Directory.Read answers it.
	Ask func(ctx context.Context, known string) (Page, error)
	// Entries is given the directory, whole, at each change.
	Entries func(entries []Entry)
	Log     *slog.Logger
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
			r.Entries(page.Entries)
		}
	}
	return nil
}
