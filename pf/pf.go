// SPDX-License-Identifier: BSD-2-Clause

// Package pf writes redirect pools and outbound NAT into pf(4), in anchors of
// its own below satl/. It decides nothing about who is in a pool, never loads
// the main ruleset and never edits a file: an operator's pf.conf must have the
// anchor lines, and without them New refuses and says which.
//
// A published port is one table and one rule whose text does not depend on the
// members; a change of members replaces the table's addresses in one step.
//
// The texts and command lists are pure and tested on every system. Running them
// on a FreeBSD host is unverified so far.
package pf

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"satld/redirect"
)

// Timeout bounds one call of pfctl(8).
const Timeout = 2 * time.Second

// Config of a Redirector.
type Config struct {
	// Suffix tells the anchors of several daemons on a host apart: satl/rdr
	// is satl/rdr_SUFFIX with one.
	Suffix string
	// Egress is the interface that leads out; "" is that of the default route.
	Egress string
}

// Redirector writes the two anchors. It implements traffic.Redirector.
type Redirector struct {
	anchors anchors
	run     runner

	mu      sync.Mutex
	written *redirect.Rules
	listed  string // the rdr anchor's rules as pfctl printed them after they were loaded
}

// runner is the one way to an external command.
type runner func(ctx context.Context, stdin string, argv ...string) (string, error)

func runCommand(ctx context.Context, stdin string, argv ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stdin = strings.NewReader(stdin)
	cmd.WaitDelay = 100 * time.Millisecond
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), errors.Join(ctx.Err(), err), strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}

// New makes a Redirector after looking that the main ruleset calls our anchors.
func New(ctx context.Context, cfg Config) (*Redirector, error) { return newWith(ctx, cfg, runCommand) }

func newWith(ctx context.Context, cfg Config, run runner) (*Redirector, error) {
	r := &Redirector{run: run, anchors: anchors{nat: "satl/nat", rdr: "satl/rdr", egress: cfg.Egress}}
	if cfg.Suffix != "" {
		r.anchors.nat, r.anchors.rdr = r.anchors.nat+"_"+cfg.Suffix, r.anchors.rdr+"_"+cfg.Suffix
	}
	if r.anchors.egress == "" {
		out, err := run(ctx, "", "route", "-n", "get", "default")
		if err != nil {
			return nil, fmt.Errorf("find the interface that leads out: %w", err)
		}
		var ok bool
		if r.anchors.egress, ok = egressOf(out); !ok {
			return nil, fmt.Errorf("no default route, so no interface to route containers out of")
		}
	}
	nat, err := run(ctx, "", "pfctl", "-s", "nat")
	if err != nil {
		return nil, fmt.Errorf("read pf's rules (is pf loaded and enabled?): %w", err)
	}
	rules, err := run(ctx, "", "pfctl", "-s", "rules")
	if err != nil {
		return nil, fmt.Errorf("read pf's rules: %w", err)
	}
	if missing := missingHooks(nat, rules); len(missing) > 0 {
		return nil, fmt.Errorf("pf does not call our anchors: add to /etc/pf.conf, translation before filter, and reload it: %s", strings.Join(missing, "; "))
	}
	return r, nil
}

// Apply makes the anchors hold exactly rules. Applying what is there already
// writes it all again.
func (r *Redirector) Apply(ctx context.Context, rules redirect.Rules) error {
	if err := check(rules); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	force := r.written == nil || r.written.Normalise().Equal(rules.Normalise())
	old := r.written
	r.written = nil // unknown until all of it worked
	for _, c := range commands(r.anchors, old, rules, force) {
		if _, err := r.run(ctx, c.stdin, append([]string{"pfctl"}, c.args...)...); err != nil {
			return fmt.Errorf("write pf anchors: %w", err)
		}
	}
	listed, err := r.list(ctx)
	if err != nil {
		return err
	}
	r.written, r.listed = &rules, listed
	return nil
}

func (r *Redirector) list(ctx context.Context) (string, error) {
	var all strings.Builder
	for _, args := range [][]string{{r.anchors.nat, "nat"}, {r.anchors.rdr, "nat"}, {r.anchors.rdr, "rules"}} {
		out, err := r.run(ctx, "", "pfctl", "-a", args[0], "-P", "-s", args[1])
		if err != nil {
			return "", fmt.Errorf("list pf anchors: %w", err)
		}
		all.WriteString(out)
	}
	return all.String(), nil
}

// Audit tells whether rules and tables are as the last Apply left them.
func (r *Redirector) Audit(ctx context.Context) (same bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.written == nil {
		return true, nil
	}
	listed, err := r.list(ctx)
	if err != nil || listed != r.listed {
		return false, err
	}
	for _, p := range poolsOf(*r.written) {
		if p.target == 0 {
			continue
		}
		out, err := r.run(ctx, "", "pfctl", "-a", r.anchors.rdr, "-t", p.table(), "-T", "show")
		if err != nil {
			return false, fmt.Errorf("list pf table: %w", err)
		}
		has, want := strings.Fields(out), strings.Fields(join(p.addrs, " "))
		slices.Sort(has)
		slices.Sort(want)
		if !slices.Equal(has, want) {
			return false, nil
		}
	}
	return true, nil
}

// Cut kills the states that the flows name, one by one by their IDs.
func (r *Redirector) Cut(ctx context.Context, flows []redirect.Flow) error {
	if len(flows) == 0 {
		return nil
	}
	out, err := r.run(ctx, "", "pfctl", "-ss", "-vv")
	if err != nil {
		return fmt.Errorf("list pf states: %w", err)
	}
	r.mu.Lock()
	var subnets []redirect.Subnet
	if r.written != nil {
		subnets = r.written.Subnets
	}
	r.mu.Unlock()
	for _, id := range kills(parseStates(out), flows, subnets) {
		if _, err := r.run(ctx, "", "pfctl", "-k", "id", "-k", id); err != nil {
			return fmt.Errorf("kill pf state: %w", err)
		}
	}
	return nil
}

// Clear empties both anchors.
func (r *Redirector) Clear(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.written = nil
	for _, a := range []string{r.anchors.rdr, r.anchors.nat} {
		if _, err := r.run(ctx, "", "pfctl", "-a", a, "-F", "all"); err != nil {
			return fmt.Errorf("clear pf anchor: %w", err)
		}
	}
	return nil
}
