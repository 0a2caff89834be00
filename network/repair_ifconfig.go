// SPDX-License-Identifier: BSD-2-Clause

package network

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
)

func (l *ifconfigLinks) faults(ctx context.Context, nets []Network, wires map[string][]wire) (out []fault, err error) {
	all, err := l.list(ctx)
	if err != nil {
		return nil, err
	}
	for _, n := range nets {
		bridge, there := find(all, n.Bridge)
		switch want := netip.PrefixFrom(n.Gateway, n.Subnet.Bits()); {
		case !there:
			out = append(out, bridgeIs(n, "was gone"))
		case !l.mark.owns(bridge):
			out = append(out, bridgeIs(n, "was another's")) // making it says the same
		default:
			if !slices.Contains(bridge.Inet, want) {
				out = append(out, bridgeIs(n, "had lost its address "+want.String()))
			}
			if !bridge.Up {
				out = append(out, bridgeIs(n, "was down"))
			}
		}
	}
	for jail, of := range wires {
		for _, w := range of {
			p := l.mark.pair(jail, w)
			outer, there := find(all, p.outer)
			if !there && l.attached(ctx, jail) {
				out = append(out, linkGone(p.outer, jail))
			}
			if !there || !l.mark.owns(outer) {
				continue
			}
			if bridge, _ := find(all, p.Bridge); !slices.Contains(bridge.Members, p.outer) {
				out = append(out, fault{What: fmt.Sprintf("link %s was not in bridge %s", p.outer, p.Bridge), ContainerID: jail})
			}
			if !outer.Up {
				out = append(out, fault{What: fmt.Sprintf("link %s was down", p.outer), ContainerID: jail})
			}
		}
	}
	return out, nil
}

// attached tells whether a jail is there and was given its links: the first
// thing that attach does is to bring up its lo0.
func (l *ifconfigLinks) attached(ctx context.Context, jail string) bool {
	out, err := l.insideOut(ctx, jail, "ifconfig", "lo0")
	if err != nil {
		return false // there is no such jail, or it is dying
	}
	lo, there := find(parseIfconfig(out), "lo0")
	return there && lo.Up
}

// join puts the outer ends that are there back on their bridges.
func (l *ifconfigLinks) join(ctx context.Context, jail string, wires []wire) error {
	all, err := l.list(ctx)
	if err != nil {
		return err
	}
	for _, w := range wires {
		p := l.mark.pair(jail, w)
		outer, there := find(all, p.outer)
		bridge, bridged := find(all, p.Bridge)
		if !there || !l.mark.owns(outer) {
			continue
		}
		if !bridged {
			return fmt.Errorf("find bridge %s: it is not there", p.Bridge)
		}
		if err := l.runAll(ctx, p.joinCommands(bridge, outer.Up)); err != nil {
			return err
		}
	}
	return nil
}
