// SPDX-License-Identifier: BSD-2-Clause

//go:build !linux

package jail

import "os"

// openInRoot opens a file of rootfs without leaving it: a link that points out
// of it is an error (os.Root).
func openInRoot(rootfs, name string) (*os.File, error) {
	root, err := os.OpenRoot(rootfs)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return root.Open(name)
}
