// SPDX-License-Identifier: BSD-2-Clause

package raft

import (
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Reasons for a write that did not take place, or of which nobody can tell yet.
// All of them mean: read again, then try again.
var (
	// ErrNotLeader: another node leads, or none does; nothing was written.
	ErrNotLeader = errors.New("this node does not lead the cluster")
	// ErrUndecided: an earlier write is still in the log without being applied;
	// nothing was written.
	ErrUndecided = errors.New("an earlier write is still undecided")
	// ErrStale: the store changed under the transaction; nothing was written.
	ErrStale = errors.New("the store changed meanwhile")
	// ErrStorage: the state directory cannot be written, so this node cannot lead.
	ErrStorage = errors.New("the state directory cannot be written")
	// ErrUnknown: the write was handed to the log and may still take place.
	ErrUnknown = errors.New("it is not known whether the write takes place")
	// ErrNotMember: the configuration on disk does not hold this server.
	ErrNotMember = errors.New("this server is not a member of the stored cluster")
	// ErrClosed: the node was shut down.
	ErrClosed = errors.New("the cluster store is closed")
)

// WriteError says that a proposal failed, and why. It is one of the errors
// above and, for callers across packages and sockets, both unavailable
// (errdefs.IsUnavailable) and the gRPC status Unavailable.
type WriteError struct {
	Reason error // one of the errors above
	Cause  error // what raft said; may be nil
}

func (e *WriteError) Error() string {
	if e.Cause == nil {
		return fmt.Sprintf("write to the cluster store: %v: read again and retry", e.Reason)
	}
	return fmt.Sprintf("write to the cluster store: %v (%v): read again and retry", e.Reason, e.Cause)
}

// Unwrap lets errors.Is find the reason and the cause.
func (e *WriteError) Unwrap() []error {
	if e.Cause == nil {
		return []error{e.Reason}
	}
	return []error{e.Reason, e.Cause}
}

// Unavailable marks the error as errdefs.ErrUnavailable does: HTTP 503.
func (e *WriteError) Unavailable() {}

// GRPCStatus makes gRPC carry the error as Unavailable instead of Unknown.
func (e *WriteError) GRPCStatus() *status.Status {
	return status.New(codes.Unavailable, e.Error())
}

// DamagedError says that a file of the state directory cannot be used, and
// what an operator can do about it.
type DamagedError struct {
	Path   string
	Advice string
	Err    error
}

func (e *DamagedError) Error() string {
	return fmt.Sprintf("%s is damaged: %v; %s", e.Path, e.Err, e.Advice)
}

func (e *DamagedError) Unwrap() error { return e.Err }
