// SPDX-License-Identifier: BSD-2-Clause

package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// LockState makes dir if it is missing and takes the lock on it that keeps a
// second daemon out; the lock ends with unlock or with the process. The error
// names the process that holds it.
func LockState(dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return nil, fmt.Errorf("make the state directory: %w", err)
	}
	path := filepath.Join(dir, "lock")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the state directory: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		defer f.Close()
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		holder := make([]byte, 32)
		n, _ := f.ReadAt(holder, 0)
		return nil, fmt.Errorf("another satld (pid %s) runs on the state directory %s: "+
			"stop it, or choose another directory with --state-dir", holder[:n], dir)
	}
	if err := f.Truncate(0); err == nil {
		f.WriteAt(fmt.Appendf(nil, "%d", os.Getpid()), 0) // only for the message above
	}
	return func() { f.Close() }, nil
}
