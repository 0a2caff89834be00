// SPDX-License-Identifier: BSD-2-Clause

package jail

import (
	"net/netip"

	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// Spec is all that a container's runtime needs to know of it.
type Spec struct {
	ID         string // the runtime's container ID and, on FreeBSD, the jail's name, of which each is used once
	TaskID     string // empty for a container that belongs to no task
	Rootfs     string // absolute path of the mounted root
	ReadOnly   bool   // read-only root
	Args       []string
	Env        []string
	Cwd        string   // created when missing; "" is "/"
	User       string   // as in an image's config: name, uid, name:group, uid:gid; "" is root
	Groups     []string // additional groups (service --group, run --group-add)
	TTY        bool
	Size       TermSize // of the terminal at first; zero is DefaultTermSize
	OpenStdin  bool     // keep a stdin for attach; otherwise /dev/null
	StdinOnce  bool     // the stdin ends when the first attach that had one ends
	Hostname   string
	Domainname string
	// NetNS is the path of the network namespace the container joins (Linux);
	// on FreeBSD the jail has its own VNET and network plumbs it.
	NetNS           string
	HostNetwork     bool // run in the host's own network stack
	Mounts          []Mount
	Files           []File // over the mounts
	CapAdd          []string
	CapDrop         []string
	Privileged      bool
	NoNewPrivileges bool
	Ulimits         []Ulimit
	Sysctls         map[string]string
	Init            bool  // run under a minimal init; refused where there is none
	MemoryBytes     int64 // limit; 0 is none
	NanoCPUs        int64 // limit; 0 is none
	Pids            int64 // limit; 0 is none
	ShmSize         int64 // bytes of /dev/shm; 0 is the default (64 MiB)
	OOMScoreAdj     int
	Annotations     map[string]string
	// OS is that of the image: "freebsd", "linux", or "" for the system's own.
	OS string
	// JailParams are the container's labels below satl.jail. without that
	// prefix, such as allow.mlock: parameters of its jail. See CheckParams.
	JailParams  map[string]string
	LogMaxSize  int64      // bytes per log file before it rotates; 0 is the default
	LogMaxFiles int        // files kept, the current one included; 0 is the default
	Address     netip.Addr // for runtimes that plumb by address; may be invalid
}

// TermSize is a terminal's size in characters.
type TermSize struct{ Rows, Columns uint16 }

// DefaultTermSize is a terminal's where nobody says: a program that asks for 0x0
// draws nothing, or not at all.
var DefaultTermSize = TermSize{Rows: 24, Columns: 80}

func (s TermSize) orDefault() TermSize {
	if s.Rows == 0 || s.Columns == 0 {
		return DefaultTermSize
	}
	return s
}

// box is the size as a bundle has it; nil without a terminal.
func (s TermSize) box(tty bool) *specs.Box {
	if !tty {
		return nil
	}
	s = s.orDefault()
	return &specs.Box{Height: uint(s.Rows), Width: uint(s.Columns)}
}

// Mount is one mount besides the standard ones. Type is "bind", "tmpfs".
type Mount struct {
	Type     string
	Source   string
	Target   string
	ReadOnly bool
	Options  []string // as for mount(8): size=..., mode=..., rprivate ...
}

// Ulimit is one rlimit, named as Docker does ("nofile").
type Ulimit struct {
	Name       string
	Soft, Hard uint64
}
