// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"unicode/utf8"
)

// logs is the daemon's log.
type logs struct {
	*slog.Logger
	level *slog.LevelVar // of what is written; may be set at any time
	flush func()         // writes what waits, for a bounded time
}

// openLogs opens the log where the configuration has it: on stderr, or as
// messages to the host's syslogd. A daemon that somebody runs at a terminal
// says there as well what it tells syslogd.
func openLogs(cfg Config, stderr *os.File) (*logs, error) {
	level, err := logLevel(cfg.LogLevel)
	if err != nil {
		return nil, err
	}
	l := &logs{level: new(slog.LevelVar), flush: func() {}}
	l.level.Set(level)
	if cfg.LogOutput != outputSyslog {
		l.Logger = slog.New(newHandler(stderr, cfg.LogFormat, &slog.HandlerOptions{Level: l.level}))
		return l, nil
	}
	s := newSyslog(syslogSocket, stderr)
	l.flush = s.close
	l.Logger = slog.New(newSyslogHandler(s, cfg.LogFormat, l.level))
	if st, err := stderr.Stat(); err == nil && st.Mode()&os.ModeCharDevice != 0 {
		near := newHandler(stderr, cfg.LogFormat, &slog.HandlerOptions{Level: l.level})
		l.Logger = slog.New(slog.NewMultiHandler(l.Handler(), near))
	}
	return l, nil
}

// newLogger is a log of one line a record on w, text or JSON.
func newLogger(w io.Writer, level, format string) (*slog.Logger, error) {
	l, err := logLevel(level)
	if err != nil {
		return nil, err
	}
	return slog.New(newHandler(w, format, &slog.HandlerOptions{Level: l})), nil
}

// newHandler writes records in ASCII, text or JSON.
func newHandler(w io.Writer, format string, options *slog.HandlerOptions) slog.Handler {
	w = asciiWriter{w}
	if format == "json" {
		return slog.NewJSONHandler(w, options)
	}
	return slog.NewTextHandler(w, options)
}

// asciiWriter escapes what is not printable ASCII: syslogd and terminals mangle
// some of it, and a message of a container's must not be able to steer them.
type asciiWriter struct{ w io.Writer }

func (a asciiWriter) Write(p []byte) (int, error) {
	if _, err := a.w.Write(ascii(p)); err != nil {
		return 0, err
	}
	return len(p), nil
}

// ascii writes every character outside of printable ASCII and the newline as
// \uXXXX, above U+FFFF as two of them, as JSON has it; a byte that is of no
// character as \xXX.
func ascii(p []byte) []byte {
	clean := func(b byte) bool { return b >= ' ' && b <= '~' || b == '\n' }
	if !bytes.ContainsFunc(p, func(r rune) bool { return r >= utf8.RuneSelf || !clean(byte(r)) }) {
		return p
	}
	var out bytes.Buffer
	for len(p) > 0 {
		r, n := utf8.DecodeRune(p)
		switch {
		case n == 1 && r == utf8.RuneError:
			fmt.Fprintf(&out, `\x%02x`, p[0])
		case n == 1 && clean(p[0]):
			out.WriteByte(p[0])
		case r > 0xffff:
			r -= 0x10000
			fmt.Fprintf(&out, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		default:
			fmt.Fprintf(&out, `\u%04x`, r)
		}
		p = p[n:]
	}
	return out.Bytes()
}

// syslogHandler hands each record to syslogd, which adds the time.
type syslogHandler struct {
	inner slog.Handler // writes into line
	to    *syslog

	mu   *sync.Mutex
	line *bytes.Buffer
}

func newSyslogHandler(to *syslog, format string, level slog.Leveler) slog.Handler {
	line := new(bytes.Buffer)
	inner := newHandler(line, format, &slog.HandlerOptions{Level: level, ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		if len(groups) == 0 && a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}})
	return syslogHandler{inner: inner, to: to, mu: new(sync.Mutex), line: line}
}

func (h syslogHandler) Enabled(ctx context.Context, l slog.Level) bool {
	return h.inner.Enabled(ctx, l)
}

func (h syslogHandler) Handle(ctx context.Context, r slog.Record) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.line.Reset()
	if err := h.inner.Handle(ctx, r); err != nil {
		return err
	}
	h.to.send(severity(r.Level), string(bytes.TrimRight(h.line.Bytes(), "\n")))
	return nil
}

func (h syslogHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	h.inner = h.inner.WithAttrs(attrs)
	return h
}

func (h syslogHandler) WithGroup(name string) slog.Handler {
	h.inner = h.inner.WithGroup(name)
	return h
}
