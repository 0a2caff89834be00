// SPDX-License-Identifier: BSD-2-Clause

// Command tool is every program of the fake FreeBSD: which one, its own name
// says. The state is in the directory beside the one it was called in. One
// file a program; what each does and does not is said there. Sources: the
// manual pages of FreeBSD, ocijail's behaviour as facts/freebsd.md tells it,
// and outputs captured on real hosts.
package main
