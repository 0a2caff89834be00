// SPDX-License-Identifier: BSD-2-Clause

package api

// storageDriver names how container roots are made, as info and inspect show it.
const storageDriver = "zfs"
