// SPDX-License-Identifier: BSD-2-Clause

//go:build !linux

package logfile

// Take moves what is in the pipe fd to s, without waiting: unix.EAGAIN when
// there is nothing, 0 when no writer is left. There is no splice(2) here: a
// shim killed between reading and writing loses that one piece.
func (w *Writer) Take(fd int, s Stream) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, err := w.room(s, waits(fd)); err != nil {
		return 0, err
	}
	return w.copy(fd, s)
}
