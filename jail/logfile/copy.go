// SPDX-License-Identifier: BSD-2-Clause

package logfile

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// scratch lends the buffers for copying: only a stream that has something to
// say right now holds one.
var scratch = sync.Pool{New: func() any { return new([32 << 10]byte) }}

// copy is Take by read(2) and write(2). The lock is held and the file open.
func (w *Writer) copy(fd int, s Stream) (int, error) {
	buf := scratch.Get().(*[32 << 10]byte)
	defer scratch.Put(buf)
	n, err := read(fd, buf[:])
	if n <= 0 || err != nil {
		return 0, err
	}
	n, err = w.raw[s].WriteAt(buf[:n], w.size[s])
	if n > 0 {
		if err := w.note(s, int64(n), time.Now()); err != nil {
			return n, err
		}
	}
	if err != nil {
		return n, fmt.Errorf("append to log: %w", err)
	}
	return n, nil
}

// Discard reads what is in the pipe fd and forgets it, so that a container
// does not stand still because the disk is full. Errors are as for Take.
func Discard(fd int) (int, error) {
	buf := scratch.Get().(*[32 << 10]byte)
	defer scratch.Put(buf)
	return read(fd, buf[:])
}

func read(fd int, p []byte) (int, error) {
	for {
		n, err := unix.Read(fd, p)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		return n, err
	}
}

// waits tells whether there is something to read; true also when in doubt.
func waits(fd int) bool {
	n, err := unix.IoctlGetInt(fd, fionread)
	return err != nil || n > 0
}
