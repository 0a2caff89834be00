// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/docker/docker/api/types"
	"github.com/docker/docker/pkg/stdcopy"
	"golang.org/x/sys/unix"
)

const (
	// answerBound is how long the head of a hijacked answer may take to be written.
	answerBound = 10 * time.Second
	// lingerBound is how long a finished stream waits for the client to close.
	// Closing with unread input would make its last read fail (ECONNRESET)
	// where it should see the end of the output.
	lingerBound = 10 * time.Second
	// hangupPeriod is how often an attached client is checked for having gone
	// away: while the container says nothing there is no write to fail.
	hangupPeriod = time.Second
	// pipeLeft is more than a process that ended can have left behind: two
	// pipes and the buffers of those who copy from them.
	pipeLeft = 1 << 20
	// A stream has settled when no write was under way settleQuiet times in
	// a row, settlePeriod apart.
	settlePeriod, settleQuiet = 5 * time.Millisecond, 4
)

// stream is a connection that was taken over from HTTP for an attach or an
// exec. Both directions may be used at the same time; the client may close
// its sending side alone, which is the end of stdin and nothing more.
//
// Writing has no time limit: cutting off a client that reads slowly would hand
// it a truncated output that looks complete.
type stream struct {
	conn net.Conn
	// in holds what arrived together with the request, then reads conn.
	in *bufio.Reader

	reading sync.Mutex  // held by whoever reads
	ended   atomic.Bool // no more input is wanted
	gone    atomic.Bool // the client is gone or is no longer to be written to
	onGone  func()      // called once when a write finds the client gone; may be nil

	writing atomic.Int32 // writes under way
	sent    atomic.Int64 // bytes the client's socket took
}

// hijack takes the connection of a request over and answers it: 101 where the
// client asked for an upgrade, 200 otherwise, as Docker does. Whoever calls it
// owns the stream and must finish it.
func hijack(w http.ResponseWriter, r *http.Request, contentType string) (*stream, error) {
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil, fmt.Errorf("take over the connection of %s: %w", r.URL.Path, err)
	}
	hijacked(w)
	st := &stream{conn: conn, in: buffered.Reader}
	var head bytes.Buffer
	if r.Header.Get("Upgrade") != "" {
		fmt.Fprintf(&head, "HTTP/1.1 101 UPGRADED\r\nContent-Type: %s\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n", contentType)
	} else {
		fmt.Fprintf(&head, "HTTP/1.1 200 OK\r\nContent-Type: %s\r\n", types.MediaTypeRawStream)
	}
	_ = w.Header().WriteSubset(&head, map[string]bool{"Content-Type": true, "Content-Length": true, "Connection": true, "Upgrade": true})
	head.WriteString("\r\n")

	_ = conn.SetDeadline(time.Time{})
	_ = conn.SetWriteDeadline(time.Now().Add(answerBound))
	if _, err := conn.Write(head.Bytes()); err != nil {
		conn.Close()
		return nil, fmt.Errorf("answer %s: %w", r.URL.Path, err)
	}
	_ = conn.SetWriteDeadline(time.Time{})
	return st, nil
}

// streamType is the media type of a stream: multiplexed unless it is a
// terminal's, and said so since API 1.42.
func streamType(r *http.Request, tty bool) string {
	if !tty && since(r, "1.42") {
		return types.MediaTypeMultiplexedStream
	}
	return types.MediaTypeRawStream
}

// Read reads the client's input. It ends with io.EOF when the client closed
// its sending side and when no more input is wanted.
func (st *stream) Read(p []byte) (int, error) {
	if st.ended.Load() {
		return 0, io.EOF // and do not wait for finish
	}
	st.reading.Lock()
	defer st.reading.Unlock()
	if st.ended.Load() {
		return 0, io.EOF
	}
	n, err := st.in.Read(p)
	if st.ended.Load() {
		return 0, io.EOF
	}
	return n, err
}

// Write sends output to the client. It never fails: once the client is gone
// the output is discarded, so that the process that makes it goes on.
func (st *stream) Write(p []byte) (int, error) {
	if st.gone.Load() {
		return len(p), nil
	}
	st.writing.Add(1)
	defer st.writing.Add(-1)
	n, err := st.conn.Write(p)
	st.sent.Add(int64(n))
	if err != nil {
		st.drop()
	}
	return len(p), nil
}

// settle waits for a slow client to get what a process that has ended left in
// its pipes: whoever copies that may still be busy writing it. A client that
// keeps up is not waited for, and what a child in the background goes on
// printing is not followed.
func (st *stream) settle() {
	limit := st.sent.Load() + pipeLeft
	for quiet := 0; quiet < settleQuiet && st.sent.Load() < limit && !st.gone.Load(); {
		if st.writing.Load() > 0 {
			quiet = 0
		} else if quiet++; quiet == 1 && st.sent.Load() == limit-pipeLeft {
			return // nothing was under way
		}
		time.Sleep(settlePeriod)
	}
}

// drop gives the client up: nothing is written to it any more.
func (st *stream) drop() {
	if !st.gone.Swap(true) && st.onGone != nil {
		st.onGone()
	}
}

// writers are where stdout and stderr go: one raw stream of a terminal, or
// two multiplexed ones.
func (st *stream) writers(tty bool) (stdout, stderr io.Writer) {
	if tty {
		return st, st
	}
	return stdcopy.NewStdWriter(st, stdcopy.Stdout), stdcopy.NewStdWriter(st, stdcopy.Stderr)
}

// endInput makes a Read under way and every later one return io.EOF.
func (st *stream) endInput() {
	st.ended.Store(true)
	_ = st.conn.SetReadDeadline(time.Unix(1, 0))
}

// finish ends the output, so that the client sees it end, and closes the
// connection once the client did, or after lingerBound.
func (st *stream) finish() {
	st.endInput()
	defer st.conn.Close()
	half, ok := st.conn.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	st.reading.Lock() // whoever read has left
	defer st.reading.Unlock()
	_ = st.conn.SetReadDeadline(time.Now().Add(lingerBound))
	_, _ = io.Copy(io.Discard, st.conn)
}

// watch calls hungUp once the client has closed the connection altogether. It
// returns then, or when ctx ends.
func (st *stream) watch(ctx context.Context, hungUp func()) {
	tick := time.NewTicker(hangupPeriod)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if hasHungUp(st.conn) {
				hungUp()
				return
			}
		}
	}
}

// hasHungUp tells whether the other side of a connection has closed both
// directions. One that closed its sending side alone has not.
func hasHungUp(conn net.Conn) bool {
	sc, ok := conn.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return true
	}
	hup := false
	err = raw.Control(func(fd uintptr) {
		fds := []unix.PollFd{{Fd: int32(fd)}}
		if n, err := unix.Poll(fds, 0); err == nil && n > 0 {
			hup = fds[0].Revents&(unix.POLLHUP|unix.POLLERR|unix.POLLNVAL) != 0
		}
	})
	return hup || err != nil
}
