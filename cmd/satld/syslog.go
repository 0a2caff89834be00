// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Severities of syslog(3), and the facility of system daemons.
const (
	facilityDaemon = 3 << 3
	severityError  = 3
	severityWarn   = 4
	severityNotice = 5
	severityDebug  = 7
)

// severity: information is a notice, as the usual syslog.conf(5) keeps nothing
// less in /var/log/messages.
func severity(l slog.Level) int {
	switch {
	case l >= slog.LevelError:
		return severityError
	case l >= slog.LevelWarn:
		return severityWarn
	case l >= slog.LevelInfo:
		return severityNotice
	}
	return severityDebug
}

// Bounds of the way to syslogd.
const (
	// maxMessage is the bytes of a message: net.local.dgram.maxdgram is 2048
	// on FreeBSD.
	maxMessage = 2000
	// waiting is how many messages wait while syslogd takes none.
	waiting = 1024
	// sendBound is how long one message may take, and closeBound all that wait
	// when the daemon ends.
	sendBound  = time.Second
	closeBound = 2 * time.Second
	// fullRetry is the time between two tries while syslogd's buffer is full
	// (ENOBUFS; FreeBSD does not wait for it).
	fullRetry = 20 * time.Millisecond
	cutMark   = " [cut]"
)

// syslog sends messages to the host's syslogd. It never keeps its caller: when
// too many wait, messages are dropped and counted. What syslogd does not take
// goes to the fallback instead.
type syslog struct {
	socket   string
	fallback io.Writer
	tag      string

	queue   chan message
	dropped atomic.Int64
	done    chan struct{}

	closing sync.RWMutex // guards the end of queue
	closed  bool

	conn net.Conn // of the sending goroutine
}

type message struct {
	severity int
	text     string
}

func newSyslog(socket string, fallback io.Writer) *syslog {
	s := &syslog{
		socket: socket, fallback: fallback, tag: fmt.Sprintf("satld[%d]", os.Getpid()),
		queue: make(chan message, waiting), done: make(chan struct{}),
	}
	go s.run()
	return s
}

// send hands a message over. It does not wait.
func (s *syslog) send(severity int, text string) {
	s.closing.RLock()
	defer s.closing.RUnlock()
	if s.closed {
		fmt.Fprintln(s.fallback, text)
		return
	}
	select {
	case s.queue <- message{severity, text}:
	default:
		s.dropped.Add(1)
	}
}

// close sends what waits, for at most closeBound.
func (s *syslog) close() {
	s.closing.Lock()
	if !s.closed {
		s.closed = true
		close(s.queue)
	}
	s.closing.Unlock()
	select {
	case <-s.done:
	case <-time.After(closeBound):
	}
}

func (s *syslog) run() {
	defer close(s.done)
	for m := range s.queue {
		s.deliver(m)
		if n := s.dropped.Swap(0); n > 0 {
			s.deliver(message{severityWarn, fmt.Sprintf("level=WARN msg=%q lines=%d", "lines of the log were dropped: syslogd does not take them fast enough", n)})
		}
	}
	if s.conn != nil {
		s.conn.Close()
	}
}

// deliver sends one message, by a new connection if syslogd was restarted
// meanwhile, or writes it to the fallback.
func (s *syslog) deliver(m message) {
	packet := format(m, s.tag)
	err := s.write(packet)
	if err != nil && !isFullSocket(err) {
		err = s.write(packet)
	}
	if err != nil {
		fmt.Fprintln(s.fallback, m.text)
	}
}

// format is a message as syslog(3) sent it before RFC 5424, without a time,
// which syslogd then adds. A text that is too long is cut, and says so.
func format(m message, tag string) []byte {
	packet := fmt.Appendf(nil, "<%d>%s: %s", facilityDaemon|m.severity, tag, m.text)
	if len(packet) > maxMessage {
		packet = append(packet[:maxMessage-len(cutMark)], cutMark...)
	}
	return packet
}

func (s *syslog) write(packet []byte) (err error) {
	if s.conn == nil {
		if s.conn, err = net.Dial("unixgram", s.socket); err != nil {
			s.conn = nil
			return err
		}
	}
	deadline := time.Now().Add(sendBound)
	if err := s.conn.SetWriteDeadline(deadline); err != nil {
		return err
	}
	for {
		_, err = s.conn.Write(packet)
		if !isFullSocket(err) || time.Now().After(deadline) {
			break
		}
		time.Sleep(fullRetry)
	}
	if err != nil && !isFullSocket(err) {
		s.conn.Close()
		s.conn = nil
	}
	return err
}

// isFullSocket tells that syslogd does not read.
func isFullSocket(err error) bool {
	return errors.Is(err, syscall.ENOBUFS) || errors.Is(err, os.ErrDeadlineExceeded)
}
