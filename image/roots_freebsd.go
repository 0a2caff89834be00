// SPDX-License-Identifier: BSD-2-Clause

package image

// newOverlay is for Linux: FreeBSD has no file system that could do it.
func newOverlay(*Store) (rootMaker, error) { return copier{}, nil }
