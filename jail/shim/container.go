// SPDX-License-Identifier: BSD-2-Clause

package shim

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"satld/jail/logfile"
)

// drainLimit is how long after its first process a container's output is
// waited for while none comes, and drainMost in all. What else runs in it is
// killed together with the first process, so that the pipes close within
// milliseconds.
const (
	drainLimit = 3 * time.Second
	drainMost  = 30 * time.Second
)

// container is one container the shim holds.
type container struct {
	id   string
	init Init
	log  *logfile.Writer

	ended   chan struct{} // closed when the first process has ended
	drained chan struct{} // closed when all output is in the log, and the exit for all to see
	pumps   sync.WaitGroup
	// released: this shim let the first process run.
	released atomic.Bool
	moved    atomic.Int64 // pieces of output that were taken

	mu        sync.Mutex
	followers map[chan struct{}]struct{}
	stdin     *os.File // our end of it: a pipe, or the terminal
	console   *os.File // the terminal's master
	sources   []*os.File
}

func newContainer(id string, init Init, log *logfile.Writer) *container {
	return &container{
		id: id, init: init, log: log,
		ended: make(chan struct{}), drained: make(chan struct{}),
		followers: make(map[chan struct{}]struct{}),
	}
}

// pump moves one of the pipes into the log until no writer is left.
func (c *container) pump(f *os.File, s logfile.Stream) {
	c.mu.Lock()
	c.sources = append(c.sources, f)
	c.mu.Unlock()
	c.pumps.Go(func() {
		defer f.Close()
		rc, err := f.SyscallConn()
		if err != nil {
			complain("container %s: %s: %v", c.id, s, err)
			return
		}
		full := false // the disk: complained already
		for {
			var n int
			var err error
			werr := rc.Read(func(fd uintptr) bool {
				n, err = c.log.Take(int(fd), s)
				if err != nil && !errors.Is(err, unix.EAGAIN) {
					if !full {
						complain("container %s: %s is lost until it can be written again: %v", c.id, s, err)
						full = true
					}
					n, err = logfile.Discard(int(fd))
				} else if n > 0 {
					full = false
				}
				return !errors.Is(err, unix.EAGAIN)
			})
			if werr != nil || err != nil || n == 0 {
				return
			}
			c.moved.Add(1)
			c.nudge()
		}
	})
}

// pumpConsole does the same for a terminal.
func (c *container) pumpConsole(f *os.File) {
	c.pumps.Go(func() {
		buf := make([]byte, 4096)
		for {
			n, err := f.Read(buf)
			if n > 0 {
				if werr := c.log.Write(logfile.Stdout, buf[:n]); werr != nil {
					complain("container %s: output is lost: %v", c.id, werr)
				}
				c.moved.Add(1)
				c.nudge()
			}
			if err != nil { // EIO: the other side is closed
				return
			}
		}
	})
}

// nudge wakes the followers.
func (c *container) nudge() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for ch := range c.followers {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
}

func (c *container) follow() (nudges <-chan struct{}, stop func()) {
	ch := make(chan struct{}, 1)
	c.mu.Lock()
	c.followers[ch] = struct{}{}
	c.mu.Unlock()
	return ch, func() {
		c.mu.Lock()
		delete(c.followers, ch)
		c.mu.Unlock()
	}
}

// finish waits for the rest of the output of a container that has ended.
func (c *container) finish() {
	gone := make(chan struct{})
	go func() {
		c.pumps.Wait()
		close(gone)
	}()
	if !c.awaitOutput(gone) {
		complain("container %s: its output is still held open after its end", c.id)
		c.closeFiles()
		<-gone
	}
	c.closeFiles()
	c.log.Close()
}

// awaitOutput waits until the output has ended, or none comes any more.
func (c *container) awaitOutput(gone <-chan struct{}) bool {
	tick := time.NewTicker(drainLimit)
	defer tick.Stop()
	moved := c.moved.Load()
	for range drainMost / drainLimit {
		select {
		case <-gone:
			return true
		case <-tick.C:
		}
		now := c.moved.Load()
		if now == moved {
			break
		}
		moved = now
	}
	return isClosed(gone)
}

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

func (c *container) closeFiles() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range append(c.sources, c.stdin, c.console) {
		if f != nil {
			f.Close()
		}
	}
	c.sources, c.stdin, c.console = nil, nil, nil
}

// endStdin closes our end of the container's stdin.
func (c *container) endStdin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stdin != nil && c.stdin != c.console {
		c.stdin.Close()
		c.stdin = nil
	}
}

func (c *container) input() *os.File {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stdin
}

// pipes are a container's named pipes. They have names so that a new shim can
// open them again; the container holds its output open for reading too, so
// that it neither gets SIGPIPE nor loses a byte while there is no shim.
type pipes struct {
	ours   [3]*os.File // stdin (write), stdout, stderr (read); nil where there is none
	theirs [3]*os.File
}

var pipeNames = [3]string{"stdin", "stdout", "stderr"}

// makePipes makes them anew.
func (d Dir) makePipes(id string, stdin bool) (p pipes, err error) {
	defer func() {
		if err != nil {
			p.close()
			err = fmt.Errorf("make the pipes of container %s: %w", id, err)
		}
	}()
	for i, name := range pipeNames {
		path := d.file(id, name)
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return p, err
		}
		if i == 0 && !stdin {
			if p.theirs[0], err = os.Open(os.DevNull); err != nil {
				return p, err
			}
			continue
		}
		if err := unix.Mkfifo(path, 0o600); err != nil {
			return p, err
		}
		// Both ends of a FIFO at once, so that no other open waits.
		if p.theirs[i], err = openFifo(path, unix.O_RDWR); err != nil {
			return p, err
		}
	}
	if err := p.open(d, id, stdin); err != nil {
		return p, err
	}
	if stdin { // the end of the input can only be seen through a pure reader
		p.theirs[0].Close()
		if p.theirs[0], err = openFifo(d.file(id, pipeNames[0]), unix.O_RDONLY); err != nil {
			return p, err
		}
	}
	for _, f := range p.theirs {
		if err := unix.SetNonblock(int(f.Fd()), false); err != nil {
			return p, err
		}
	}
	return p, nil
}

// open opens our ends of existing pipes.
func (p *pipes) open(d Dir, id string, stdin bool) (err error) {
	for i, name := range pipeNames {
		mode := unix.O_RDONLY
		if i == 0 {
			if !stdin {
				continue
			}
			mode = unix.O_WRONLY
		}
		if p.ours[i], err = openFifo(d.file(id, name), mode); err != nil {
			return err
		}
	}
	return nil
}

func openFifo(path string, mode int) (*os.File, error) {
	fd, err := unix.Open(path, mode|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

func (p *pipes) closeTheirs() {
	for i, f := range p.theirs {
		if f != nil {
			f.Close()
			p.theirs[i] = nil
		}
	}
}

func (p *pipes) close() {
	p.closeTheirs()
	for _, f := range p.ours {
		if f != nil {
			f.Close()
		}
	}
}

// complain writes a line to the shim's own log.
func complain(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%s "+format+"\n", append([]any{time.Now().UTC().Format(time.RFC3339Nano)}, args...)...)
}

// signalPid sends SIGKILL to a command's process.
func signalPid(pid int) { syscall.Kill(pid, syscall.SIGKILL) }
