// SPDX-License-Identifier: BSD-2-Clause

//go:build !linux

// Command satl-init is satld's helper inside a container; only Linux needs it.
package main

import "os"

func main() {
	os.Stderr.WriteString("satl-init: only of use on Linux\n")
	os.Exit(1)
}
