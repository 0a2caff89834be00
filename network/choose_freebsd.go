// SPDX-License-Identifier: BSD-2-Clause

package network

import "satld/platform/command"

// newLinks makes the links of the system.
func newLinks(m mark, _ string, j journal) (links, error) {
	return newIfconfigLinks(m, j, command.Run, setFrame), nil
}
