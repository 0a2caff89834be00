// SPDX-License-Identifier: BSD-2-Clause

// Package image keeps images: pulled or loaded, unpacked once, and mounted as
// one root file system for each container.
//
// It owns StateDir/images, and in each StateDir/containers/<ID> the root and
// image.json. Store is its one type; index is the value that says which images
// there are, and transaction is one pull, load or import at work. It decides
// what may be deleted: an image that no name and no container needs, a layer
// that no image and no container needs. It decides nothing about who runs,
// and never deletes what is mounted somewhere (RemoveTree).
//
// Roots are overlay mounts on Linux, clones of ZFS datasets on a FreeBSD host
// that has one for them, and full copies elsewhere: see rootMaker. Of datasets
// it owns layers and containers below the root dataset, and touches no other.
package image
