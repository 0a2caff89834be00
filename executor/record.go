// SPDX-License-Identifier: BSD-2-Clause

package executor

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/docker/docker/api/types/container"

	"satld/platform/atomicfile"
)

// recordVersion is bumped when an older daemon could not read the record.
const recordVersion = 1

// Record is what is kept of a container under the state directory, so that a
// later daemon takes it over undisturbed. Health is not in it: it is never
// persisted (spec/healthchecks.txt, "Health is node-local").
type Record struct {
	Version int
	ID      string
	Name    string
	Image   string
	ImageID string
	OS      string // of the image, as its configuration says
	Created time.Time

	TaskID      string
	ServiceID   string
	ServiceName string
	NodeID      string
	Slot        uint64

	Config     *container.Config
	HostConfig *container.HostConfig
	NetworkIDs []string
	Aliases    map[string][]string   // by network ID
	Addrs      map[string]netip.Addr // given ones, by network ID; of others the node picks
	IngressID  string                // of NetworkIDs, the one that redirected traffic of other nodes comes by; no name is in it
	Ports      []PortBinding
	ProbePort  uint16 // of a probe that names none
	Args       []string
	FailOpen   bool          // service label satl.traffic.fail-open
	NotReady   bool          // service label satl.dns.not-ready
	Drain      time.Duration // service label satl.traffic.drain
	InTurn     bool          // service label satl.health.replace-parallelism: the leader says when
	Host       bool          // runs in the host's own network stack

	State     State
	Run       int    // counts starts where each has a runtime ID of its own
	Root      string // the directory that it sees as "/", of the last run
	Started   time.Time
	Finished  time.Time
	ExitCode  int
	OOMKilled bool
	Error     string
	Restarts  int

	Boot      string // Config.Boot when it was started
	Proved    bool   // a probe has passed, or there is none: it was observed RUNNING
	Withdrawn bool   // taken out of traffic for good
	Unhealthy string // why it is to be replaced; empty while it is not
	Unrouted  string // why it is out of traffic until it passes; empty while it is not
	Unready   bool   // an operator took it out of traffic
	InRollout bool   // a rollout made it and has not seen it run for long enough
	Stopping  bool   // somebody asked for its stop, or its turn to be replaced came
	Discarded bool   // its task is no longer this node's: removed as soon as it has ended

	// Of a stop under way, so that a later daemon finishes it.
	StopSignal int           // 0 is the container's own
	StopGrace  time.Duration // between signal and SIGKILL; negative: it is never killed
	DrainBy    time.Time     // when its drain is over; zero: it has not begun, or there is none
	StopBy     time.Time     // when its grace is over; zero: no signal was sent yet, or it is never killed
}

// runtimeID names the container's run for the runtime and for networks. It is
// the container's ID, and where names are used once each later run has a
// suffix: a dying jail blocks its name (facts/freebsd.md, "A dying jail").
func (r Record) runtimeID() string {
	if r.Run < 2 {
		return r.ID
	}
	return r.ID + "-" + strconv.Itoa(r.Run)
}

// earlierRun names the run before the last one, "" without.
func (r Record) earlierRun() string {
	if r.Run < 2 {
		return ""
	}
	r.Run--
	return r.runtimeID()
}

// endRun forgets what belongs to one run only.
func (r *Record) endRun() {
	r.Proved, r.Withdrawn, r.Stopping, r.Unhealthy, r.Unrouted, r.Error = false, false, false, "", "", ""
	r.StopSignal, r.StopGrace, r.DrainBy, r.StopBy = 0, 0, time.Time{}, time.Time{}
	r.OOMKilled = false
}

// recordFile is where a container's record is kept.
func recordFile(dir, id string) string { return filepath.Join(dir, id, "container.json") }

// fileMode of what the node writes down.
const fileMode = 0o600

// saveRecord writes the record in one step. It does not wait for the disk, at
// each change of a container's state: a power cut ends the container, and its
// task is replaced whatever the record says. One that is damaged by then costs
// its container (loadRecords).
func saveRecord(dir string, r Record) error {
	r.Version = recordVersion
	data, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode record of container %s: %w", r.ID, err)
	}
	path := recordFile(dir, r.ID)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("save record of container %s: %w", r.ID, err)
	}
	if err := atomicfile.Write(path, data, fileMode); err != nil {
		return fmt.Errorf("save record of container %s: %w", r.ID, err)
	}
	return nil
}

// loadRecords reads every record. A directory without one is a container
// whose creation or removal was cut short, or whose record a power loss
// garbled (damaged says which): it is named in strays.
func loadRecords(dir string) (records []Record, strays []string, damaged, err error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil, nil
	}
	if err != nil {
		return nil, nil, nil, fmt.Errorf("read containers: %w", err)
	}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		data, err := os.ReadFile(recordFile(dir, e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			strays = append(strays, e.Name())
			continue
		}
		if err != nil {
			return nil, nil, nil, fmt.Errorf("read record of container %s: %w", e.Name(), err)
		}
		var r Record
		if err := json.Unmarshal(data, &r); err != nil {
			damaged = errors.Join(damaged, fmt.Errorf("record %s: %w", recordFile(dir, e.Name()), err))
			strays = append(strays, e.Name())
			continue
		}
		if r.Version > recordVersion {
			return nil, nil, nil, fmt.Errorf("read record %s: version %d is from a newer satld than this one", recordFile(dir, e.Name()), r.Version)
		}
		records = append(records, r)
	}
	return records, strays, damaged, nil
}
