// SPDX-License-Identifier: BSD-2-Clause

// Package fakefreebsd is a FreeBSD host to drive the FreeBSD code path with on
// Linux: stand-ins for ocijail, pfctl, ifconfig, route, netstat, arp, jls, jail,
// jexec, ps, zfs, mount, umount, devfs, sysctl, kldstat, kldload and rctl, which
// behave as facts/freebsd.md and the manual pages say, and which fail on demand.
// For tests only.
//
// Install makes one host: Bin goes first in PATH, and the tools there share a
// memory of their own (package world), which the test reads and changes through
// the Fake. Several hosts in one process do not know of each other.
//
// What is real. A jail's processes are real ones, chrooted into the bundle's
// root with the stdio that `ocijail create` inherited; a jail is known by its
// root directory, so two live jails must not share one. Mounts are real ones
// where root makes them: nullfs is a bind mount, tmpfs is tmpfs, devfs, fdescfs
// and ZFS file systems are a tmpfs each, so with a device number of their own.
// That needs root. Packets do not pass through the fake pf: Packet asks what it
// would do with one, states included, and the test then speaks to the member.
//
// How a jail is reached. By default interfaces exist in memory only, and what a
// jail runs shares the network of the test. After RealNetwork, ifconfig and
// route also do what they are told in the network namespace in which they run:
// a bridge is a bridge, an epair is a veth, a vxlan is a vxlan that this kernel's
// forwarding entries are set on, a VNET jail has a namespace of its own. A daemon in a namespace of the test's making then reaches its tasks at
// their addresses, on any port, as on FreeBSD. Do not ask for it in the
// machine's own namespace.
//
// What differs from a real host, on purpose. Where ocijail unmounts by force,
// the fake refuses while somebody uses the mount, which is harder on its caller.
// A dying jail (Dying) keeps its interfaces and the file system that its root is
// on until it is gone. Things that a real host punishes with a panic or a mess
// are kept in Wrongs, and fail the test at its end: an epair destroyed while its
// other end is in a VNET, an interface that returns to a host that has its name,
// a devfs without a ruleset.
package fakefreebsd
