// SPDX-License-Identifier: BSD-2-Clause

// Package nft writes redirect pools and the routing of container networks into
// nftables, in one table of its own. It decides nothing about who is in a pool.
//
// It lists and writes its own table only; every write is one transaction of
// nft(8), so there is no moment without rules. Conntrack entries are cut by
// netlink. IPv4 only.
//
// What a host's own rules drop stays dropped: in nftables an accept in one
// table does not overrule a drop in another. Where another program's forward
// chain has the policy drop (dockerd sets it), tasks have no way out and other
// hosts no way in until the operator lets our bridges pass; Warnings says so
// with the commands. We never write there ourselves.
//
// Networks marked internal have no way out and publish to the host alone.
package nft

import (
	"context"
	"fmt"
	"log/slog"
	"os/exec"
	"regexp"
	"sync"
	"time"

	"satld/platform/command"
	"satld/redirect"
)

// Timeout bounds one call of nft(8), but for what it takes to kill it, or one
// pass over the conntrack table. Where calls of nft(8) run out of it the next
// ones are given more, up to mostTimeout.
const (
	Timeout     = 2 * time.Second
	mostTimeout = 16 * time.Second
)

// Config of a Redirector.
type Config struct {
	// Table is the name of our table, one for each daemon on a host.
	Table  string
	Logger *slog.Logger // nil is slog.Default
}

// Redirector writes one table. It implements traffic.Redirector.
type Redirector struct {
	table string
	log   *slog.Logger
	run   command.Runner

	mu      sync.Mutex // one nft at a time, and guards the rest
	written []rule     // what the table holds since the last Apply; nil before
	subnets []redirect.Subnet
}

var tableName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_]{0,30}$`)

// New makes a Redirector; nothing is written before the first Apply. It fails
// when nft(8) is not installed.
func New(cfg Config) (*Redirector, error) {
	if !tableName.MatchString(cfg.Table) {
		return nil, fmt.Errorf("nft table name %q: letters, digits and '_', at most 31", cfg.Table)
	}
	if _, err := exec.LookPath("nft"); err != nil {
		return nil, fmt.Errorf("nft is not installed (Debian: apt install nftables), and published ports and routing need it: %w", err)
	}
	log := cfg.Logger
	if log == nil {
		log = slog.Default()
	}
	patience := &command.Patience{Least: Timeout, Most: mostTimeout}
	return &Redirector{table: cfg.Table, log: log, run: patience.Runner(command.Run)}, nil
}

// nft runs nft(8) with the arguments, and text as its input.
func (r *Redirector) nft(ctx context.Context, text string, args ...string) (stdout string, err error) {
	return r.run(ctx, command.Command{Argv: append([]string{"nft"}, args...), Stdin: text})
}

// Apply makes the table hold exactly rules. It always writes, also what is
// there already: that is how the whole is asserted again.
func (r *Redirector) Apply(ctx context.Context, rules redirect.Rules) error {
	if err := check(rules); err != nil {
		return err
	}
	want := plan(rules)
	r.mu.Lock()
	defer r.mu.Unlock()
	_, err := r.nft(ctx, script(r.table, want), "-f", "-")
	if command.Says(err, "File exists") || command.Says(err, "Operation not supported") {
		// A chain of ours with another hook or priority: an older version's, or
		// somebody's hand (which of the two words it is depends on the kernel).
		// Make the table anew, still in one transaction; but a packet that is
		// under way then may meet neither the old chains nor the new ones.
		r.log.Warn("the nft table is made anew: it has chains of ours that are not as they should be", "table", r.table, "err", err)
		_, err = r.nft(ctx, removal(r.table)+script(r.table, want), "-f", "-")
	}
	if err != nil {
		return fmt.Errorf("write nft table %s: %w", r.table, err)
	}
	r.written, r.subnets = want, rules.Subnets
	return nil
}

// Audit tells whether the table holds what the last Apply wrote, rule by rule
// and in order. Before the first Apply there is nothing to miss.
func (r *Redirector) Audit(ctx context.Context) (same bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.written == nil {
		return true, nil
	}
	listing, err := r.nft(ctx, "", "-j", "list", "table", "ip", r.table)
	if command.Says(err, "No such file or directory") {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("list nft table %s: %w", r.table, err)
	}
	return holds([]byte(listing), r.written)
}

// Clear deletes the table.
func (r *Redirector) Clear(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, err := r.nft(ctx, removal(r.table), "-f", "-"); err != nil {
		return fmt.Errorf("delete nft table %s: %w", r.table, err)
	}
	r.written, r.subnets = nil, nil
	return nil
}
