// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"satld/internal/slowday"
)

// syslogd is a daemon that reads messages, as the host's does.
func syslogd(t *testing.T, socket string) *net.UnixConn {
	t.Helper()
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func received(t *testing.T, l *net.UnixConn) string {
	t.Helper()
	buf := make([]byte, 8192)
	if err := l.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	n, err := l.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	return string(buf[:n])
}

func TestSyslogLines(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "log")
	daemon := syslogd(t, socket)
	var fallback bytes.Buffer
	s := newSyslog(socket, &fallback)
	var level slog.LevelVar
	level.Set(slog.LevelDebug)
	log := slog.New(newSyslogHandler(s, "text", &level))
	task := log.With("task_id", "t1")
	log.Info("up", "socket", "/x y")
	task.Warn("health changed", "output", "na\u00efve \x1b[31m\xff\nsecond \U0001f600")
	task.WithGroup("probe").Error("failed", "exit", 1)
	task.Debug(strings.Repeat("x", 3000))
	tag := fmt.Sprintf("satld[%d]: ", os.Getpid())
	for _, want := range []string{
		`<29>` + tag + `level=INFO msg=up socket="/x y"`,
		`<28>` + tag + `level=WARN msg="health changed" task_id=t1 output="na\u00efve \x1b[31m\xff\nsecond \ud83d\ude00"`,
		`<27>` + tag + `level=ERROR msg=failed task_id=t1 probe.exit=1`,
	} {
		if got := received(t, daemon); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	long := received(t, daemon)
	if len(long) != maxMessage || !strings.HasPrefix(long, "<31>"+tag+"level=DEBUG") || !strings.HasSuffix(long, "xxx [cut]") {
		t.Errorf("a long line has %d bytes: %.60s...%s", len(long), long, long[len(long)-20:])
	}
	s.close()
	if fallback.Len() > 0 {
		t.Errorf("on stderr: %s", &fallback)
	}
	log.Info("after the end")
	if got := fallback.String(); got != "level=INFO msg=\"after the end\"\n" {
		t.Errorf("after the end: %q", got)
	}
}

// TestSyslogdRestarts: messages reach the new one, and stderr in between.
func TestSyslogdRestarts(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "log")
	daemon := syslogd(t, socket)
	fallback := &safeBuffer{}
	s := newSyslog(socket, fallback)
	s.send(severityNotice, "one")
	if got := received(t, daemon); !strings.HasSuffix(got, ": one") {
		t.Errorf("got %q", got)
	}
	daemon.Close()
	os.Remove(socket)
	s.send(severityNotice, "two")
	fallback.await(t, "two\n")
	daemon = syslogd(t, socket)
	s.send(severityNotice, "three")
	if got := received(t, daemon); !strings.HasSuffix(got, ": three") {
		t.Errorf("got %q", got)
	}
	s.close()
}

// TestSyslogNeverWaits: a syslogd that does not read keeps nobody; what is
// dropped is counted.
func TestSyslogNeverWaits(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "log")
	daemon := syslogd(t, socket)
	if err := daemon.SetReadBuffer(4096); err != nil {
		t.Fatal(err)
	}
	s := newSyslog(socket, io.Discard)
	const sent = waiting + 5000
	begun := time.Now()
	for range sent {
		s.send(severityNotice, strings.Repeat("x", 500))
	}
	if took := time.Since(begun); took > slowday.Of(sendBound) {
		t.Errorf("%d messages took %s of their sender's time", sent, took)
	}
	for {
		if got := received(t, daemon); strings.Contains(got, "lines of the log were dropped") {
			t.Log(got)
			break
		}
	}
	s.close()
}

// safeBuffer is a buffer that a goroutine writes to.
type safeBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// await waits until what was written holds text.
func (b *safeBuffer) await(t *testing.T, text string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !strings.Contains(b.String(), text); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%q is not in %q", text, b)
		}
	}
}

func TestASCII(t *testing.T) {
	for in, want := range map[string]string{
		"":             "",
		"plain\n":      "plain\n",
		"tab\there":    `tab\u0009here`,
		"\x80\x9f":     `\x80\x9f`,
		"\u0085":       `\u0085`,
		"\U0001f600":   `\ud83d\ude00`,
		"a\x7fb\r\x00": `a\u007fb\u000d\u0000`,
	} {
		if got := string(ascii([]byte(in))); got != want {
			t.Errorf("%q is written as %q, want %q", in, got, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		in := rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")
		for _, b := range ascii(in) {
			if (b < ' ' || b > '~') && b != '\n' {
				t.Fatalf("%q is written with byte %#x", in, b)
			}
		}
	})
}

// TestJSONStaysJSON: what is escaped in a JSON log is the same text to who
// reads it.
func TestJSONStaysJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := strings.ToValidUTF8(rapid.String().Draw(t, "text"), "\ufffd")
		var out bytes.Buffer
		log, err := newLogger(&out, "info", "json")
		if err != nil {
			t.Fatal(err)
		}
		log.Info("m", "text", text)
		var line struct{ Text string }
		if err := json.Unmarshal(out.Bytes(), &line); err != nil || line.Text != text {
			t.Fatalf("%q is read back from %s as %q: %v", text, &out, line.Text, err)
		}
	})
}
