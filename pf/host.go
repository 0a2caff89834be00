// SPDX-License-Identifier: BSD-2-Clause

package pf

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"satld/platform/command"
)

// hooks are the lines that the operator's pf.conf must have, in this order.
var hooks = []string{`nat-anchor "satl/*"`, `rdr-anchor "satl/*"`, `anchor "satl/*"`}

// missingHooks finds which of them the main ruleset lacks, out of what
// `pfctl -s nat` and `pfctl -s rules` print.
func missingHooks(nat, rules string) (missing []string) {
	for i, h := range hooks {
		text := nat
		if i == 2 {
			text = rules
		}
		found := false
		for line := range strings.Lines(text) {
			found = found || strings.HasPrefix(strings.TrimSpace(line), h)
		}
		if !found {
			missing = append(missing, h)
		}
	}
	return missing
}

// errNoHooks says that the main ruleset does not call our anchors.
type errNoHooks struct{ missing []string }

func (e errNoHooks) Error() string {
	return fmt.Sprintf("pf does not call satld's anchors, %s missing: /etc/pf.conf must have these three lines, translation before filter, and be loaded again (pfctl -f /etc/pf.conf): %s",
		strings.Join(e.missing, " and "), strings.Join(hooks, "; "))
}

// lookHooks asks the main ruleset, which is never written.
func (r *Redirector) lookHooks(ctx context.Context) error {
	nat, err := r.pfctl(ctx, call{args: []string{"-s", "nat"}})
	if err != nil {
		return unloaded(fmt.Errorf("read pf's rules: %w", err))
	}
	rules, err := r.pfctl(ctx, call{args: []string{"-s", "rules"}})
	if err != nil {
		return fmt.Errorf("read pf's rules: %w", err)
	}
	if missing := missingHooks(nat, rules); len(missing) > 0 {
		return errNoHooks{missing}
	}
	return nil
}

// unloaded adds to an error what to do when it says that pf is not there.
func unloaded(err error) error {
	if command.Says(err, "/dev/pf") || command.Says(err, "open netlink") {
		return fmt.Errorf("pf is not loaded; sysrc pf_enable=YES; service pf start: %w", err)
	}
	return err
}

// look finds out what of the host the texts depend on.
func (r *Redirector) look(ctx context.Context) (place, error) {
	uplinks, err := r.cfg.Uplinks(ctx)
	if err != nil {
		return place{}, fmt.Errorf("find the interfaces that lead out: %w", err)
	}
	uplinks = slices.DeleteFunc(slices.Clone(uplinks), func(name string) bool { return !plain(name) })
	local, err := r.FiltersLocal(ctx)
	if err != nil {
		return place{}, err
	}
	return place{group: r.cfg.Group, uplinks: uplinks, local: local}, nil
}

// FiltersLocal tells whether pf redirects what the host sends to an address of
// its own: when net.pf.filter_local is set (FreeBSD 13.3 and later), and the
// operator's rules do not skip lo0. To 127.0.0.1 it never does.
func (r *Redirector) FiltersLocal(ctx context.Context) (bool, error) {
	out, err := r.run(ctx, command.Of("sysctl", "-n", "net.pf.filter_local"))
	switch {
	case command.Says(err, "unknown oid"):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("ask whether pf filters local traffic: %w", err)
	case strings.TrimSpace(out) != "1":
		return false, nil
	}
	out, err = r.pfctl(ctx, call{args: []string{"-s", "Interfaces", "-v"}})
	if err != nil {
		return false, fmt.Errorf("ask which interfaces pf skips: %w", err)
	}
	return !skips(out, "lo0"), nil
}

// skips reads `pfctl -s Interfaces -v`: "lo0 (skip)".
func skips(listing, name string) bool {
	for line := range strings.Lines(listing) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == name && f[1] == "(skip)" {
			return true
		}
	}
	return false
}

// Warnings tells what of pf keeps published ports and the way out from
// working, in words for the operator. It only reads.
func (r *Redirector) Warnings(ctx context.Context, _ []string) (out []string) {
	if r.cfg.CheckOnly {
		out = append(out, "published ports are not redirected: pf's rules are only checked (--redirect pf-check)")
	}
	info, err := r.pfctl(ctx, call{args: []string{"-s", "info"}})
	switch {
	case err != nil:
		return append(out, unloaded(fmt.Errorf("ask pf for its status: %w", err)).Error())
	case !strings.Contains(info, "Status: Enabled"):
		out = append(out, "pf is disabled: published ports are not redirected and tasks have no way out until you run: sysrc pf_enable=YES; service pf start")
	}
	if err := r.lookHooks(ctx); errors.As(err, new(errNoHooks)) {
		out = append(out, err.Error())
	}
	return out
}
