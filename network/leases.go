// SPDX-License-Identifier: BSD-2-Clause

package network

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"time"

	"satld/platform/atomicfile"
)

// leases is what the state directory remembers: which networks this node has
// and which container has which address. It is written before what it names is
// made, so that a crash at any point leaves nothing unnamed.
//
// It does not wait for the disk, at each attachment: only a crash of the machine
// could lose what was written, and that takes the interfaces with it (Boot).
type leases struct {
	Version int `json:"version"`
	// Boot is the kernel's boot ID: links, namespaces and containers do not
	// outlive it, so after a reboot leases are dropped and networks are kept.
	Boot     string                   `json:"boot,omitempty"`
	Networks map[string]networkRecord `json:"networks"`
	Leases   map[string][]Attachment  `json:"leases"`
	// Released holds addresses that may not be given out again yet.
	Released map[netip.Addr]time.Time `json:"released,omitempty"`
	// Making holds interfaces that are being made and bear no mark yet.
	Making map[string]unfinished `json:"making,omitempty"`
}

type networkRecord struct {
	Network
	Cursor netip.Addr `json:"cursor"` // the address given out last
}

const leasesVersion = 1

func emptyLeases(boot string) *leases {
	return &leases{
		Version: leasesVersion, Boot: boot,
		Networks: map[string]networkRecord{}, Leases: map[string][]Attachment{}, Released: map[netip.Addr]time.Time{}, Making: map[string]unfinished{},
	}
}

// loadLeases reads the file. A missing one is an empty one. One that does not
// parse is set aside under the name that is returned.
func loadLeases(path, boot string) (l *leases, setAside string, err error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return emptyLeases(boot), "", nil
	}
	if err != nil {
		return nil, "", fmt.Errorf("read leases: %w", err)
	}
	l = emptyLeases(boot)
	if err := json.Unmarshal(text, l); err != nil {
		setAside = path + ".unreadable"
		if err := os.Rename(path, setAside); err != nil {
			return nil, "", fmt.Errorf("set unreadable leases aside: %w", err)
		}
		return emptyLeases(boot), setAside, nil
	}
	if l.Version > leasesVersion {
		return nil, "", fmt.Errorf("leases %s: version %d is of a newer satld", path, l.Version)
	}
	if l.Boot != boot {
		l.Boot, l.Leases, l.Released, l.Making = boot, map[string][]Attachment{}, map[netip.Addr]time.Time{}, map[string]unfinished{}
	}
	// A null in the file must not become a nil map.
	fresh := emptyLeases(boot)
	if l.Networks == nil {
		l.Networks = fresh.Networks
	}
	if l.Leases == nil {
		l.Leases = fresh.Leases
	}
	if l.Released == nil {
		l.Released = fresh.Released
	}
	if l.Making == nil {
		l.Making = fresh.Making
	}
	return l, "", nil
}

// change makes its caller the one who changes the state, until it calls done.
func (m *Manager) change() (done func()) {
	m.changing.Lock()
	m.mu.Lock()
	return func() {
		m.mu.Unlock()
		m.changing.Unlock()
	}
}

// save writes the state whole, or leaves the old one on the disk. It is for who
// changes the state. Whoever only reads it, as traffic does with each change,
// does not wait for the disk, and sees what is being written.
func (m *Manager) save() error {
	text, err := json.MarshalIndent(m.state, "", " ")
	if err != nil {
		return fmt.Errorf("write leases: %w", err)
	}
	m.mu.Unlock()
	defer m.mu.Lock()
	if err := atomicfile.Write(m.file, append(text, '\n'), 0o600); err != nil {
		return fmt.Errorf("write leases: %w", err)
	}
	return nil
}

// taken is every address that a container has.
func (l *leases) taken() map[netip.Addr]bool {
	t := make(map[netip.Addr]bool)
	for _, at := range l.Leases {
		for _, a := range at {
			t[a.Addr.Addr()] = true
		}
	}
	return t
}

// forget drops released addresses whose delay is over. Of one that was released
// in the future, as the clock was set back since, the delay begins now.
func (l *leases) forget(now time.Time, reuse time.Duration) {
	for a, at := range l.Released {
		if now.Sub(at) >= reuse {
			delete(l.Released, a)
		} else if at.After(now) {
			l.Released[a] = now
		}
	}
}

// attached counts the containers in a network.
func (l *leases) attached(networkID string) (n int) {
	for _, at := range l.Leases {
		for _, a := range at {
			if a.NetworkID == networkID {
				n++
			}
		}
	}
	return n
}
