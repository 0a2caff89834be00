// SPDX-License-Identifier: BSD-2-Clause

package history

import (
	"fmt"
	"time"
)

// Kind is what a client asked for.
type Kind int

const (
	Create Kind = iota // of Key, with the value Born
	Swap               // of the service Born: From to To
	Delete             // of the service Born
	Read               // of Key
)

func (k Kind) String() string { return [...]string{"create", "swap", "delete", "read"}[k] }

// Outcome is what its answer says of a request.
type Outcome int

const (
	Done    Outcome = iota // it took place, before the answer
	Refused                // it did not and never will
	Unknown                // it may have, or may yet
)

func (o Outcome) String() string { return [...]string{"done", "refused", "unknown"}[o] }

// Seen is a service as it was read.
type Seen struct {
	ID, Born, Value string
	Version         uint64    // grows with each value
	Created         time.Time // by the leader's clock
}

// Op is one request of a client, which has one at a time, and its answer.
type Op struct {
	Client, Manager int // Manager is the one that was asked
	Kind            Kind
	Key             string
	Born, From, To  string
	Version         uint64        // of a Swap: the version it was made on
	Call, Return    time.Duration // since the beginning, by one clock
	Outcome         Outcome
	Gone            bool   // of a refusal: there is no such service there
	Seen            *Seen  // of a Read; nil is none
	Text            string // of an answer that is not Done
}

func (o Op) String() string {
	var what string
	switch o.Kind {
	case Create:
		what = o.Born
	case Swap:
		what = fmt.Sprintf("%s %s->%s v%d", o.Born, o.From, o.To, o.Version)
	case Delete:
		what = o.Born
	case Read:
		if what = "none"; o.Seen != nil {
			what = fmt.Sprintf("%s=%s v%d", o.Seen.Born, o.Seen.Value, o.Seen.Version)
		}
	}
	return fmt.Sprintf("%v..%v client %d at %d: %s %s %s: %s %s", o.Call.Round(time.Microsecond), o.Return.Round(time.Microsecond),
		o.Client, o.Manager, o.Kind, o.Key, what, o.Outcome, o.Text)
}
