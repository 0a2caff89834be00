// SPDX-License-Identifier: BSD-2-Clause

//go:build !linux

package main

import "log"

func main() { log.Fatal("the fake FreeBSD runs on Linux: here is a real one") }
