// SPDX-License-Identifier: BSD-2-Clause

package jail

import (
	"errors"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// copyPipe copies r to w until no writer is left, or until r's read deadline:
// then what is in the pipe is taken, and what holds it open is waited for no
// longer. It ends early when w fails.
func copyPipe(w io.Writer, r *os.File) {
	buf := make([]byte, 32<<10)
	for {
		n, err := r.Read(buf)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			if n = readNow(r, buf); n > 0 {
				err = nil
			}
		}
		if n > 0 {
			if _, werr := w.Write(buf[:n]); werr != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// readNow reads what is there, whatever the deadline.
func readNow(r *os.File, buf []byte) (n int) {
	rc, err := r.SyscallConn()
	if err != nil {
		return 0
	}
	rc.Control(func(fd uintptr) {
		for {
			if n, err = unix.Read(int(fd), buf); !errors.Is(err, unix.EINTR) {
				return
			}
		}
	})
	return max(n, 0)
}

// endPipe gives the writers that are left until then.
func endPipe(r *os.File, grace time.Duration) { r.SetReadDeadline(time.Now().Add(grace)) }
