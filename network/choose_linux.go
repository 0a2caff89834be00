// SPDX-License-Identifier: BSD-2-Clause

package network

import (
	"satld/platform"
	"satld/platform/command"
)

// newLinks makes the links of the system whose tools are driven.
func newLinks(m mark, netnsDir string, j journal) (links, error) {
	if platform.OS == "freebsd" {
		return newIfconfigLinks(m, j, command.Run, setFrame), nil
	}
	return newNetlinkLinks(m, netnsDir)
}
