// SPDX-License-Identifier: BSD-2-Clause

package shim

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// start lets the first process of a created container run. It is done here
// and not in the daemon so that it happens whole whatever becomes of that.
func (s *server) start(id string, req StartRequest) (time.Time, error) {
	st, was, err := s.dir.ReadStarted(id)
	if err != nil {
		return time.Time{}, err
	}
	c := s.container(id)
	if was && !waits(c, req) {
		return st.At, nil
	}
	if c == nil {
		return time.Time{}, refuse(KindNotFound, "container %s is not here", id)
	}
	limit := req.Timeout
	if limit <= 0 {
		limit = commandLimit
	}
	// Written down first: on a full disk it is not started, rather than
	// started and nobody knows.
	at := time.Now()
	if err := s.dir.writeStarted(id, Started{At: at}); err != nil {
		return time.Time{}, err
	}
	switch {
	case req.Fifo != "":
		err = c.release(req.Fifo, limit)
	case c.hasEnded(): // the runtime does not look
		err = refuse(KindEnded, "container %s has ended", id)
	default:
		err = s.startCommand(req.Argv, limit)
	}
	if err != nil {
		if !was {
			os.Remove(s.dir.file(id, startedName))
		}
		return time.Time{}, err
	}
	c.released.Store(true)
	return at, nil
}

// waits tells whether a container that is said to be started still waits for
// it: a shim may have died between writing it down and doing it.
func waits(c *container, req StartRequest) bool {
	if req.Fifo != "" {
		return exists(req.Fifo)
	}
	return c != nil && !c.released.Load() && !c.hasEnded() && c.init.Waiting != "" && commandLine(c.init.Pid) == c.init.Waiting
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func (s *server) startCommand(argv []string, limit time.Duration) error {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	return s.command(argv, limit, [3]*os.File{null, null, null})
}

// release does what `runc start` does: the first process waits in the opening
// of exec.fifo for a reader, then writes one byte and executes the command.
func (c *container) release(fifo string, limit time.Duration) error {
	f, err := openFifo(fifo, unix.O_RDWR) // a reader that needs no writer
	if errors.Is(err, os.ErrNotExist) {
		if c.hasEnded() {
			return refuse(KindEnded, "container %s has ended", c.id)
		}
		return nil // by a shim that died before it wrote it down
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if now := commandLine(c.init.Pid); now != "" && now != c.init.Waiting {
		return os.Remove(fifo) // as above, a little later
	}
	f.SetReadDeadline(time.Now().Add(limit))
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		select {
		case <-c.ended:
			f.SetReadDeadline(time.Unix(1, 0))
		case <-stop:
		}
	}()
	if _, err := f.Read(make([]byte, 8)); err != nil {
		if waitsIn(f) {
			return os.Remove(fifo) // it was started and has ended already
		}
		if c.hasEnded() {
			return refuse(KindEnded, "container %s: its first process died before it was started", c.id)
		}
		return fmt.Errorf("start container %s: its first process does not answer: %w", c.id, err)
	}
	return os.Remove(fifo)
}

// waitsIn tells whether there is something to read; the deadline does not matter.
func waitsIn(f *os.File) (some bool) {
	rc, err := f.SyscallConn()
	if err != nil {
		return false
	}
	rc.Control(func(fd uintptr) {
		n, err := unix.Read(int(fd), make([]byte, 8))
		some = err == nil && n > 0
	})
	return some
}

func (c *container) hasEnded() bool  { return isClosed(c.ended) }
func (c *container) isDrained() bool { return isClosed(c.drained) }
