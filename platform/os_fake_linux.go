// SPDX-License-Identifier: BSD-2-Clause

//go:build fakefreebsd

package platform

// OS is "freebsd" in this build, for tests: the FreeBSD code path runs on
// Linux against stand-ins for its tools (internal/fakefreebsd).
const OS = "freebsd"
