// SPDX-License-Identifier: BSD-2-Clause

// Package history judges what clients of a cluster were told against what a
// cluster may do: whether some order of their writes explains every answer and
// the state at the end (Linearizable, by porcupine), whether a client ever read
// something older than it knew of already (Sessions), and whether everything
// read was written, once (Accounts).
//
// The objects are services: a key is a name, under which one service at a time
// exists. Each service that is created carries a word of its own, Born, and
// each of its values another, so that whatever is read names the write that it
// comes from. A value is changed by compare-and-swap on the version that was
// read with the one before.
package history
