// SPDX-License-Identifier: BSD-2-Clause

package executor

import (
	"fmt"
	"slices"
)

// State is where a container of this node is in its life.
type State int

// The states of a container, in the order it passes through them.
const (
	Created State = iota
	Running
	Paused
	Exited
	Removing
	Dead // its removal failed and is retried
)

var stateNames = [...]string{"created", "running", "paused", "exited", "removing", "dead"}

// String is Docker's name of the state.
func (s State) String() string {
	if s < 0 || int(s) >= len(stateNames) {
		return fmt.Sprintf("state(%d)", int(s))
	}
	return stateNames[s]
}

// next are the states that may follow each state. An exited `run` container
// may be started again.
var next = map[State][]State{
	Created:  {Running, Exited, Removing},
	Running:  {Paused, Exited},
	Paused:   {Running, Exited},
	Exited:   {Running, Removing},
	Removing: {Dead},
	Dead:     {Removing},
}

// Advance returns to, or an error when that step is not one of a container's life.
func (s State) Advance(to State) (State, error) {
	if s == to || slices.Contains(next[s], to) {
		return to, nil
	}
	return s, fmt.Errorf("a container that is %s cannot become %s", s, to)
}

// Live tells whether the container's main process exists.
func (s State) Live() bool { return s == Running || s == Paused }
