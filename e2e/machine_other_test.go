// SPDX-License-Identifier: BSD-2-Clause

//go:build !linux

package e2e

// The ring runs on Linux and is skipped elsewhere.
func onMachine(tests func() int) int { return tests() }

func outside() []string { return nil }
