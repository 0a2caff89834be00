// SPDX-License-Identifier: BSD-2-Clause

// Package platform says which system's tools the program drives, and which
// start of the machine this is. It decides nothing else: what differs by system
// call is chosen by GOOS.
package platform
