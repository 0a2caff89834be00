// SPDX-License-Identifier: BSD-2-Clause

package healthcheck

import "time"

// What a probe uses where the spec leaves a field unset (zero). These four are
// Docker's, so that a spec written for Docker means the same here.
const (
	// DefaultInterval is the wait between the end of a probe and the next,
	// once the container has been healthy.
	DefaultInterval = 30 * time.Second
	// DefaultTimeout is how long a probe's process may run.
	DefaultTimeout = 30 * time.Second
	// DefaultRetries is the number of failures in a row that make a container
	// unhealthy.
	DefaultRetries = 3
	// DefaultStartPeriod is no grace: how long a boot takes is the workload's
	// own property, and a guess would only hide containers that never start.
	DefaultStartPeriod = 0 * time.Second
	// MaxStartInterval caps the wait while never yet healthy: min(interval,
	// 5 s), so that a long interval does not hold a container back that is
	// ready after three seconds. 5 s is Docker's default of StartInterval.
	MaxStartInterval = 5 * time.Second
)

// What a service that publishes a port uses instead. Its probe is what takes
// a dead backend out of a redirect pool that probes nothing itself, so the
// verdict must come in seconds. StartPeriod stays: it is boot time.
const (
	PublishedInterval = 5 * time.Second
	// PublishedTimeout is short because probes of one task never overlap: an
	// oversized timeout stretches detection to retries x (interval + timeout).
	PublishedTimeout = 3 * time.Second
	PublishedRetries = 2
)

// MinDuration is the shortest duration a spec may ask for, as in Docker: less
// is a unit mistake, and would be a busy loop.
const MinDuration = time.Millisecond

// Sizes of what is kept of probes.
const (
	// MaxLog is how many results inspect shows, as in Docker.
	MaxLog = 5
	// MaxOutput is how many bytes of a probe's output are kept, as in Docker.
	MaxOutput = 4096
	// ReasonOutput is how many bytes of output a failure's reason carries: the
	// line goes through the store and into a column of `service ps`.
	ReasonOutput = 200
)

// Bounds of one attempt and of the node.
const (
	// DefaultSlots is how many attempts run at a time on the node. Starting a
	// process in a container costs tens of milliseconds of CPU; a hundred at
	// once stall the machine, and then every one of them times out.
	DefaultSlots = 8
	// DefaultLightSlots is how many attempts run at a time on the node of the
	// kinds that start no process: HTTP, TCP and File. One costs a connection
	// and a few kilobytes; the bound is there for a node whose tasks all hang.
	DefaultLightSlots = 256
	// SetupLimit bounds the time from an attempt's begin to the moment its
	// process runs. It is not part of the probe's timeout: a busy runtime says
	// nothing about the workload. 30 s is what Docker allows.
	SetupLimit = 30 * time.Second
	// KillLimit is how long what an attempt started may take to be gone after
	// SIGKILL. Longer is a process stuck in the kernel: the attempt is written
	// off, so that it holds up neither the verdict nor other probes.
	KillLimit = 10 * time.Second
)

// PoolRepair is the longest a failed load of the redirect rules stays
// unrepaired: the period of the pass that sets pools right. It is the last
// term of WorstCase.
const PoolRepair = 5 * time.Second
