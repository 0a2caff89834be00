// SPDX-License-Identifier: BSD-2-Clause

package logfile

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func readAll(t *testing.T, dir string) string {
	t.Helper()
	r := NewReader(dir)
	defer r.Close()
	var b strings.Builder
	for {
		p, err := r.Next()
		if errors.Is(err, io.EOF) {
			return b.String()
		}
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%s:%s ", p.Stream, p.Data)
	}
}

func write(t *testing.T, w *Writer, s Stream, text string) {
	t.Helper()
	if err := w.Write(s, []byte(text)); err != nil {
		t.Fatal(err)
	}
}

func TestOrderAcrossRotation(t *testing.T) {
	dir := t.TempDir()
	w, err := NewWriter(dir, 4, 100)
	if err != nil {
		t.Fatal(err)
	}
	r := NewReader(dir)
	defer r.Close()
	var want, got strings.Builder
	for i := range 50 {
		s := Stream(1 + i%2)
		text := fmt.Sprint(i)
		write(t, w, s, text)
		fmt.Fprintf(&want, "%s:%s ", s, text)
		if i%7 == 0 { // a reader that goes along
			for {
				p, err := r.Next()
				if err != nil {
					break
				}
				fmt.Fprintf(&got, "%s:%s ", p.Stream, p.Data)
			}
		}
	}
	w.Close()
	for {
		p, err := r.Next()
		if err != nil {
			break
		}
		fmt.Fprintf(&got, "%s:%s ", p.Stream, p.Data)
	}
	if got.String() != want.String() {
		t.Errorf("going along: %s", got.String())
	}
	if all := readAll(t, dir); all != want.String() {
		t.Errorf("afterwards: %s", all)
	}
}

func TestOldestGoes(t *testing.T) {
	dir := t.TempDir()
	w, _ := NewWriter(dir, 1, 3)
	for i := range 10 {
		write(t, w, Stdout, fmt.Sprint(i))
	}
	w.Close()
	if got := readAll(t, dir); got != "stdout:7 stdout:8 stdout:9 " {
		t.Error(got)
	}
	if files, _ := filepath.Glob(dir + "/*"); len(files) != 6 {
		t.Errorf("files %v", files)
	}
}

// What a writer killed at any point left is mended by the next one.
func TestMend(t *testing.T) {
	dir := t.TempDir()
	w, _ := NewWriter(dir, 0, 0)
	write(t, w, Stdout, "one\n")
	write(t, w, Stderr, "two\n")
	w.Close()
	// Killed between the bytes and their record, and in the middle of a record.
	f, _ := os.OpenFile(filepath.Join(dir, "1.out"), os.O_APPEND|os.O_WRONLY, 0)
	f.WriteString("three\n")
	f.Close()
	idx, _ := os.OpenFile(filepath.Join(dir, "1.idx"), os.O_APPEND|os.O_WRONLY, 0)
	idx.Write(record{at: time.Now(), length: 6, stream: Stdout}.encode()[:9])
	idx.Close()
	w, err := NewWriter(dir, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	write(t, w, Stdout, "four\n")
	w.Close()
	if got := readAll(t, dir); got != "stdout:one\n stderr:two\n stdout:three\n stdout:four\n " {
		t.Errorf("%q", got)
	}
	// After a power cut: zeros in the index, a record of bytes that are not there.
	idx, _ = os.OpenFile(filepath.Join(dir, "1.idx"), os.O_APPEND|os.O_WRONLY, 0)
	idx.Write(record{at: time.Now(), length: 99, stream: Stderr}.encode())
	idx.Write(make([]byte, recordSize))
	idx.Close()
	if w, err = NewWriter(dir, 0, 0); err != nil {
		t.Fatal(err)
	}
	write(t, w, Stderr, "five\n")
	w.Close()
	if got := readAll(t, dir); !strings.HasSuffix(got, "stdout:four\n stderr:five\n ") {
		t.Errorf("%q", got)
	}
}

// However the pieces are cut, the lines are the same.
func TestLinesOfAnyPieces(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	rnd := rand.New(rand.NewPCG(seed, 0))
	text := "a\n\nlonger line\n" + strings.Repeat("x", MaxLine-1) + "\n" + strings.Repeat("y", MaxLine) + "\n" + strings.Repeat("z", 2*MaxLine+5) + "\nend"
	want := fmt.Sprint([]string{"2 false", "1 false", "12 false", "16384 false", "16384 true", "1 false", "16384 true", "16384 true", "6 false", "4 false"})
	for range 50 {
		var l Lines
		var got []string
		var all strings.Builder
		last := time.Time{}
		each := func(line Line) error {
			got = append(got, fmt.Sprint(len(line.Data), line.Partial))
			all.Write(line.Data)
			if !line.Time.After(last) {
				t.Errorf("time %v after %v", line.Time, last)
			}
			last = line.Time
			return nil
		}
		for rest := text; rest != ""; {
			n := min(len(rest), 1+rnd.IntN(20000))
			l.Add(Piece{Time: time.Unix(1, 0), Stream: Stdout, Data: []byte(rest[:n])}, each)
			rest = rest[n:]
		}
		l.Flush(true, each)
		if fmt.Sprint(got) != want || all.String() != text+"\n" {
			t.Fatalf("seed %d: %v", seed, got)
		}
	}
}

// Take moves what a pipe holds, and tells nothing-now from nothing-more.
func TestTake(t *testing.T) {
	dir := t.TempDir()
	w, _ := NewWriter(dir, 0, 0)
	defer w.Close()
	r, pw, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	rc, _ := r.SyscallConn()
	take := func() (n int, err error) {
		rc.Control(func(fd uintptr) { n, err = w.Take(int(fd), Stderr) })
		return n, err
	}
	if n, err := take(); n != 0 || err == nil {
		t.Errorf("of an empty pipe: %d, %v", n, err)
	}
	pw.WriteString("hello")
	if n, err := take(); n != 5 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	pw.Close()
	if n, err := take(); n != 0 || err != nil {
		t.Errorf("at the end: %d, %v", n, err)
	}
	if got := readAll(t, dir); got != "stderr:hello " {
		t.Error(got)
	}
}
