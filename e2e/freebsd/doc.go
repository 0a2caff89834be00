// SPDX-License-Identifier: BSD-2-Clause

// Package freebsd drives the whole FreeBSD code path on Linux: satld built with
// the tag fakefreebsd, on a fake host (internal/fakefreebsd) in a network
// namespace of its own, with the docker CLI and the API as its clients, from
// `service create` to teardown. It has tests only.
package freebsd
