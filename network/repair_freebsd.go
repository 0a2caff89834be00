// SPDX-License-Identifier: BSD-2-Clause

package network

import (
	"context"
	"net/netip"
	"slices"
)

// faults knows of bridges only: the description of an epair does not say which
// of its container's networks it is for. Unverified on a FreeBSD host.
func (l *ifconfigLinks) faults(ctx context.Context, nets []Network, _ map[string][]wire) (out []fault, err error) {
	if len(nets) == 0 {
		return nil, nil
	}
	all, err := l.list(ctx)
	if err != nil {
		return nil, err
	}
	for _, n := range nets {
		at := slices.IndexFunc(all, func(i ifInfo) bool { return i.Name == n.Bridge })
		if at < 0 {
			out = append(out, bridgeIs(n, "was gone"))
			continue
		}
		if want := netip.PrefixFrom(n.Gateway, n.Subnet.Bits()); !slices.Contains(all[at].Inet, want) {
			out = append(out, bridgeIs(n, "had lost its address "+want.String()))
		}
		if !all[at].Up {
			out = append(out, bridgeIs(n, "was down"))
		}
	}
	return out, nil
}

// join has nothing to do, as faults never asks for it.
func (l *ifconfigLinks) join(context.Context, string, []wire) error { return nil }
