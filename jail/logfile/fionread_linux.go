// SPDX-License-Identifier: BSD-2-Clause

package logfile

import "golang.org/x/sys/unix"

const fionread = unix.TIOCINQ // FIONREAD by another name
