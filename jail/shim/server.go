// SPDX-License-Identifier: BSD-2-Clause

package shim

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// server is the running shim. Its lock guards the maps alone: no request
// waits for another one's command.
type server struct {
	dir    Dir
	reaper *reaper
	done   chan struct{} // closed when it is to end

	mu         sync.Mutex
	containers map[string]*container
	pending    map[string]chan struct{} // creates in progress; closed at their end
	quitting   bool
	listeners  map[chan string]struct{}
}

func newServer(dir Dir) *server {
	return &server{
		dir: dir, reaper: newReaper(), done: make(chan struct{}),
		containers: make(map[string]*container), pending: make(map[string]chan struct{}), listeners: make(map[chan string]struct{}),
	}
}

func (s *server) container(id string) *container {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.containers[id]
}

func (s *server) add(c *container) {
	s.mu.Lock()
	s.containers[c.id] = c
	s.mu.Unlock()
}

// serve answers until the shim is to end.
func (s *server) serve(l net.Listener) {
	go func() {
		<-s.done
		l.Close()
	}()
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // out of descriptors, say: it passes
			complain("accept: %v", err)
			time.Sleep(100 * time.Millisecond)
			continue
		}
		go s.answer(c)
	}
}

// answer serves one connection: one request.
func (s *server) answer(cn net.Conn) {
	defer cn.Close()
	cn.SetReadDeadline(time.Now().Add(10 * time.Second))
	line, rest, files, err := readRequest(cn.(*net.UnixConn))
	if err != nil {
		closeAll(files)
		return
	}
	cn.SetReadDeadline(time.Time{})
	left := hasLeft(cn.(*net.UnixConn))
	var req request
	if err := json.Unmarshal(line, &req); err != nil {
		closeAll(files)
		reply(cn, response{}, refuse(KindFailed, "malformed request: %v", err))
		return
	}
	if left && req.Op != opStdin { // whose end is part of what is said
		closeAll(files)
		return
	}
	if req.Op == opExec && req.V == Version && req.Exec != nil {
		s.exec(cn, *req.Exec, files)
		return
	}
	closeAll(files)
	if req.V != Version {
		reply(cn, response{}, refuse(KindUnsupported, "this shim speaks version %d, not %d", Version, req.V))
		return
	}
	switch req.Op {
	case opEvents:
		s.events(cn)
	case opFollow:
		s.follow(cn, req.ID)
	case opStdin:
		s.stdin(cn, io.MultiReader(bytes.NewReader(rest), cn), req.ID)
	default:
		resp, err := s.handle(req)
		reply(cn, resp, err)
		if req.Op == opQuit && err == nil && !resp.Busy {
			close(s.done)
		}
	}
}

// hasLeft tells whether the other side has closed already. What it asked for
// when we could not answer, as we were stopped, it has given up by now, and may
// have asked for otherwise.
func hasLeft(cn *net.UnixConn) (left bool) {
	rc, err := cn.SyscallConn()
	if err != nil {
		return true
	}
	err = rc.Control(func(fd uintptr) {
		n, _, err := unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_PEEK|unix.MSG_DONTWAIT)
		left = n == 0 && err == nil
	})
	return left || err != nil
}

// maxRequest bounds a request, in bytes; a command line can be long.
const maxRequest = 4 << 20

// readRequest reads a line, what came after it, and the files that came with it.
func readRequest(cn *net.UnixConn) (line, rest []byte, files []*os.File, err error) {
	var all []byte
	buf := make([]byte, 4096)
	for len(all) < maxRequest {
		n, more, err := readFiles(cn, buf)
		files = append(files, more...)
		if err != nil {
			return nil, nil, files, err
		}
		if n == 0 {
			return nil, nil, files, io.ErrUnexpectedEOF
		}
		all = append(all, buf[:n]...)
		if i := bytes.IndexByte(all, '\n'); i >= 0 {
			return all[:i], all[i+1:], files, nil
		}
	}
	return nil, nil, files, errors.New("the request is too long")
}

// handle does the requests that are one answer.
func (s *server) handle(req request) (resp response, err error) {
	switch req.Op {
	case opHello:
		resp.Pid = os.Getpid()
		s.mu.Lock()
		resp.Containers = len(s.containers)
		s.mu.Unlock()
	case opCreate:
		if req.Create == nil || len(req.Create.Argv) == 0 {
			return resp, refuse(KindFailed, "create without a command")
		}
		if err := s.enter(req.ID); err != nil {
			return resp, err
		}
		defer s.leave(req.ID)
		resp.Pid, err = s.create(req.ID, *req.Create)
	case opStart:
		if req.Start == nil {
			return resp, refuse(KindFailed, "start without a way to do it")
		}
		resp.At, err = s.start(req.ID, *req.Start)
	case opResize:
		err = s.resize(req.ID, req.Width, req.Height)
	case opSettle:
		s.mu.Lock()
		done := s.pending[req.ID]
		s.mu.Unlock()
		if done != nil {
			<-done
		}
	case opForget:
		s.forget(req.ID)
	case opQuit:
		resp.Busy = !s.quit()
	default:
		err = refuse(KindUnsupported, "this shim does not know %q", req.Op)
	}
	return resp, err
}

// quit allows the end, once, if nothing is held.
func (s *server) quit() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.quitting || len(s.containers)+len(s.pending) > 0 {
		return false
	}
	s.quitting = true
	return true
}

func (s *server) resize(id string, width, height uint16) error {
	c := s.container(id)
	if c == nil {
		return refuse(KindNotFound, "container %s is not here", id)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.console == nil {
		return refuse(KindNotFound, "container %s has no terminal", id)
	}
	return setSize(c.console, width, height)
}

// setSize sets the size of the terminal whose master is given.
func setSize(master *os.File, width, height uint16) error {
	rc, err := master.SyscallConn()
	if err != nil {
		return err
	}
	if cerr := rc.Control(func(fd uintptr) {
		err = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: height, Col: width})
	}); cerr != nil {
		return cerr
	}
	return err
}

// enter and leave bracket a create, so that the shim does not end meanwhile
// and no second one of the container runs.
func (s *server) enter(id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.quitting {
		return refuse(KindFailed, "the shim is ending")
	}
	if s.pending[id] != nil || s.containers[id] != nil {
		return refuse(KindFailed, "container %s is held already", id)
	}
	s.pending[id] = make(chan struct{})
	return nil
}

func (s *server) leave(id string) {
	s.mu.Lock()
	close(s.pending[id])
	delete(s.pending, id)
	s.mu.Unlock()
}

func reply(w io.Writer, resp response, err error) error {
	resp.V = Version
	if err != nil {
		resp.Error, resp.Kind = err.Error(), KindFailed
		var e *Error
		if errors.As(err, &e) {
			resp.Error, resp.Kind, resp.Output = e.Text, e.Kind, e.Output
		}
	}
	b, err := json.Marshal(resp)
	if err != nil {
		return err
	}
	_, err = w.Write(append(b, '\n'))
	return err
}

// watch waits for a container's end, tells of it, writes it down and tells once
// more: the status at once, so that it is not lost with us, and the exit, for
// others to see, when all output is in the log. Both may wait for the disk, for
// which whoever sends the container traffic must not.
func (s *server) watch(c *container, wait func() Exit) {
	e := wait()
	s.tell(c.id)
	s.insist(c, func() error { return s.dir.writeEnded(c.id, e) })
	s.endOthers(c)
	close(c.ended)
	c.finish()
	s.insist(c, func() error { return s.dir.publishEnded(c.id) })
	close(c.drained)
	s.tell(c.id)
}

// tell has everybody who listens look at a container.
func (s *server) tell(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for ch := range s.listeners {
		select {
		case ch <- id:
		default: // it does not read: it finds the file when it asks
		}
	}
}

// endOthers ends what the first process leaves behind, if the kernel does not:
// it would hold the output open, and work on in a container that is over.
func (s *server) endOthers(c *container) {
	if len(c.init.End) == 0 {
		return
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err == nil {
		err = s.command(c.init.End, endLimit, [3]*os.File{null, null, null})
		null.Close()
	}
	if err != nil { // also where nothing is left to end
		complain("container %s: end the other processes: %v", c.id, err)
	}
}

// insist repeats a write until the disk has room for it.
func (s *server) insist(c *container, write func() error) {
	for try := 0; ; try++ {
		err := write()
		if err == nil || errors.Is(err, os.ErrNotExist) { // its directory was removed: nobody wants to know
			return
		}
		if try%60 == 0 {
			complain("container %s: %v", c.id, err)
		}
		time.Sleep(time.Second)
	}
}

// endLimit bounds endOthers: deleting the container ends them too.
const endLimit = 30 * time.Second

// exit makes an Exit of a status seen now.
func (c *container) exit(code int) Exit {
	return Exit{Code: code, At: time.Now(), OOMKilled: c.init.OOMFile != "" && oomKilled(c.init.OOMFile)}
}

// forget lets go of a container that has ended, with its output drained.
func (s *server) forget(id string) {
	c := s.container(id)
	if c == nil {
		return
	}
	select {
	case <-c.ended:
		<-c.drained
	default: // deleted while its first process lives: the daemon knows better
	}
	s.mu.Lock()
	delete(s.containers, id)
	s.mu.Unlock()
}

func (s *server) events(cn net.Conn) {
	ch := make(chan string, 4096)
	s.mu.Lock()
	s.listeners[ch] = struct{}{}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.listeners, ch)
		s.mu.Unlock()
	}()
	reply(cn, response{}, nil)
	gone := hangup(cn)
	for {
		select {
		case id := <-ch:
			if _, err := io.WriteString(cn, id+"\n"); err != nil {
				return
			}
		case <-gone:
			return
		case <-s.done:
			return
		}
	}
}

func (s *server) follow(cn net.Conn, id string) {
	c := s.container(id)
	if c == nil || c.isDrained() {
		reply(cn, response{}, nil)
		return
	}
	nudges, stop := c.follow()
	defer stop()
	reply(cn, response{Held: true}, nil)
	gone := hangup(cn)
	for {
		select {
		case <-nudges:
			cn.SetWriteDeadline(time.Now().Add(time.Minute))
			if _, err := cn.Write([]byte{'\n'}); err != nil {
				return
			}
		case <-c.drained:
			return
		case <-gone:
			return
		}
	}
}

func (s *server) stdin(cn net.Conn, r io.Reader, id string) {
	c := s.container(id)
	if c == nil {
		reply(cn, response{}, refuse(KindNotFound, "container %s is not here", id))
		return
	}
	w := c.input()
	if w == nil {
		reply(cn, response{}, refuse(KindNotFound, "container %s has no stdin open", id))
		return
	}
	reply(cn, response{}, nil)
	go func() {
		<-c.ended
		cn.Close()
	}()
	io.Copy(w, r)
	if c.init.StdinOnce {
		c.endStdin()
	}
}

// hangup is closed when the other side is gone.
func hangup(cn net.Conn) <-chan struct{} {
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		io.Copy(io.Discard, cn)
	}()
	return gone
}
