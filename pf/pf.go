// SPDX-License-Identifier: BSD-2-Clause

// Package pf writes redirect pools, outbound NAT and the isolation of networks
// into pf(4), in anchors of its own below satl/. It decides nothing about who is
// in a pool, never loads the main ruleset and never edits a file: an operator's
// pf.conf must have the anchor lines, and without them New refuses and says which.
//
// A published port is one rule whose text does not depend on the members, and
// tables that hold them; a change of members replaces a table's addresses in one
// step. pfctl(8) checks a text whole before it loads it, and loads it in one
// transaction, so no text is checked in a call before.
//
// pf never sees what the host sends to itself, so published ports are served to
// the host by package forward.
package pf

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"satld/platform/command"
	"satld/redirect"
)

// Timeout bounds one call of pfctl(8), but for the second that its output may
// lag behind its end. Where calls run out of it the next ones are given more, up
// to mostTimeout.
const (
	Timeout     = 3 * time.Second
	mostTimeout = 24 * time.Second
)

// Config of a Redirector.
type Config struct {
	// Suffix tells the anchors of several daemons on a host apart: satl/rdr
	// is satl/rdr_SUFFIX with one.
	Suffix string
	// Group is the interface group of our bridges and their ports.
	Group string
	// Uplinks tells the interfaces that lead out, sorted; asked at each audit.
	Uplinks func(ctx context.Context) ([]string, error)
	// Addrs tells the host's own addresses; nil asks the system.
	Addrs func() ([]netip.Addr, error)
	// CheckOnly has rules checked by pfctl -n and nothing loaded.
	CheckOnly bool
	Logger    *slog.Logger   // nil is slog.Default
	Run       command.Runner // nil is command.Run
}

// Redirector writes the two anchors. It implements traffic.Redirector.
type Redirector struct {
	cfg     Config
	log     *slog.Logger
	anchors anchors
	run     command.Runner

	mu      sync.Mutex // one pass at a time, and guards the rest
	at      place      // as of the last look
	written *state     // what the anchors hold; nil is unknown
	subnets []redirect.Subnet
	listed  string // the anchors' rules as pfctl printed them after they were loaded
	hooked  error  // what lookHooks said last
}

// New makes a Redirector after looking that the main ruleset calls our anchors.
// Nothing is written before the first Apply.
func New(ctx context.Context, cfg Config) (*Redirector, error) {
	r := &Redirector{cfg: cfg, log: cfg.Logger, run: cfg.Run, anchors: anchors{nat: "satl/nat", rdr: "satl/rdr"}}
	if r.log == nil {
		r.log = slog.Default()
	}
	if r.run == nil {
		r.run = command.Run
	}
	patience := &command.Patience{Least: Timeout, Most: mostTimeout}
	r.run = patience.Runner(r.run)
	if r.cfg.Addrs == nil {
		r.cfg.Addrs = HostAddrs
	}
	if cfg.Suffix != "" {
		r.anchors.nat, r.anchors.rdr = r.anchors.nat+"_"+cfg.Suffix, r.anchors.rdr+"_"+cfg.Suffix
	}
	err := r.lookHooks(ctx)
	if cfg.CheckOnly && errors.As(err, new(errNoHooks)) {
		r.hooked, err = err, nil // Warnings says so
	}
	if err != nil {
		return nil, err
	}
	if r.at, err = r.look(ctx); err != nil {
		return nil, err
	}
	return r, nil
}

func (r *Redirector) pfctl(ctx context.Context, c call) (string, error) {
	return r.run(ctx, command.Command{Argv: append([]string{"pfctl"}, c.args...), Stdin: c.stdin})
}

// Apply makes the anchors hold exactly rules. Applying what is there already
// writes it all again.
func (r *Redirector) Apply(ctx context.Context, rules redirect.Rules) error {
	if err := check(rules); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := state{rules.Normalise(), r.at}
	if r.cfg.CheckOnly {
		return r.check(ctx, now)
	}
	old := r.written
	if old != nil && old.rules.Equal(now.rules) {
		old = nil // the whole is to be asserted again
	}
	return r.write(ctx, old, now)
}

// write brings the anchors from old (nil: unknown) to now.
func (r *Redirector) write(ctx context.Context, old *state, now state) error {
	r.written, r.subnets = nil, now.rules.Subnets // unknown until all of it worked
	loaded := false
	for _, c := range r.anchors.calls(old, now) {
		var err error
		if slices.Contains(c.args, "-f") {
			loaded, err = true, r.load(ctx, c)
		} else {
			_, err = r.pfctl(ctx, c)
		}
		if err != nil {
			return fmt.Errorf("write pf anchors: %w", err)
		}
	}
	if loaded {
		if err := r.killLeftovers(ctx, now.rules); err != nil {
			return err
		}
		listed, err := r.list(ctx)
		if err != nil {
			return err
		}
		r.listed = listed
	}
	r.written = &now
	return nil
}

// load loads an anchor, past two traps (seen on FreeBSD 14):
//
//   - pfctl lists the interfaces and then asks each for its groups; one that
//     went meanwhile, as containers come and go, makes it give up. It is tried
//     again at once.
//   - A pfctl that ends in the middle of a load, by that or killed, leaves the
//     anchor's Ethernet rules in a transaction that is never closed; every load
//     of the whole anchor fails from then on (EBUSY of DIOCXBEGIN). Naming what
//     to load leaves them out: translation, filter and tables, still in one
//     transaction.
func (r *Redirector) load(ctx context.Context, c call) (err error) {
	for range loadAttempts {
		if _, err = r.pfctl(ctx, c); command.Says(err, "pfctl_rules") || command.Says(err, "busy") {
			parts := slices.Concat(c.args[:2], []string{"-N", "-R", "-T", "load"}, c.args[2:])
			_, err = r.pfctl(ctx, call{args: parts, stdin: c.stdin})
		}
		if !command.Says(err, "Device not configured") {
			break
		}
	}
	return err
}

const loadAttempts = 3

func (r *Redirector) check(ctx context.Context, now state) error {
	for _, c := range r.anchors.checks(now) {
		if _, err := r.pfctl(ctx, c); err != nil {
			return fmt.Errorf("check pf rules: %w", err)
		}
	}
	return nil
}

// killLeftovers removes tables of pools that are no more.
func (r *Redirector) killLeftovers(ctx context.Context, now redirect.Rules) error {
	listing, err := r.pfctl(ctx, call{args: []string{"-a", r.anchors.rdr, "-s", "Tables"}})
	if err != nil {
		return fmt.Errorf("list pf tables: %w", err)
	}
	for _, name := range leftovers(listing, now) {
		if _, err := r.pfctl(ctx, call{args: []string{"-a", r.anchors.rdr, "-t", name, "-T", "kill"}}); err != nil {
			return fmt.Errorf("remove pf table %s: %w", name, err)
		}
	}
	return nil
}

// list is what the anchors hold, as pfctl words it.
func (r *Redirector) list(ctx context.Context) (string, error) {
	var all strings.Builder
	for _, args := range [][]string{{r.anchors.nat, "nat"}, {r.anchors.rdr, "nat"}, {r.anchors.rdr, "rules"}} {
		out, err := r.pfctl(ctx, call{args: []string{"-a", args[0], "-P", "-s", args[1]}})
		if err != nil && !command.Says(err, "does not exist") { // an anchor that is empty
			return "", fmt.Errorf("list pf anchors: %w", err)
		}
		all.WriteString(out)
	}
	return all.String(), nil
}

// Audit tells whether the anchors are as the last Apply left them. It also has
// them follow the host's interfaces, and logs when the main ruleset has stopped,
// or begun again, to call them. It only looks until ctx is done; what it then
// has to write it writes to the end, as a pfctl(8) that is killed at that leaves
// more to mend (see load).
func (r *Redirector) Audit(ctx context.Context) (same bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cfg.CheckOnly || r.written == nil {
		return true, nil
	}
	if err := r.auditHooks(ctx); err != nil {
		return false, err
	}
	at, err := r.look(ctx)
	if err != nil {
		return false, err // and what is known stays
	}
	r.at = at
	if same, err = r.holds(ctx); !same {
		if ctx.Err() == nil { // else it is not known
			r.written = nil // so that the next Apply writes it whole
		}
		return false, err
	}
	if !r.at.equal(r.written.at) {
		r.log.Info("interfaces of the host changed; pf's rules follow", "uplinks", strings.Join(r.at.uplinks, " "), "filter_local", r.at.local)
		if err := r.write(context.WithoutCancel(ctx), r.written, state{r.written.rules, r.at}); err != nil {
			return false, err
		}
	}
	return true, nil
}

func (r *Redirector) auditHooks(ctx context.Context) error {
	err := r.lookHooks(ctx)
	switch {
	case err != nil && !errors.As(err, new(errNoHooks)):
		return err
	case err != nil && (r.hooked == nil || r.hooked.Error() != err.Error()):
		r.log.Error("published ports are not redirected", "err", err)
	case err == nil && r.hooked != nil:
		r.log.Info("pf calls satld's anchors again")
	}
	r.hooked = err
	return nil
}

// holds compares the anchors' rules and tables with what was written.
func (r *Redirector) holds(ctx context.Context) (bool, error) {
	listed, err := r.list(ctx)
	if err != nil || listed != r.listed {
		return false, err
	}
	for _, t := range tablesOf(r.written.rules) {
		out, err := r.pfctl(ctx, call{args: []string{"-a", r.anchors.rdr, "-t", t.name, "-T", "show"}})
		if failed := new(command.Error); errors.As(err, &failed) && failed.Status > 0 {
			return false, nil // it is not there; versions word that differently
		}
		if err != nil {
			return false, fmt.Errorf("list pf table %s: %w", t.name, err)
		}
		has := slices.Sorted(slices.Values(strings.Fields(out)))
		if !slices.Equal(has, slices.Sorted(slices.Values(t.holds))) {
			return false, nil
		}
	}
	return true, nil
}

// Clear empties both anchors.
func (r *Redirector) Clear(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cfg.CheckOnly {
		return nil
	}
	r.written = nil
	for _, a := range []string{r.anchors.rdr, r.anchors.nat} {
		_, err := r.pfctl(ctx, call{args: []string{"-a", a, "-F", "all"}})
		if command.Says(err, "busy") { // see load
			err = nil
			for _, part := range []string{"nat", "rules", "Tables"} {
				_, partErr := r.pfctl(ctx, call{args: []string{"-a", a, "-F", part}})
				err = errors.Join(err, partErr)
			}
		}
		if err != nil {
			return fmt.Errorf("clear pf anchor %s: %w", a, err)
		}
	}
	return nil
}
