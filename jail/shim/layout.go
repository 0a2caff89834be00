// SPDX-License-Identifier: BSD-2-Clause

// Package shim is the small process, one per node, that outlives the daemon:
// it is the parent of the containers' first processes, so it learns their
// exit status, and it holds the reading ends of their output, so nothing they
// print is lost while no daemon runs. It decides nothing: it does what it is
// asked through a socket in the state directory and writes down what happens.
// The package is also the daemon's side of that socket.
//
// It must stay small in memory, so it imports little.
package shim

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"satld/platform/atomicfile"
)

// Dir is a state directory: what the shim and the daemon both read and write.
type Dir string

const (
	socketName  = "shim.sock"
	lockName    = "shim.lock"
	initName    = "init.json"
	startedName = "started.json"
	endedName   = "ended.json" // an exit that is not for all to see yet
	exitName    = "exit.json"
)

// Containers is the directory that has one directory per container.
func (d Dir) Containers() string { return filepath.Join(string(d), "containers") }

// Container is the directory of one container: its bundle, its pipes, its log.
func (d Dir) Container(id string) string { return filepath.Join(d.Containers(), id) }

// Logs is the directory of a container's log.
func (d Dir) Logs(id string) string { return filepath.Join(d.Container(id), "log") }

// ShimLog is the file that the shim's own messages go to.
func (d Dir) ShimLog() string { return filepath.Join(string(d), "shim.log") }

func (d Dir) file(id, name string) string { return filepath.Join(d.Container(id), name) }

// Init is a container's first process and what a new shim must know to take
// it over.
type Init struct {
	Pid     int
	Ticks   uint64 // start time as the kernel counts it: with Pid, an identity
	Waiting string `json:",omitempty"` // its command line while it waits for start
	OOMFile string `json:",omitempty"` // see cgroup.OOMFile
	// End is run when the first process has ended, where the kernel does not
	// end the others of the container with it.
	End         []string `json:",omitempty"`
	TTY         bool     `json:",omitempty"`
	Stdin       bool     `json:",omitempty"`
	StdinOnce   bool     `json:",omitempty"`
	LogMaxSize  int64    `json:",omitempty"`
	LogMaxFiles int      `json:",omitempty"`
}

// Started is when the first process was let run. It says nothing once the
// machine was started anew, so that no start waits for the disk because of it.
type Started struct{ At time.Time }

// Exit is how it ended.
type Exit struct {
	Code      int // 0-255, 128+signal when killed by one, -1 when nobody saw it
	At        time.Time
	OOMKilled bool
}

// ErrDamaged says that a file is there and makes no sense: the disk lost what
// was in it, or somebody wrote over it.
var ErrDamaged = errors.New("damaged")

// ReadInit, ReadStarted and ReadExit read what is written down of a
// container; ok is false when it is not (yet).
func (d Dir) ReadInit(id string) (v Init, ok bool, err error) {
	path := d.file(id, initName)
	ok, err = readJSON(path, &v)
	if ok && v.Pid <= 0 {
		return v, false, fmt.Errorf("read %s: %w: it names no process", path, ErrDamaged)
	}
	return v, ok, err
}

// ReadStarted: see ReadInit. The file is written when the first process is let
// run, so that its age says when that was should it be damaged.
func (d Dir) ReadStarted(id string) (v Started, ok bool, err error) {
	path := d.file(id, startedName)
	ok, err = readJSON(path, &v)
	if errors.Is(err, ErrDamaged) {
		st, serr := os.Stat(path)
		if serr != nil {
			return v, false, serr
		}
		return Started{At: st.ModTime()}, true, nil
	}
	return v, ok, err
}

// ReadExit: see ReadInit.
func (d Dir) ReadExit(id string) (v Exit, ok bool, err error) {
	ok, err = readJSON(d.file(id, exitName), &v)
	return v, ok, err
}

// writeInit waits for the disk: a container whose first process is not known
// any more after a power cut would be waited for for good.
func (d Dir) writeInit(id string, v Init) error {
	return writeJSON(atomicfile.WriteDurably, d.file(id, initName), v)
}

func (d Dir) writeStarted(id string, v Started) error {
	return writeJSON(atomicfile.Write, d.file(id, startedName), v)
}

// WriteExit writes down how a container ended, unless that is known already.
func (d Dir) WriteExit(id string, e Exit) error {
	if known, err := d.knowsExit(id); known || err != nil {
		return err
	}
	return writeJSON(atomicfile.WriteDurably, d.file(id, exitName), e)
}

// knowsExit tells whether an exit is written down that can be read.
func (d Dir) knowsExit(id string) (bool, error) {
	_, ok, err := d.ReadExit(id)
	if errors.Is(err, ErrDamaged) {
		return false, nil
	}
	return ok, err
}

// writeEnded writes down the exit before the output that came before it is in
// the log. It waits for the disk: there is no other copy of an exit status, and
// a task that ended well would be run again.
func (d Dir) writeEnded(id string, e Exit) error {
	return writeJSON(atomicfile.WriteDurably, d.file(id, endedName), e)
}

func (d Dir) readEnded(id string) (v Exit, ok bool, err error) {
	ok, err = readJSON(d.file(id, endedName), &v)
	return v, ok, err
}

// publishEnded makes it the exit, unless the daemon wrote down another. A power
// cut may undo that: the next shim finds it again.
func (d Dir) publishEnded(id string) error {
	if known, err := d.knowsExit(id); known || err != nil {
		return err
	}
	return os.Rename(d.file(id, endedName), d.file(id, exitName))
}

func readJSON(path string, v any) (bool, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return false, fmt.Errorf("read %s: %w: %w", path, ErrDamaged, err)
	}
	return true, nil
}

// writeJSON writes a value by one of atomicfile's ways.
func writeJSON(write func(path string, data []byte, mode fs.FileMode) error, path string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return write(path, b, 0o600)
}
