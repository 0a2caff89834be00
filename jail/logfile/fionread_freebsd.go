// SPDX-License-Identifier: BSD-2-Clause

package logfile

const fionread = 0x4004667f // sys/filio.h: _IOR('f', 127, int)
