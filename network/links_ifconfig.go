// SPDX-License-Identifier: BSD-2-Clause

package network

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync/atomic"

	"github.com/containerd/errdefs"

	"satld/platform/command"
)

// ifconfigLinks is the FreeBSD way: ifconfig(8), route(8) and netstat(1). A
// container's namespace is its VNET jail, which bears the container's ID as its
// name (package jail): attach needs it to exist and returns no path.
//
// An interface is made under a number of ours that was written down before
// (journal), is given its mark, and only then its name.
type ifconfigLinks struct {
	mark    mark
	journal journal
	run     command.Runner
	oldTool atomic.Bool // ifconfig and route have no -j: before FreeBSD 14.0

	setFrame framer
	frames   map[string]map[string]netip.Addr // see framesOf; only tunnel, of which one runs at a time, has it
}

// mostForTool bounds a tool where it ran out of command.Bound before.
const mostForTool = 4 * command.Bound

func newIfconfigLinks(m mark, j journal, run command.Runner, set framer) *ifconfigLinks {
	patience := &command.Patience{Least: command.Bound, Most: mostForTool}
	return &ifconfigLinks{mark: m, journal: j, run: patience.Runner(run), setFrame: set, frames: make(map[string]map[string]netip.Addr)}
}

func (l *ifconfigLinks) close() error { return nil }

// boot is the kernel's boot ID. Where there is none (before FreeBSD 13) it is
// the time of the boot, which moves when the clock is stepped.
func (l *ifconfigLinks) boot(ctx context.Context) (string, error) {
	out, err := l.run(ctx, command.Of("sysctl", "-nx", "kern.boot_id"))
	if command.Says(err, "unknown oid") {
		out, err = l.run(ctx, command.Of("sysctl", "-n", "kern.boottime"))
	}
	return strings.TrimSpace(out), err
}

// prepare clears what an earlier life left half made. It sets nothing: what is
// the host's own stays as its operator wants it, and warnings says what is off.
func (l *ifconfigLinks) prepare(ctx context.Context) error { return l.recover(ctx, "") }

// warnings names what is off: without forwarding nothing passes between the
// bridges and the world, neither way.
func (l *ifconfigLinks) warnings(ctx context.Context) []string {
	out, err := l.run(ctx, command.Of("sysctl", "-n", "net.inet.ip.forwarding"))
	switch {
	case err != nil:
		return []string{fmt.Sprintf("whether this host forwards packets could not be told: %v", err)}
	case strings.TrimSpace(out) == "0":
		return []string{"this host does not forward packets (net.inet.ip.forwarding=0): tasks have no way out and published ports no way in until you run: sysrc gateway_enable=YES; service routing restart"}
	}
	return nil
}

func (l *ifconfigLinks) runAll(ctx context.Context, commands [][]string) error {
	for _, c := range commands {
		if _, err := l.run(ctx, command.Of(c...)); err != nil {
			return err
		}
	}
	return nil
}

func (l *ifconfigLinks) list(ctx context.Context) ([]ifInfo, error) {
	out, err := l.run(ctx, command.Of("ifconfig", "-a"))
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	return parseIfconfig(out), nil
}

func (l *ifconfigLinks) used(ctx context.Context) ([]usedPrefix, error) {
	all, err := l.list(ctx)
	if err != nil {
		return nil, err
	}
	routes, err := l.run(ctx, command.Of("netstat", "-rn", "-f", "inet"))
	if err != nil {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	return l.mark.usedBy(all, parseNetstat(routes)), nil
}

func (l *ifconfigLinks) uplinks(ctx context.Context) ([]string, error) {
	all, err := l.list(ctx)
	return l.mark.uplinks(all), err
}

func (l *ifconfigLinks) owned(ctx context.Context) ([]ownedLink, error) {
	all, err := l.list(ctx)
	if err != nil {
		return nil, err
	}
	var out []ownedLink
	for _, i := range all {
		if kind, id, ok := l.mark.parse(i.Description); ok {
			out = append(out, ownedLink{Name: i.Name, Kind: kind, ID: id})
		}
	}
	return out, nil
}

// missing tells that ifconfig does not know the interface.
func missing(err error) bool { return command.Says(err, "does not exist") }

func (l *ifconfigLinks) exists(ctx context.Context, name string) (exists, ours bool, err error) {
	i, there, err := l.look(ctx, name)
	return there, there && l.mark.owns(i), err
}

func (l *ifconfigLinks) look(ctx context.Context, name string) (i ifInfo, there bool, err error) {
	out, err := l.run(ctx, command.Of("ifconfig", name))
	if missing(err) {
		return ifInfo{}, false, nil
	}
	if err != nil {
		return ifInfo{}, false, fmt.Errorf("look for interface %s: %w", name, err)
	}
	i, there = find(parseIfconfig(out), name)
	if !there {
		return ifInfo{}, false, fmt.Errorf("look for interface %s: ifconfig printed %q", name, out)
	}
	return i, true, nil
}

func (l *ifconfigLinks) ensureBridge(ctx context.Context, n Network) error {
	if err := l.recover(ctx, n.ID); err != nil {
		return err
	}
	bridge, there, err := l.look(ctx, n.Bridge)
	switch {
	case err != nil:
		return err
	case there && !l.mark.owns(bridge):
		return fmt.Errorf("interface %s is there and is not ours: %w", n.Bridge, errdefs.ErrConflict)
	case !there:
		err := l.make(ctx, []string{"bridge"}, unfinished{For: n.ID, As: n.Bridge}, func(made string, _ int) [][]string {
			return [][]string{l.mark.markArgs(made, "n", n.ID, n.Bridge)}
		})
		if err != nil {
			return err
		}
	}
	return l.runAll(ctx, bridgeCommands(n, bridge))
}

// makeAttempts is how many numbers are tried: each is taken with a chance of
// one in some thousands.
const makeAttempts = 8

// make makes an interface of a kind, with what else it is created with, under a
// number of ours and then runs what marks and names it. Whatever fails, nothing
// is left that the journal does not know.
func (l *ifconfigLinks) make(ctx context.Context, kind []string, u unfinished, finish func(made string, unit int) [][]string) error {
	for attempt := range makeAttempts {
		unit := l.mark.unit(u, attempt)
		name := fmt.Sprintf("%s%d", kind[0], unit)
		if err := l.journal.begin(name, u); err != nil {
			return err
		}
		_, err := l.run(ctx, command.Of(append([]string{"ifconfig", name, "create"}, kind[1:]...)...))
		if command.Says(err, "already exists") || command.Says(err, "File exists") { // somebody else's
			if err := l.journal.end(name); err != nil {
				return err
			}
			continue
		}
		if err == nil {
			err = l.runAll(ctx, finish(name, unit))
		}
		if err == nil {
			return l.journal.end(name)
		}
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), command.Bound)
		defer cancel()
		return errors.Join(err, l.forget(undo, name, u))
	}
	return fmt.Errorf("make %s: no free number for it in %d attempts: %w", u.As, makeAttempts, errdefs.ErrConflict)
}

// recover takes back what an earlier attempt for the container or network
// left half made; for "" whatever was left.
func (l *ifconfigLinks) recover(ctx context.Context, id string) error {
	for name, u := range l.journal.pending() {
		if id != "" && u.For != id {
			continue
		}
		if err := l.forget(ctx, name, u); err != nil {
			return fmt.Errorf("take back the half made %s: %w", name, err)
		}
	}
	return nil
}

// forget removes an interface that the journal knows, under the number that it
// was made with or the name that it got since. One that meanwhile bears
// somebody else's mark is left alone.
func (l *ifconfigLinks) forget(ctx context.Context, name string, u unfinished) error {
	all, err := l.list(ctx)
	if err != nil {
		return err
	}
	for _, candidate := range []string{name, name + "a", u.As} {
		i, there := find(all, candidate)
		if !there || !l.mark.owns(i) && (i.Description != "" || candidate == u.As) {
			continue
		}
		if err := l.destroy(ctx, candidate); err != nil {
			return err
		}
		break
	}
	return l.journal.end(name)
}

func (l *ifconfigLinks) destroy(ctx context.Context, name string) error {
	if _, err := l.run(ctx, command.Of("ifconfig", name, "destroy")); err != nil && !missing(err) {
		return fmt.Errorf("destroy interface %s: %w", name, err)
	}
	return nil
}

func (l *ifconfigLinks) deleteLink(ctx context.Context, name string) error {
	exists, ours, err := l.exists(ctx, name)
	if err != nil || !exists || !ours {
		return err
	}
	return l.destroy(ctx, name)
}
