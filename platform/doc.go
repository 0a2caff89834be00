// SPDX-License-Identifier: BSD-2-Clause

// Package platform says which system's tools the program drives. It decides
// nothing else: what differs by system call is chosen by GOOS.
package platform
