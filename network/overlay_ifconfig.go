// SPDX-License-Identifier: BSD-2-Clause

package network

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"

	"satld/platform/command"
)

// tunnel implements links: a vxlan(4) that learns nothing, as a port of the
// network's bridge that learns nothing and is sent nothing unknown.
//
// Where frames go is fixed in two places: the bridge's table says which are for
// the tunnel, the tunnel's for which node. Questions for an address are answered
// by this host in the place of those who have it (published ARP entries on the
// bridge), which is also how the host itself finds them. What is left, what
// tasks say to everybody, must go nowhere, and a vxlan(4) without a default
// destination does not run: see nowhere.
func (l *ifconfigLinks) tunnel(ctx context.Context, n Network, local netip.Addr, peers []Peer) error {
	if err := l.recover(ctx, n.ID); err != nil {
		return err
	}
	name := l.mark.tunnel(n.ID)
	all, err := l.list(ctx)
	if err != nil {
		return err
	}
	link, there := find(all, name)
	switch want := vxlanOf(n, local); {
	case !there && len(peers) == 0:
		return nil
	case there && !l.mark.owns(link):
		return fmt.Errorf("interface %s is there and is not ours: %w", name, errdefs.ErrConflict)
	case there && link.VXLAN != want.text():
		if err := l.destroy(ctx, name); err != nil {
			return err
		}
		fallthrough
	case !there:
		delete(l.frames, name)
		err := l.make(ctx, want.create(), unfinished{For: n.ID, As: name}, func(made string, unit int) [][]string {
			return [][]string{l.mark.markArgs(made, fmt.Sprintf("x%d", unit), n.ID, name)}
		})
		if err != nil {
			return err
		}
		if all, err = l.list(ctx); err != nil {
			return err
		}
	}
	return l.syncTunnel(ctx, n, name, all, peers)
}

// vxlan is what a tunnel is made of; it cannot be changed while it is up.
type vxlan struct {
	vni           uint32
	local, remote netip.Addr
}

func vxlanOf(n Network, local netip.Addr) vxlan { return vxlan{n.VNI, local, nowhere(n)} }

// nowhere is where a tunnel sends what has no entry: the network's own broadcast
// address. The kernel finds the bridge itself on the way there, and refuses to
// send a datagram to everybody on it that was not allowed to (ip_output,
// EACCES): nothing leaves the host, and nothing comes back either.
func nowhere(n Network) netip.Addr { return lastOf(n.Subnet) }

// create are the kind of interface and what it is created with.
func (v vxlan) create() []string {
	return []string{"vxlan", "vxlanid", fmt.Sprint(v.vni), "vxlanlocal", v.local.String(), "vxlanremote", v.remote.String(),
		"vxlanlocalport", strconv.Itoa(vxlanPort), "vxlanremoteport", strconv.Itoa(vxlanPort), "-vxlanlearn"}
}

// text is how ifconfig prints it.
func (v vxlan) text() string {
	return fmt.Sprintf("vxlan vni %d local %s:%d remote %s:%d", v.vni, v.local, vxlanPort, v.remote, vxlanPort)
}

// syncTunnel makes of a tunnel that is there what peers say.
func (l *ifconfigLinks) syncTunnel(ctx context.Context, n Network, name string, all []ifInfo, peers []Peer) error {
	link, there := find(all, name)
	bridge, bridged := find(all, n.Bridge)
	if !there || !bridged {
		return fmt.Errorf("interface %s or %s is not there", name, n.Bridge)
	}
	want := make(map[string]netip.Addr)
	for _, p := range peers {
		want[macOf(p.Addr)] = p.Host
	}
	if err := l.syncFrames(ctx, link, want); err != nil {
		return fmt.Errorf("forwarding entries of %s: %w", name, err)
	}
	commands := plugCommands(bridge, link)
	if err := l.runAll(ctx, commands); err != nil {
		return err
	}
	if err := l.syncBridge(ctx, n.Bridge, name, want); err != nil {
		return fmt.Errorf("addresses of bridge %s: %w", n.Bridge, err)
	}
	if err := l.syncARP(ctx, n, peers); err != nil {
		return fmt.Errorf("neighbours on bridge %s: %w", n.Bridge, err)
	}
	if link.Running {
		return nil
	}
	// It is up by now, which ifconfig says of one too that the kernel gave up on.
	switch link, _, err := l.look(ctx, name); {
	case err != nil:
		return err
	case !link.Running:
		return fmt.Errorf("tunnel %s does not run: is its end an address of this host, and UDP port %d free there? (%s)", name, vxlanPort, link.VXLAN)
	}
	return nil
}

// plugCommands make the tunnel a port of its bridge, and bring it up. One that
// is up and does not run, because its address came later, say, is tried again.
func plugCommands(bridge, link ifInfo) (out [][]string) {
	flags := bridge.Ports[link.Name]
	var set []string
	if !slices.Contains(bridge.Members, link.Name) {
		if link.MTU != bridge.MTU { // a bridge takes that of its first member
			out = append(out, []string{"ifconfig", link.Name, "mtu", strconv.Itoa(bridge.MTU)})
		}
		set, flags = append(set, "addm", link.Name), []string{"LEARNING", "DISCOVER"}
	}
	if slices.Contains(flags, "LEARNING") {
		set = append(set, "-learn", link.Name)
	}
	if slices.Contains(flags, "DISCOVER") {
		set = append(set, "-discover", link.Name)
	}
	if len(set) > 0 {
		out = append(out, append([]string{"ifconfig", bridge.Name}, set...))
	}
	if link.Up && !link.Running {
		out = append(out, []string{"ifconfig", link.Name, "down"})
	}
	if !link.Up || !link.Running {
		out = append(out, []string{"ifconfig", link.Name, "up"})
	}
	return out
}

// listed is how many entries the kernel can print of a tunnel, in one page of
// memory, with some to spare.
const listed = 64

// framesOf are the entries of a tunnel. Of more than the kernel can print they
// are those that were set last, if there are as many as then; else they are
// not known.
func (l *ifconfigLinks) framesOf(ctx context.Context, link ifInfo) (has map[string]netip.Addr, known bool, err error) {
	kind, _, _ := l.mark.parse(link.Description)
	table := "net.link.vxlan." + strings.TrimPrefix(kind, "x") + ".ftable."
	out, err := l.run(ctx, command.Of("sysctl", "-n", table+"count"))
	if err != nil {
		return nil, false, err
	}
	count, err := strconv.Atoi(strings.TrimSpace(out))
	if err != nil {
		return nil, false, fmt.Errorf("count them: sysctl printed %q", out)
	}
	if count > listed {
		has, known = l.frames[link.Name]
		return has, known && len(has) == count, nil
	}
	if out, err = l.run(ctx, command.Of("sysctl", "-n", table+"dump")); err != nil {
		return nil, false, err
	}
	has = parseFrames(out)
	return has, len(has) == count, nil
}

func (l *ifconfigLinks) syncFrames(ctx context.Context, link ifInfo, want map[string]netip.Addr) error {
	has, known, err := l.framesOf(ctx, link)
	if err != nil {
		return err
	}
	delete(l.frames, link.Name) // until all of it worked
	if !known {
		if _, err := l.run(ctx, command.Of("ifconfig", link.Name, "vxlanflushall")); err != nil {
			return err
		}
		has = nil
	}
	for _, f := range frameChanges(has, want) {
		if err := l.setFrame(link.Name, f); err != nil {
			return fmt.Errorf("set that of %s to %s: %w", f.mac, f.to, err)
		}
	}
	l.frames[link.Name] = want
	return nil
}

func (l *ifconfigLinks) carrierMTU(ctx context.Context, local netip.Addr) (int, error) {
	all, err := l.list(ctx)
	if err != nil {
		return 0, err
	}
	for _, i := range all {
		has := slices.ContainsFunc(i.Inet, func(p netip.Prefix) bool { return p.Addr() == local })
		if has && !i.Loopback {
			return i.MTU, nil
		}
	}
	return 0, nil
}

// resize sets the inner ends: the outer ones have the bridge's MTU, which it
// gives to all of its members (if_bridge(4)).
func (l *ifconfigLinks) resize(ctx context.Context, jail string, wires []wire) error {
	for _, w := range wires {
		inner := l.mark.inner(jail, w.Interface)
		out, err := l.insideOut(ctx, jail, "ifconfig", inner)
		if err != nil {
			continue // it is not there yet, and takes the bridge's; or it is going
		}
		if is, there := find(parseIfconfig(out), inner); there && is.MTU != w.MTU {
			if err := l.inside(ctx, jail, "ifconfig", inner, "mtu", strconv.Itoa(w.MTU)); err != nil {
				return err
			}
		}
	}
	return nil
}

// atOnce is how many addresses one call of ifconfig sets.
const atOnce = 64

func (l *ifconfigLinks) syncBridge(ctx context.Context, bridge, tunnel string, want map[string]netip.Addr) error {
	out, err := l.run(ctx, command.Of("ifconfig", bridge, "addr"))
	if err != nil {
		return err
	}
	for some := range slices.Chunk(bridgeAddrs(parseBridgeAddrs(out), want, tunnel), atOnce) {
		if _, err := l.run(ctx, command.Of(append([]string{"ifconfig", bridge}, slices.Concat(some...)...)...)); err != nil {
			return err
		}
	}
	return nil
}

// syncARP makes this host answer for exactly the peers, on the network's bridge.
func (l *ifconfigLinks) syncARP(ctx context.Context, n Network, peers []Peer) error {
	out, err := l.run(ctx, command.Of("arp", "-an", "-i", n.Bridge))
	if err != nil {
		return err
	}
	gone, lines := arpChanges(parseARP(out), peers)
	for _, addr := range gone {
		if _, err := l.run(ctx, command.Of("arp", "-d", addr)); err != nil {
			return err
		}
	}
	if lines == "" {
		return nil
	}
	set := command.Of("arp", "-f", "/dev/stdin")
	set.Stdin = lines
	_, err = l.run(ctx, set)
	return err
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
