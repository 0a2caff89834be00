// SPDX-License-Identifier: BSD-2-Clause

package network

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/containerd/errdefs"

	"satld/platform/command"
)

// attach gives the jail its links, one after the other. Each step is found done
// when it is done, so that an attempt that was cut short is gone on with.
//
// lo0 comes up first: while it is down a task cannot reach its own address. It
// carries ::1 and no 127.0.0.1 (facts/freebsd.md, "VNET plumbing").
func (l *ifconfigLinks) attach(ctx context.Context, jail string, wires []wire) (string, error) {
	if err := l.recover(ctx, jail); err != nil {
		return "", err
	}
	if err := l.inside(ctx, jail, "ifconfig", "lo0", "up"); err != nil {
		return "", fmt.Errorf("bring up lo0: %w", err)
	}
	for _, w := range wires {
		if err := l.connect(ctx, l.mark.pair(jail, w)); err != nil {
			return "", fmt.Errorf("interface %s: %w", w.Interface, err)
		}
	}
	return "", nil
}

func (l *ifconfigLinks) connect(ctx context.Context, p pair) error {
	exists, ours, err := l.exists(ctx, p.outer)
	switch {
	case err != nil:
		return err
	case exists && !ours:
		return fmt.Errorf("interface %s is there and is not ours: %w", p.outer, errdefs.ErrConflict)
	case !exists:
		err := l.make(ctx, []string{"epair"}, unfinished{For: p.jail, As: p.outer}, func(made string, _ int) [][]string {
			return [][]string{
				l.mark.markArgs(made+"a", "c", p.jail, p.outer),
				l.mark.markArgs(made+"b", "c", p.jail, p.inner),
			}
		})
		if err != nil {
			return err
		}
	}
	all, err := l.list(ctx)
	if err != nil {
		return err
	}
	commands, err := p.hostCommands(all)
	if err != nil {
		return err
	}
	if err := l.runAll(ctx, commands); err != nil {
		return err
	}
	if err := l.inside(ctx, p.jail, "ifconfig", p.inner, "inet", p.Addr.String(), "up"); err != nil {
		return err
	}
	if !p.Default {
		return nil
	}
	err = l.inside(ctx, p.jail, "route", "add", "default", p.Gateway.String())
	if command.Says(err, "already in table") {
		return nil // ours, of an attempt that was cut short: nobody else is in the jail yet
	}
	return err
}

// inside runs ifconfig or route on a jail's network stack. Since FreeBSD 14.0
// the host's own tools do that (-j); older ones have to be in the jail's root.
func (l *ifconfigLinks) inside(ctx context.Context, jail, tool string, args ...string) error {
	_, err := l.insideOut(ctx, jail, tool, args...)
	return err
}

// insideOut is inside with what was printed.
func (l *ifconfigLinks) insideOut(ctx context.Context, jail, tool string, args ...string) (string, error) {
	if !l.oldTool.Load() {
		out, err := l.run(ctx, command.Of(append([]string{tool, "-j", jail}, args...)...))
		if !command.Says(err, "illegal option -- j") {
			return out, err
		}
		l.oldTool.Store(true)
	}
	out, err := l.run(ctx, command.Of(append([]string{"jexec", jail, "/sbin/" + tool}, args...)...))
	if command.Says(err, "/sbin/"+tool+": No such file or directory") {
		return "", fmt.Errorf("this host's %s cannot reach into a jail (it has no -j, which came with FreeBSD 14.0), and the image has no /sbin/%s to do it from inside: use FreeBSD 14.0 or later, or an image with /sbin/ifconfig and /sbin/route: %w", tool, tool, err)
	}
	return out, err
}

// detach destroys the jail's links. The jail must be gone or going: its inner
// ends come back to the host by themselves, and only then is a pair destroyed,
// as old kernels panic over one that is on its way (facts/freebsd.md).
func (l *ifconfigLinks) detach(ctx context.Context, jail string, _ []wire, patience time.Duration) error {
	if err := l.recover(ctx, jail); err != nil {
		return err
	}
	found, err := l.owned(ctx)
	if err != nil {
		return err
	}
	until := time.Now().Add(patience)
	var errs []error
	for _, o := range found {
		rest, outer := strings.CutPrefix(o.Name, "sv")
		if o.Kind != "c" || o.ID != jail || !outer {
			continue
		}
		err := l.returned(ctx, jail, "se"+rest, until)
		if err == nil {
			err = l.destroy(ctx, o.Name) // the inner end goes with it
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// returned waits until the inner end is seen on the host.
func (l *ifconfigLinks) returned(ctx context.Context, jail, inner string, until time.Time) error {
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, 500*time.Millisecond) {
		exists, _, err := l.exists(ctx, inner)
		if err != nil || exists {
			return err
		}
		left := time.Until(until)
		if left <= 0 {
			return fmt.Errorf("jail %s still holds its end of a link, %s: it is dying, or was not removed: %w", jail, inner, errdefs.ErrUnavailable)
		}
		timer := time.NewTimer(min(pause, left))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("wait for jail %s to give back %s: %w", jail, inner, ctx.Err())
		}
	}
}
