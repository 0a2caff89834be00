// SPDX-License-Identifier: BSD-2-Clause

package network

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"
)

// ifconfigLinks is the FreeBSD way: ifconfig(8) and route(8). A container's
// namespace is its VNET jail, so attach needs the jail of that name to exist
// (ocijail create) and returns no path. Unverified on a FreeBSD host.
type ifconfigLinks struct{ mark mark }

func newLinks(m mark, _ string) (links, error) { return &ifconfigLinks{mark: m}, nil }

func (l *ifconfigLinks) close() error { return nil }

func bootID() string {
	out, _ := run(context.Background(), "sysctl", "-n", "kern.boottime")
	return strings.TrimSpace(out)
}

// commandTimeout bounds one ifconfig or route.
const commandTimeout = 10 * time.Second

// run is the one way to an external command.
func run(ctx context.Context, argv ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}

func runAll(ctx context.Context, commands [][]string) error {
	for _, c := range commands {
		if _, err := run(ctx, c...); err != nil {
			return err
		}
	}
	return nil
}

func missing(err error) bool { return err != nil && strings.Contains(err.Error(), "does not exist") }

func (l *ifconfigLinks) prepare(ctx context.Context) error {
	_, err := run(ctx, "sysctl", "net.inet.ip.forwarding=1")
	return err
}

func (l *ifconfigLinks) list(ctx context.Context) ([]ifInfo, error) {
	out, err := run(ctx, "ifconfig", "-a")
	return parseIfconfig(out), err
}

func (l *ifconfigLinks) used(ctx context.Context) ([]usedPrefix, error) {
	all, err := l.list(ctx)
	if err != nil {
		return nil, err
	}
	routes, err := run(ctx, "netstat", "-rn", "-f", "inet")
	if err != nil {
		return nil, err
	}
	ours := make(map[string]bool)
	var mine, out []usedPrefix
	for _, i := range all {
		_, _, ours[i.Name] = l.mark.parse(i.Description)
		for _, p := range i.Inet {
			if ours[i.Name] {
				mine = append(mine, usedPrefix{p.Masked(), i.Name})
			} else {
				out = append(out, usedPrefix{p.Masked(), "interface " + i.Name})
			}
		}
	}
	for _, r := range parseNetstat(routes) {
		// The host's own addresses are routed through lo0, ours too.
		own := ours[r.By] || slices.ContainsFunc(mine, func(m usedPrefix) bool { return r.By == "lo0" && m.Prefix.Contains(r.Prefix.Addr()) })
		if !own {
			out = append(out, usedPrefix{r.Prefix, "a route through interface " + r.By})
		}
	}
	return out, nil
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

func (l *ifconfigLinks) exists(ctx context.Context, name string) (exists, ours bool, err error) {
	out, err := run(ctx, "ifconfig", name)
	if missing(err) {
		return false, false, nil
	}
	for _, i := range parseIfconfig(out) {
		_, _, ours = l.mark.parse(i.Description)
	}
	return err == nil, ours, err
}

func (l *ifconfigLinks) ensureBridge(ctx context.Context, n Network) error {
	exists, ours, err := l.exists(ctx, n.Bridge)
	if err != nil {
		return err
	}
	if exists && !ours {
		return fmt.Errorf("interface %s is there and is not ours: %w", n.Bridge, errdefs.ErrConflict)
	}
	return runAll(ctx, bridgeCommands(l.mark, n, exists))
}

func (l *ifconfigLinks) deleteLink(ctx context.Context, name string) error {
	exists, ours, err := l.exists(ctx, name)
	if err != nil || !exists || !ours {
		return err
	}
	_, err = run(ctx, "ifconfig", name, "destroy")
	return err
}

func (l *ifconfigLinks) attach(ctx context.Context, jail string, wires []wire) (string, error) {
	for _, w := range wires {
		if _, err := run(ctx, "ifconfig", "-j", jail, w.Interface); err == nil {
			continue
		}
		pair, err := run(ctx, "ifconfig", "epair", "create")
		if err != nil {
			return "", err
		}
		pair = strings.TrimSpace(pair)
		commands, err := epairCommands(l.mark, jail, pair, w)
		if err != nil {
			return "", err
		}
		if err := runAll(ctx, commands); err != nil {
			_, undo := run(context.WithoutCancel(ctx), "ifconfig", pair, "destroy")
			return "", errors.Join(err, undo)
		}
	}
	return "", nil
}

// detach destroys the outer ends; the inner ones go with them. The jail must
// be gone (facts: order is processes gone, jail removed, then destroy).
func (l *ifconfigLinks) detach(ctx context.Context, jail string, _ []wire) error {
	all, err := l.owned(ctx)
	errs := []error{err}
	for _, o := range all {
		if o.Kind == "c" && o.ID == jail {
			if _, err := run(ctx, "ifconfig", o.Name, "destroy"); err != nil && !missing(err) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}
