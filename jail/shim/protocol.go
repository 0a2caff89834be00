// SPDX-License-Identifier: BSD-2-Clause

package shim

import (
	"errors"
	"fmt"
	"time"
)

// Version is the protocol's. A daemon talks to any shim of the same version;
// new requests are added without a new one, and an older shim answers them
// with KindUnsupported.
const Version = 1

// The requests. Each is one connection: a line of JSON up, a line of JSON
// down; then, for the streams, what is said with them.
const (
	opHello  = "hello"  // who are you
	opCreate = "create" // run the runtime's create, hold the container
	opStart  = "start"  // let the first process run
	opEvents = "events" // stream down: a line with the ID when its first process is gone, and one when its exit is written down
	opFollow = "follow" // stream down: a byte when there is new output, the end when there will be none
	opStdin  = "stdin"  // stream up: to the container's stdin
	opResize = "resize" // of the terminal
	opExec   = "exec"   // run the runtime's exec; a second answer down when the process has ended
	opSettle = "settle" // wait until no create of it is in progress
	opForget = "forget" // the container is deleted
	opQuit   = "quit"   // end, if no container is left
)

type request struct {
	V      int
	Op     string
	ID     string         `json:",omitempty"`
	Create *CreateRequest `json:",omitempty"`
	Start  *StartRequest  `json:",omitempty"`
	Exec   *ExecRequest   `json:",omitempty"`
	Width  uint16         `json:",omitempty"`
	Height uint16         `json:",omitempty"`
}

// CreateRequest asks the shim to run the runtime so that it makes a container.
type CreateRequest struct {
	// Argv is the runtime's command; an element ConsoleArg stands for the
	// path of the console socket.
	Argv    []string
	PidFile string // where the runtime writes the first process's pid
	// Errors is a file for what the command prints where that does not go to
	// the container's log, which is with a terminal; "" is nowhere.
	Errors  string `json:",omitempty"`
	Timeout time.Duration
	// Rows and Columns are the terminal's, if there is one.
	Rows    uint16 `json:",omitempty"`
	Columns uint16 `json:",omitempty"`
	Init    Init   // what is known of it already: all but Pid, Ticks and OOMFile
}

// ConsoleArg: see CreateRequest.
const ConsoleArg = "{console-socket}"

// StartRequest lets a created container run. Where Fifo is not empty, opening
// it does that (runc's exec.fifo); otherwise Argv is run.
type StartRequest struct {
	Fifo    string   `json:",omitempty"`
	Argv    []string `json:",omitempty"`
	Timeout time.Duration
}

// ExecRequest asks the shim to run the runtime so that it starts a process in a
// container and leaves it behind; the process's stdio, three files, are sent
// with the request.
type ExecRequest struct {
	Argv    []string
	PidFile string
	Timeout time.Duration
}

type response struct {
	V          int
	Error      string    `json:",omitempty"`
	Kind       Kind      `json:",omitempty"`
	Output     string    `json:",omitempty"` // of the runtime, where there is some
	Pid        int       `json:",omitempty"`
	At         time.Time `json:",omitzero"`
	Containers int       `json:",omitempty"`
	Busy       bool      `json:",omitempty"`
	Held       bool      `json:",omitempty"`
	Code       int       `json:",omitempty"`
}

// Kind is what a daemon branches on when the shim refuses.
type Kind string

// The kinds of refusal.
const (
	KindFailed      Kind = "failed"
	KindUnsupported Kind = "unsupported"
	KindNotFound    Kind = "not-found" // the shim holds no such container
	KindEnded       Kind = "ended"     // its first process has ended
	KindRuntime     Kind = "runtime"   // the runtime said no; Output has its words
)

// Error is a refusal.
type Error struct {
	Kind   Kind
	Text   string
	Output string
}

func (e *Error) Error() string {
	if e.Output != "" {
		return e.Text + ": " + e.Output
	}
	return e.Text
}

// IsKind tells whether err is a refusal of that kind.
func IsKind(err error, k Kind) bool {
	var e *Error
	return errors.As(err, &e) && e.Kind == k
}

func refuse(k Kind, format string, args ...any) *Error {
	return &Error{Kind: k, Text: fmt.Sprintf(format, args...)}
}
