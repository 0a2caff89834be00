// SPDX-License-Identifier: BSD-2-Clause

package platform

// OS is the system whose tools (ocijail, pfctl, ifconfig; runc, nft) are run.
const OS = "freebsd"
