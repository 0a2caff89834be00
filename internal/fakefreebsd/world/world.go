// SPDX-License-Identifier: BSD-2-Clause

// Package world is the memory of a fake FreeBSD: its jails, interfaces,
// mounts, datasets, packet filter, sysctls and limits, and the faults that a
// test asked for. It is one JSON file under one lock, shared by the tools
// (package tool), each of which is a process of its own, and by the test. It
// decides nothing about how a tool behaves.
package world

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"satld/platform/atomicfile"
)

// World is everything that one fake host remembers.
type World struct {
	// RealNetwork makes ifconfig and route do what they are told to the
	// namespace they run in, and gives every VNET jail one of its own.
	RealNetwork bool

	Jails    []*Jail
	NextJID  int
	Links    []*Link
	Routes   []Route
	NextMAC  int
	Mounts   []Mount
	Datasets []*Dataset
	PF       PF
	Sysctls  map[string]string
	Rctl     []string
	Modules  []string
	Knobs    Knobs
	Faults   []*Fault
	// Wrongs are things no real host would forgive; a test fails by them.
	Wrongs []string

	save func() error
}

// Knobs are ways in which hosts differ, and slow deaths.
type Knobs struct {
	// NoDashJ: ifconfig and route of before 14.0 know no -j.
	NoDashJ bool
	// Dying is how long every jail that is removed from now on stays dying; a
	// jail's own net.inet.tcp.msl shortens it to twice that. Negative: until
	// Bury.
	Dying time.Duration
	// PidFileLate is how long after the end of `ocijail create` its pid file
	// holds the pid.
	PidFileLate time.Duration
	// Release is 14 or 15, as far as pf differs: of an anchor that was never
	// loaded, 14 says so on stderr and exits 0, and 15 exits 1; what an empty
	// table would redirect, 14 lets through to the host, and 15 drops.
	Release int
	// NoPF: the module is not loaded.
	NoPF bool
}

// Jail is one prison(9).
type Jail struct {
	JID      int
	Name     string
	Path     string
	Hostname string
	VNET     bool
	Params   []string          // allow.raw_sockets and the like
	Sysctls  map[string]string // of its VNET
	Dying    bool
	GoneAt   time.Time // of a dying one; zero: not before Bury
	RootDev  uint64    // its root directory, by which its processes are known
	RootIno  uint64
	NetNS    string // where its namespace is pinned, with RealNetwork
}

// Link is an interface.
type Link struct {
	Name        string
	Kind        string // "lo", "ether", "bridge", "epair", "vxlan"
	Unit        int    // the number that a bridge, pair or tunnel was made with
	Jail        string // the VNET it is in, "" for the host
	MAC         string
	HWAddr      string // what MAC was before it was set
	MTU         int
	Up          bool
	Description string
	Groups      []string
	Inet        []string // prefixes, the address kept
	Members     []string // of a bridge
	Index       int

	// Of a bridge: what is set on a member, where it differs from a fresh one;
	// which member has an address for good; which addresses it is answered for.
	Ports     map[string]Port
	Static    map[string]string
	Published map[string]string
	VXLAN     VXLAN
}

// Port is what differs of a bridge's member.
type Port struct{ NoLearn, NoDiscover, Private bool }

// VXLAN is what a tunnel was made with.
type VXLAN struct {
	VNI                   int
	Local, Remote         string
	LocalPort, RemotePort int
	NoLearn               bool
}

// Route is one that was added by route(8).
type Route struct {
	Jail, Dest, Gateway, Link string
}

// Mount is an entry of the mount table, in the order they were made.
type Mount struct {
	From, On, Type, Options string
	Real                    bool // also mounted in this kernel
}

// Dataset is a ZFS file system or, with an @ in its name, a snapshot.
type Dataset struct {
	Name     string
	Origin   string // of a clone
	Props    map[string]string
	Mounted  string // where
	Deferred bool   // a snapshot that goes with its last clone
	Created  int
}

// Snapshot tells which of the two it is.
func (d *Dataset) Snapshot() bool {
	for _, c := range d.Name {
		if c == '@' {
			return true
		}
	}
	return false
}

// Fault is trouble for calls of a tool.
type Fault struct {
	// Match is what the command line, tool and arguments joined by spaces, must contain.
	Match string
	// Times is how many calls it hits; 0 is every one until Clear.
	Times int
	// Hang is how long the call waits before it goes on.
	Hang time.Duration
	// Exit, unless 0, is how it ends, without having done anything; with
	// Done, after having done it.
	Exit int
	Done bool
	// Stdout and Stderr are printed instead of what the tool would print. A
	// fault with Stdout and Exit 0 is a lie.
	Stdout, Stderr string
	// Crash kills `ocijail create` right after jail_set(2).
	Crash bool

	Hits int // how many calls it has hit
}

// fileMode of what the world keeps: the test's user alone.
const fileMode = 0o600

// Init writes a fresh world.
func Init(dir string, w *World) error { return save(dir, w) }

// Update runs change on the world while nobody else has it, and keeps the
// result also when change returns an error.
func Update(dir string, change func(w *World) error) error {
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, fileMode)
	if err != nil {
		return fmt.Errorf("lock the fake host: %w", err)
	}
	defer lock.Close()
	for err = syscall.EINTR; err == syscall.EINTR; {
		err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX)
	}
	if err != nil {
		return fmt.Errorf("lock the fake host: %w", err)
	}
	w, err := load(dir)
	if err != nil {
		return err
	}
	w.save = func() error { return save(dir, w) }
	return errors.Join(change(w), w.save())
}

// Save writes down what was changed so far, in the midst of an Update: before
// something that is not undone when the tool is killed. What is written down
// and was not done yet is taken for done by whoever undoes it.
func (w *World) Save() error { return w.save() }

// Read gives a copy of the world.
func Read(dir string) (*World, error) { return load(dir) }

func load(dir string) (*World, error) {
	data, err := os.ReadFile(filepath.Join(dir, "world.json"))
	if err != nil {
		return nil, fmt.Errorf("read the fake host: %w", err)
	}
	w := new(World)
	if err := json.Unmarshal(data, w); err != nil {
		return nil, fmt.Errorf("read the fake host: %w", err)
	}
	return w, nil
}

func save(dir string, w *World) error {
	data, err := json.MarshalIndent(w, "", " ")
	if err != nil {
		return err
	}
	if err := atomicfile.Write(filepath.Join(dir, "world.json"), data, fileMode); err != nil {
		return fmt.Errorf("write the fake host: %w", err)
	}
	return nil
}

// Exists tells whether dir holds a world.
func Exists(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "world.json"))
	return !errors.Is(err, fs.ErrNotExist)
}

// Wrong notes something that no real host would forgive.
func (w *World) Wrong(format string, args ...any) {
	w.Wrongs = append(w.Wrongs, fmt.Sprintf(format, args...))
}

// Jail finds a jail by name or number, dying ones too.
func (w *World) Jail(name string) *Jail {
	for _, j := range w.Jails {
		if j.Name == name || fmt.Sprint(j.JID) == name {
			return j
		}
	}
	return nil
}

// LiveJail finds one that is not dying.
func (w *World) LiveJail(name string) *Jail {
	if j := w.Jail(name); j != nil && !j.Dying {
		return j
	}
	return nil
}

// Link finds an interface of a VNET ("" for the host).
func (w *World) Link(jail, name string) *Link {
	for _, l := range w.Links {
		if l.Jail == jail && l.Name == name {
			return l
		}
	}
	return nil
}

// Dataset finds a file system or snapshot.
func (w *World) Dataset(name string) *Dataset {
	for _, d := range w.Datasets {
		if d.Name == name {
			return d
		}
	}
	return nil
}

// MountOn finds what is mounted on a path, the last if several are.
func (w *World) MountOn(path string) *Mount {
	for i := len(w.Mounts) - 1; i >= 0; i-- {
		if w.Mounts[i].On == path {
			return &w.Mounts[i]
		}
	}
	return nil
}

// DropMount forgets the last mount on a path.
func (w *World) DropMount(path string) {
	for i := len(w.Mounts) - 1; i >= 0; i-- {
		if w.Mounts[i].On == path {
			w.Mounts = slices.Delete(w.Mounts, i, i+1)
			return
		}
	}
}

// TakeFault finds the first fault that hits a command line, and counts the hit.
func (w *World) TakeFault(line string) *Fault {
	for _, f := range w.Faults {
		if contains(line, f.Match) && (f.Times == 0 || f.Hits < f.Times) {
			f.Hits++
			return f
		}
	}
	return nil
}
