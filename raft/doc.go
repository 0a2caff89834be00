// SPDX-License-Identifier: BSD-2-Clause

// Package raft makes hashicorp/raft the proposer of SwarmKit's store: it owns
// the log, the snapshots and the membership of this node, and decides in which
// order, and whether, a transaction takes place. It knows nothing of services,
// tasks or certificates.
//
// # How a write takes place
//
// The store opens a transaction on the state as applied so far and calls
// ProposeValue while it holds its update lock, so at most one of this node's
// proposals is in flight. The entry carries the index the transaction was
// computed on. When the entry is applied, exactly one of two things happens:
// on the node that still waits for it the transaction itself is committed (the
// callback); everywhere else its actions are applied to the store.
//
// A proposal that times out or outlives this node's leadership is given up:
// its caller gets an error that says the outcome is unknown, and should the
// entry be committed after all, it is applied as anybody else's would be.
// While such an entry is undecided no further proposal is admitted.
//
// An entry computed on another state than the one it meets is void, on every
// node alike, because each compares the same two numbers. So a leader that was
// replaced without noticing can never overwrite what it has not seen.
package raft
