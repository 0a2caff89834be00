// SPDX-License-Identifier: BSD-2-Clause

// Package e2e is the third ring of tests: the built daemon, a real runtime,
// real network namespaces and packet filter, and the real docker CLI as the
// client. Each test has a daemon of its own in a scratch directory, all of them
// in a network and mount namespace that stands for their machine; a test that
// leaves a process, mount, interface, namespace or nft table behind fails.
// They need root, runc, nft and docker, and say loudly what is missing.
package e2e
