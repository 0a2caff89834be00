// SPDX-License-Identifier: BSD-2-Clause

package logfile

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// takeMax is how much one Take moves: all that a pipe holds by default.
const takeMax = 64 << 10

// Take moves what is in the pipe fd to s, without waiting: unix.EAGAIN when
// there is nothing, 0 when no writer is left. The kernel moves the bytes, so
// that a shim killed at any moment has either taken a byte or left it in the
// pipe for the next one.
func (w *Writer) Take(fd int, s Stream) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f, err := w.room(s, waits(fd))
	if err != nil {
		return 0, err
	}
	off := w.size[s]
	for {
		n, err := unix.Splice(fd, nil, int(f.Fd()), &off, takeMax, unix.SPLICE_F_NONBLOCK|unix.SPLICE_F_MOVE)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EINVAL): // a file system that cannot splice
			return w.copy(fd, s)
		case err != nil:
			return 0, err
		case n == 0:
			return 0, nil
		}
		return int(n), w.note(s, n, time.Now())
	}
}
