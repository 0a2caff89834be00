// SPDX-License-Identifier: BSD-2-Clause

package network

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"

	"satld/platform/command"
)

// Defaults of Config.
const (
	DefaultName = "satl0"
	// DefaultReuseDelay is twice the longest time that a DNS answer of ours
	// may be kept (5 s), so that no cached answer reaches a stranger
	// (cases/gate-dns.md, gate-dns-4).
	DefaultReuseDelay = 10 * time.Second
)

// DefaultPool is where networks get their subnets from by default.
var DefaultPool = netip.MustParsePrefix("10.88.0.0/16")

// Config says where and out of what a Manager works.
type Config struct {
	StateDir   string        // of the daemon; the leases are in StateDir/network
	Name       string        // of the node's own network and its bridge; "" is DefaultName
	Pool       netip.Prefix  // zero is DefaultPool
	ReuseDelay time.Duration // 0 is DefaultReuseDelay
	Logger     *slog.Logger  // nil is slog.Default

	netnsDir string // "" is defaultNetnsDir; tests have their own
	links    links  // nil is the system's own
	mark     mark   // "" is that of the state directory
	// tools, when set, are driven as FreeBSD's, and so is frames.
	tools  command.Runner
	frames framer
}

// defaultNetnsDir is where ip-netns(8) looks for names.
const defaultNetnsDir = "/var/run/netns"

// Manager is the networks of this node. Open makes one.
type Manager struct {
	cfg   Config
	mark  mark
	file  string
	links links
	log   *slog.Logger
	now   func() time.Time

	carrying carrier

	changing sync.Mutex // held by who changes state, until that is written; taken before mu

	mu     sync.Mutex // guards state and strays; nobody holds it while he waits for the disk
	state  *leases
	strays map[string]bool // containers that Sweep could not detach yet
	byWork keyed           // one operation at a time for a container, one for all bridges
}

// bridges is the key under which bridges are worked on; no container has it,
// as IDs have no slash.
const bridgesKey = "/bridges"

// Open reads what the state directory remembers, makes the node's own network
// and every remembered one, and gives a Manager for them. It refuses, with
// ErrConflict, a pool that overlaps what the host has (another daemon's
// network among that) and a bridge name that belongs to somebody else.
func Open(ctx context.Context, cfg Config) (*Manager, error) {
	cfg.Name = cmp.Or(cfg.Name, DefaultName)
	cfg.ReuseDelay = cmp.Or(cfg.ReuseDelay, DefaultReuseDelay)
	cfg.netnsDir = cmp.Or(cfg.netnsDir, defaultNetnsDir)
	if !cfg.Pool.IsValid() {
		cfg.Pool = DefaultPool
	}
	if err := errors.Join(CheckPool(cfg.Pool), checkIfName(cfg.Name)); err != nil {
		return nil, err
	}
	dir, err := filepath.Abs(cfg.StateDir)
	if err != nil {
		return nil, fmt.Errorf("open networks: %w", err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "network"), 0o700); err != nil {
		return nil, fmt.Errorf("open networks: %w", err)
	}
	m := &Manager{cfg: cfg, mark: cmp.Or(cfg.mark, markOf(dir)), file: filepath.Join(dir, "network", "leases.json"), links: cfg.links, log: cfg.Logger, now: time.Now, strays: map[string]bool{}}
	if m.log == nil {
		m.log = slog.Default()
	}
	if cfg.tools != nil {
		m.links = newIfconfigLinks(m.mark, m, cfg.tools, cfg.frames)
	}
	if m.links == nil {
		if m.links, err = newLinks(m.mark, cfg.netnsDir, m); err != nil {
			return nil, fmt.Errorf("open networks: %w", err)
		}
	}
	if err := m.load(ctx); err != nil {
		return nil, errors.Join(err, m.links.close())
	}
	if err := m.start(ctx); err != nil {
		return nil, errors.Join(err, m.links.close())
	}
	return m, nil
}

// load reads what the state directory remembers of this run of the kernel.
func (m *Manager) load(ctx context.Context) error {
	boot, err := m.links.boot(ctx)
	if err != nil {
		return fmt.Errorf("open networks: tell this boot from others: %w", err)
	}
	var aside string
	if m.state, aside, err = loadLeases(m.file, boot); err != nil {
		return err
	}
	if aside != "" {
		m.log.Error("network leases could not be read; set aside, starting without", "file", aside)
	}
	return nil
}

func (m *Manager) start(ctx context.Context) error {
	if err := m.checkDefault(ctx); err != nil {
		return err
	}
	used, err := m.links.used(ctx)
	if err != nil {
		return fmt.Errorf("read the host's routes: %w", err)
	}
	for _, u := range used {
		if u.Prefix.Overlaps(m.cfg.Pool) {
			return fmt.Errorf("network pool %s overlaps %s (%s): choose another with --network-pool: %w", m.cfg.Pool, u.Prefix, u.By, errdefs.ErrConflict)
		}
	}
	if exists, ours, err := m.links.exists(ctx, m.cfg.Name); err != nil {
		return fmt.Errorf("look for bridge %s: %w", m.cfg.Name, err)
	} else if exists && !ours {
		return fmt.Errorf("interface %s is there already and does not belong to the state directory %s: choose another name with --network-name: %w", m.cfg.Name, m.cfg.StateDir, errdefs.ErrConflict)
	}
	if err := m.links.prepare(ctx); err != nil {
		return fmt.Errorf("prepare the host's network: %w", err)
	}
	if _, err := m.Ensure(ctx, Network{ID: DefaultID, Name: m.cfg.Name}); err != nil {
		return err
	}
	for _, n := range m.List() {
		if n.ID == DefaultID {
			continue
		}
		if _, err := m.Ensure(ctx, n); err != nil {
			// One network of many must not keep the daemon from starting;
			// attaching to it tries again and says why.
			m.log.Error("network could not be made again", "network", n.Name, "error", err)
		}
	}
	return nil
}

// checkDefault copes with a changed --network-name or --network-pool: the old
// network of the node goes when it is unused, else the change is refused.
func (m *Manager) checkDefault(ctx context.Context) error {
	m.mu.Lock()
	old, known := m.state.Networks[DefaultID]
	attached := m.state.attached(DefaultID)
	m.mu.Unlock()
	if !known || old.Bridge == m.cfg.Name && old.Subnet == Blocks(m.cfg.Pool)[0] {
		return nil
	}
	if attached > 0 {
		return fmt.Errorf("the node's network is %s with %s and has %d containers: it cannot become %s with %s now; start with the old --network-name and --network-pool, or remove the containers first: %w",
			old.Bridge, old.Subnet, attached, m.cfg.Name, Blocks(m.cfg.Pool)[0], errdefs.ErrConflict)
	}
	if err := m.links.deleteLink(ctx, old.Bridge); err != nil {
		return fmt.Errorf("delete the old bridge %s: %w", old.Bridge, err)
	}
	defer m.change()()
	delete(m.state.Networks, DefaultID)
	return m.save()
}

// Ensure implements Networks.
func (m *Manager) Ensure(ctx context.Context, n Network) (Network, error) {
	if err := checkID("network", n.ID); err != nil {
		return Network{}, err
	}
	defer m.byWork.lock(bridgesKey)()
	n, err := m.record(ctx, n)
	if err != nil {
		return Network{}, err
	}
	if err := m.links.ensureBridge(ctx, n); err != nil {
		return Network{}, fmt.Errorf("make bridge %s of network %s: %w", n.Bridge, n.Name, err)
	}
	return n, nil
}

// record completes a network and writes it down.
func (m *Manager) record(ctx context.Context, n Network) (Network, error) {
	m.mu.Lock()
	old, known := m.state.Networks[n.ID]
	m.mu.Unlock()
	n.Subnet = n.Subnet.Masked()
	if known {
		if n.VNI != 0 && n.VNI == old.VNI && n.Subnet == old.Subnet {
			// The cluster may give this node another address in it.
			n.Bridge, n.MTU = old.Bridge, old.MTU
			if n == old.Network {
				return n, nil
			}
			return n, m.keep(n, old, true)
		}
		if n.Subnet.IsValid() && n.Subnet != old.Subnet || n.Gateway.IsValid() && n.Gateway != old.Gateway || n.Internal != old.Internal || n.VNI != old.VNI {
			return Network{}, fmt.Errorf("network %s is there with subnet %s, gateway %s, internal %t: %w", old.Name, old.Subnet, old.Gateway, old.Internal, errdefs.ErrConflict)
		}
		n.Subnet, n.Gateway, n.Bridge, n.MTU = old.Subnet, old.Gateway, old.Bridge, old.MTU
		if n == old.Network {
			return n, nil
		}
	} else if err := m.place(ctx, &n); err != nil {
		return Network{}, err
	} else if n.VNI != 0 {
		n.MTU = m.carrying.mtu()
	}
	return n, m.keep(n, old, known)
}

// keep writes a network down, in the place of old if that was known.
func (m *Manager) keep(n Network, old networkRecord, known bool) error {
	defer m.change()()
	m.state.Networks[n.ID] = networkRecord{Network: n, Cursor: old.Cursor}
	err := m.save()
	if err != nil {
		delete(m.state.Networks, n.ID)
		if known {
			m.state.Networks[n.ID] = old
		}
	}
	return err
}

// place finds subnet, gateway and bridge name of a new network.
func (m *Manager) place(ctx context.Context, n *Network) error {
	used, err := m.links.used(ctx)
	if err != nil {
		return fmt.Errorf("read the host's routes: %w", err)
	}
	others := m.List()
	var taken []netip.Prefix
	for _, o := range others {
		taken = append(taken, o.Subnet)
	}
	switch {
	case n.ID == DefaultID:
		n.Subnet = Blocks(m.cfg.Pool)[0]
	case !n.Subnet.IsValid():
		// The first block stays the node's own also while it is being renamed.
		taken = append(taken, Blocks(m.cfg.Pool)[0])
		for _, u := range used {
			taken = append(taken, u.Prefix)
		}
		if n.Subnet, err = freeBlock(m.cfg.Pool, taken); err != nil {
			return fmt.Errorf("network %s: %w", n.Name, err)
		}
	default:
		if err := CheckPool(n.Subnet); err != nil {
			return fmt.Errorf("network %s: subnet: %w", n.Name, err)
		}
		for _, o := range others {
			if o.Subnet.Overlaps(n.Subnet) {
				return fmt.Errorf("network %s: subnet %s overlaps %s of network %s: %w", n.Name, n.Subnet, o.Subnet, o.Name, errdefs.ErrConflict)
			}
		}
		for _, u := range used {
			if u.Prefix.Overlaps(n.Subnet) {
				return fmt.Errorf("network %s: subnet %s overlaps %s (%s): %w", n.Name, n.Subnet, u.Prefix, u.By, errdefs.ErrConflict)
			}
		}
	}
	if want := gatewayOf(n.Subnet); n.VNI != 0 {
		if !n.Subnet.Contains(n.Gateway) {
			return fmt.Errorf("network %s: %s is no address of this node in %s: %w", n.Name, n.Gateway, n.Subnet, errdefs.ErrInvalidArgument)
		}
	} else if !n.Gateway.IsValid() {
		n.Gateway = want
	} else if n.Gateway != want {
		return fmt.Errorf("network %s: gateway %s: it is always the first address of the subnet, %s: %w", n.Name, n.Gateway, want, errdefs.ErrInvalidArgument)
	}
	if n.ID == DefaultID {
		n.Bridge = m.cfg.Name
		return nil
	}
	for attempt := range 16 {
		n.Bridge = m.mark.bridge(n.ID, attempt)
		exists, ours, err := m.links.exists(ctx, n.Bridge)
		if err != nil {
			return fmt.Errorf("network %s: look for bridge %s: %w", n.Name, n.Bridge, err)
		}
		inUse := slices.ContainsFunc(others, func(o Network) bool { return o.Bridge == n.Bridge })
		if !inUse && (!exists || ours) {
			return nil
		}
	}
	return fmt.Errorf("network %s: no free name for its bridge: %w", n.Name, errdefs.ErrConflict)
}

// Remove implements Networks.
func (m *Manager) Remove(ctx context.Context, id string) error {
	defer m.byWork.lock(bridgesKey)()
	m.mu.Lock()
	n, known := m.state.Networks[id]
	attached := m.state.attached(id)
	m.mu.Unlock()
	switch {
	case id == DefaultID:
		return fmt.Errorf("network %s is the node's own and stays: %w", m.cfg.Name, errdefs.ErrPermissionDenied)
	case !known:
		return nil
	case attached > 0:
		return fmt.Errorf("network %s has %d active endpoints: %w", n.Name, attached, errdefs.ErrConflict)
	}
	for _, link := range []string{m.mark.tunnel(id), n.Bridge} {
		if err := m.links.deleteLink(ctx, link); err != nil {
			return fmt.Errorf("delete %s of network %s: %w", link, n.Name, err)
		}
	}
	defer m.change()()
	delete(m.state.Networks, id)
	return m.save()
}

// Get implements Networks.
func (m *Manager) Get(id string) (Network, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, ok := m.state.Networks[id]
	return n.Network, ok
}

// List implements Networks; sorted by bridge, the node's own first.
func (m *Manager) List() []Network {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make([]Network, 0, len(m.state.Networks))
	for _, n := range m.state.Networks {
		all = append(all, n.Network)
	}
	slices.SortFunc(all, func(a, b Network) int {
		return cmp.Or(boolOrder(b.ID == DefaultID)-boolOrder(a.ID == DefaultID), strings.Compare(a.Bridge, b.Bridge))
	})
	return all
}

func boolOrder(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Mark tells this daemon's things on the host from those of others; a packet
// filter's table can be named with it.
func (m *Manager) Mark() string { return string(m.mark) }

// Group is the interface group of everything that the daemon made, where the
// system has names for groups (FreeBSD).
func (m *Manager) Group() string { return m.mark.group() }

// Warnings are what of the host's own settings keeps containers from being
// reached or from reaching out, in words for the operator. It only reads.
func (m *Manager) Warnings(ctx context.Context) []string { return m.links.warnings(ctx) }

// Uplinks names the interfaces that lead out of the host, for a packet filter
// that has to name them: those that are up, have an IPv4 address and are
// neither ours nor a loopback. Sorted. Only on FreeBSD.
func (m *Manager) Uplinks(ctx context.Context) ([]string, error) {
	l, ok := m.links.(interface {
		uplinks(ctx context.Context) ([]string, error)
	})
	if !ok {
		return nil, fmt.Errorf("name the interfaces that lead out: %w", errdefs.ErrNotImplemented)
	}
	return l.uplinks(ctx)
}

// Close lets go of the system's handles and leaves everything in place.
func (m *Manager) Close() error { return m.links.close() }

// Destroy removes every interface, namespace and lease of this state directory.
func (m *Manager) Destroy(ctx context.Context) error {
	err := m.Sweep(ctx, nil)
	defer m.byWork.lock(bridgesKey)()
	for _, n := range m.List() {
		err = errors.Join(err, m.links.deleteLink(ctx, n.Bridge))
	}
	strays, listErr := m.links.owned(ctx)
	err = errors.Join(err, listErr)
	for _, s := range strays {
		if s.Kind != "c" {
			err = errors.Join(err, m.links.deleteLink(ctx, s.Name))
		}
	}
	if err != nil {
		return fmt.Errorf("remove networks: %w", err)
	}
	defer m.change()()
	m.state = emptyLeases(m.state.Boot)
	if err := os.Remove(m.file); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove networks: %w", err)
	}
	return nil
}
