// SPDX-License-Identifier: BSD-2-Clause

// Package jail runs containers: the OCI bundle, the runtime driver (runc on
// Linux, ocijail on FreeBSD, behind one type), the shim that holds output and
// exit status, logs, exec. It knows nothing of tasks, health or traffic.
package jail

import (
	"context"
	"io"
	"net/netip"
	"time"
)

// Spec is all that a container's runtime needs to know of it.
type Spec struct {
	ID         string // 64 hex digits; the runtime's container ID and, on FreeBSD, the jail's name
	TaskID     string // empty for a container that belongs to no task
	Rootfs     string // absolute path of the mounted root
	ReadOnly   bool   // read-only root
	Args       []string
	Env        []string
	Cwd        string   // created when missing; "" is "/"
	User       string   // as in an image's config: name, uid, name:group, uid:gid; "" is root
	Groups     []string // additional groups (service --group, run --group-add)
	TTY        bool
	OpenStdin  bool // keep a stdin for attach; otherwise /dev/null
	Hostname   string
	Domainname string
	// NetNS is the path of the network namespace the container joins (Linux);
	// on FreeBSD the jail has its own VNET and network plumbs it.
	NetNS           string
	HostNetwork     bool // run in the host's own network stack
	Mounts          []Mount
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
	LogMaxSize      int64      // bytes per log file before it rotates; 0 is the default
	LogMaxFiles     int        // files kept, the current one included; 0 is the default
	Address         netip.Addr // for runtimes that plumb by address; may be invalid
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

// Exit is how a container's main process ended.
type Exit struct {
	Code      int // 0-255; 128+signal when killed by one; -1 when it was lost
	At        time.Time
	OOMKilled bool
}

// ExecSpec is one `exec` into a running container.
type ExecSpec struct {
	Args       []string
	Env        []string // added to the container's own
	Cwd        string   // "" is the container's
	User       string   // "" is the container's
	TTY        bool
	Privileged bool
	Stdin      io.Reader // nil is /dev/null
	Stdout     io.Writer // nil discards; with TTY all output comes here
	Stderr     io.Writer
}

// Process is a started exec.
type Process interface {
	Pid() int // in the host's PID namespace
	// Wait returns the exit code when the process has ended and its output
	// has been copied.
	Wait() (code int, err error)
	Resize(width, height uint16) error
	Kill(sig int) error
}

// LogLine is one line (or, when it was longer than 16 KiB, a part of one) of
// a container's output.
type LogLine struct {
	Time    time.Time
	Stream  string // "stdout" or "stderr"
	Line    []byte // with its newline, unless Partial
	Partial bool
}

// LogQuery selects log lines; zero fields select everything.
type LogQuery struct {
	Stdout, Stderr bool
	Since, Until   time.Time
	Tail           int  // last N lines; -1 is all
	Follow         bool // go on until the container has ended or ctx is done
}

// Runtime is what the rest of the program uses of this package. *Manager
// implements it; executor and its tests consume it.
//
// Every method is safe for concurrent use and bounded in time by its context;
// no lock is held across a runtime call, so that one stuck container never
// delays another one's.
type Runtime interface {
	// Create writes the bundle and makes the container: its first process
	// exists, has not run yet, and its output is held by the shim. A
	// leftover of the same ID from a crash is removed first.
	Create(ctx context.Context, spec Spec) (pid int, err error)
	// Start lets the first process run and returns when that was. Starting a
	// container that was started already returns that earlier time.
	Start(ctx context.Context, id string) (time.Time, error)
	// Wait blocks until the main process has ended, also for one that was
	// started under an earlier daemon. It may be called any number of times.
	Wait(ctx context.Context, id string) (Exit, error)
	// Running tells whether the main process lives, and its host pid.
	Running(ctx context.Context, id string) (pid int, running bool, err error)
	// Kill signals the main process; a container that has ended is no error.
	Kill(ctx context.Context, id string, sig int) error
	// Delete kills every process left, unmounts, and removes the runtime's
	// state of the container; logs and exit status stay until Forget. It is
	// idempotent and can be resumed after a crash at any step.
	Delete(ctx context.Context, id string) error
	// Forget removes what Delete left: logs, exit status, the bundle.
	Forget(ctx context.Context, id string) error
	// List names the containers the runtime knows.
	List(ctx context.Context) ([]string, error)
	Pause(ctx context.Context, id string) error
	Resume(ctx context.Context, id string) error
	Exec(ctx context.Context, id string, spec ExecSpec) (Process, error)
	// Attach copies the container's live output to stdout and stderr (one
	// stream with TTY) and stdin, if not nil, to it, until the container
	// ends or ctx is done.
	Attach(ctx context.Context, id string, stdin io.Reader, stdout, stderr io.Writer) error
	Resize(ctx context.Context, id string, width, height uint16) error
	// Logs calls each for every selected line, in order.
	Logs(ctx context.Context, id string, q LogQuery, each func(LogLine) error) error
	// Pids lists the host pids of the container's processes.
	Pids(ctx context.Context, id string) ([]int, error)
	// RunProbe: see healthcheck.Runner.
	RunProbe(kill context.Context, id string, argv []string, out io.Writer, started func()) (exitCode int, err error)
}
