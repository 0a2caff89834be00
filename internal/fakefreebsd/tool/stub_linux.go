// SPDX-License-Identifier: BSD-2-Clause

package main

func pfctl(c *call) int { return 1 }
func zfs(c *call) int   { return 1 }
