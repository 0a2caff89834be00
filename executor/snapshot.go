// SPDX-License-Identifier: BSD-2-Clause

package executor

import (
	"context"
	"io"
	"time"

	"github.com/docker/docker/api/types/container"

	"satld/healthcheck"
	"satld/jail"
	"satld/network"
)

// Snapshot is a container of this node as it is now: a value to read.
type Snapshot struct {
	ID           string
	Name         string   // without the leading slash: web.1.<task id>
	Aliases      []string // other names it answers to in the API: web.1, and web where one task of it runs here
	Image        string   // as it was asked for
	ImageID      string
	Created      time.Time
	State        State
	Started      time.Time
	Finished     time.Time
	ExitCode     int
	OOMKilled    bool
	Error        string // why it could not start
	Pid          int
	RestartCount int
	Stopping     bool   // it was told to stop
	Root         string // the directory that it sees as "/", as this host reaches it; "" while it does not run

	// Of a task; empty for `run`.
	TaskID, ServiceID, ServiceName, NodeID string
	Slot                                   uint64

	// Config, HostConfig and NetworkingConfig are as effective, defaults filled in.
	Config      *container.Config
	HostConfig  *container.HostConfig
	Networks    []network.Attachment
	HostNetwork bool
	Ports       []PortBinding
	Mounts      []jail.Mount
	Args        []string // the effective argument vector, Path first

	// Health is nil where there is no probe (cases/api.md, api-2).
	Health   *healthcheck.Health
	Settings *healthcheck.Settings // of its probe, as effective; nil without one

	// Serving: it may be sent traffic; else NotServing says why not.
	Serving    bool
	NotServing string
	// FailOpen: it is sent traffic all the same, as nobody of its service
	// passes and the service asks for that.
	FailOpen bool
}

// CreateRequest is `docker create`: name may be empty (one is made up).
type CreateRequest struct {
	Name       string
	Config     *container.Config
	HostConfig *container.HostConfig
	NetworkIDs []string            // networks to join, resolved; empty is the default network
	Aliases    map[string][]string // by network ID
}

// Containers is what the API uses of this package. *Node implements it.
// Containers are found by ID, unique prefix of an ID, name, or alias.
// Errors are typed with containerd/errdefs: ErrNotFound, ErrConflict
// (409: not running, name in use), ErrInvalidArgument, ErrNotModified (304)...
type Containers interface {
	List() []Snapshot
	Get(nameOrID string) (Snapshot, error)
	Create(ctx context.Context, req CreateRequest) (id string, warnings []string, err error)
	Start(ctx context.Context, nameOrID string) error
	// Stop sends the stop signal and, after grace (nil: the container's own),
	// SIGKILL. signal "" is the container's own.
	Stop(ctx context.Context, nameOrID string, grace *int, signal string) error
	Restart(ctx context.Context, nameOrID string, grace *int, signal string) error
	Kill(ctx context.Context, nameOrID string, signal string) error
	Remove(ctx context.Context, nameOrID string, force, volumes bool) error
	Rename(ctx context.Context, nameOrID, name string) error
	Pause(ctx context.Context, nameOrID string) error
	Unpause(ctx context.Context, nameOrID string) error
	// Wait returns a channel that receives once: how it ended. condition is
	// Docker's: "not-running" (default), "next-exit", "removed".
	Wait(ctx context.Context, nameOrID string, condition container.WaitCondition) (<-chan WaitResult, error)
	Logs(ctx context.Context, nameOrID string, q jail.LogQuery, each func(jail.LogLine) error) error
	Attach(ctx context.Context, nameOrID string, stdin io.Reader, stdout, stderr io.Writer) error
	Resize(ctx context.Context, nameOrID string, width, height uint16) error
	Exec(ctx context.Context, nameOrID string, spec jail.ExecSpec) (jail.Process, error)
	Top(ctx context.Context, nameOrID, psArgs string) (titles []string, rows [][]string, err error)
	// Size is the bytes of the container's own changes, and of its whole root.
	Size(ctx context.Context, nameOrID string) (rw, root int64, err error)
}

// WaitResult is how a container ended, or why waiting for it failed.
type WaitResult struct {
	ExitCode int
	Err      error
}
