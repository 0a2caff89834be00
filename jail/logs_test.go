// SPDX-License-Identifier: BSD-2-Clause

//go:build linux || freebsdhost

package jail

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// lines are the log's, each as stream, text and mark of a part.
func (n *node) lines(id string, q LogQuery) []string {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var got []string
	err := n.Logs(ctx, id, q, func(l LogLine) error {
		text := l.Stream + ":" + strings.TrimSuffix(string(l.Line), "\n")
		if l.Partial {
			text += "..."
		}
		got = append(got, text)
		return nil
	})
	if err != nil {
		n.t.Fatal(err)
	}
	return got
}

func TestLogQueries(t *testing.T) {
	n := newNode(t)
	s := n.spec(`for i in 1 2 3; do echo o$i; sleep 0.1; echo e$i >&2; sleep 0.1; done; printf end`)
	n.start(s)
	n.wait(s.ID)
	all := "stdout:o1 stderr:e1 stdout:o2 stderr:e2 stdout:o3 stderr:e3 stdout:end"
	for _, c := range []struct {
		q    LogQuery
		want string
	}{
		{LogQuery{}, all},
		{LogQuery{Stdout: true, Stderr: true, Tail: -1}, all},
		{LogQuery{Stdout: true, Stderr: true, Tail: 100}, all},
		{LogQuery{Stderr: true, Tail: -1}, "stderr:e1 stderr:e2 stderr:e3"},
		{LogQuery{Stdout: true, Tail: 2}, "stdout:o3 stdout:end"},
		{LogQuery{Tail: 3, Follow: true}, "stdout:o3 stderr:e3 stdout:end"},
	} {
		if got := strings.Join(n.lines(s.ID, c.q), " "); got != c.want {
			t.Errorf("%+v: %s, want %s", c.q, got, c.want)
		}
	}
	var times []time.Time
	n.Logs(context.Background(), s.ID, LogQuery{Tail: -1}, func(l LogLine) error { times = append(times, l.Time); return nil })
	if got := strings.Join(n.lines(s.ID, LogQuery{Since: times[2], Until: times[4]}), " "); got != "stdout:o2 stderr:e2 stdout:o3" {
		t.Errorf("since and until: %s", got)
	}
	if err := n.Logs(context.Background(), newID(), LogQuery{}, nil); !isNotFound(err) {
		t.Errorf("unknown container: %v", err)
	}
}

func TestLogLongLines(t *testing.T) {
	n := newNode(t)
	s := n.spec(`yes x | head -n 40000 | tr -d '\n'; echo; echo tail`)
	n.start(s)
	n.wait(s.ID)
	var sizes []string
	n.Logs(context.Background(), s.ID, LogQuery{Follow: true}, func(l LogLine) error {
		sizes = append(sizes, fmt.Sprint(len(l.Line), l.Partial))
		return nil
	})
	if got := strings.Join(sizes, ", "); got != "16384 true, 16384 true, 7233 false, 5 false" {
		t.Errorf("lines %s", got)
	}
}

func TestLogRotation(t *testing.T) {
	n := newNode(t)
	s := n.spec(`seq 1 200000`)
	s.LogMaxSize, s.LogMaxFiles = 100_000, 2
	n.start(s)
	n.wait(s.ID)
	got := n.lines(s.ID, LogQuery{Follow: true})
	if len(got) < 2 || got[len(got)-1] != "stdout:200000" {
		t.Fatalf("%d lines, the last %q", len(got), got[len(got)-1])
	}
	for i := 2; i < len(got); i++ { // the first may be the end of a line whose head went
		var a, b int
		fmt.Sscanf(got[i-1], "stdout:%d", &a)
		fmt.Sscanf(got[i], "stdout:%d", &b)
		if b != a+1 {
			t.Fatalf("%q after %q", got[i], got[i-1])
		}
	}
	files, _ := filepath.Glob(n.dir.Logs(s.ID) + "/*")
	var total int64
	for _, f := range files {
		st, _ := os.Stat(f)
		total += st.Size()
	}
	if len(files) > 6 || total > 2*(100_000+64<<10)+10_000 {
		t.Errorf("%d bytes in %v", total, files)
	}
	if tail := n.lines(s.ID, LogQuery{Tail: 3}); strings.Join(tail, " ") != "stdout:199998 stdout:199999 stdout:200000" {
		t.Errorf("tail %v", tail)
	}
}

func TestLogFollow(t *testing.T) {
	n := newNode(t)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	s := n.spec(`echo one; read x; echo two; read x; printf three`)
	s.OpenStdin, s.StdinOnce = true, true
	n.start(s)
	in, err := n.shim.Stdin(ctx, s.ID)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	err = n.Logs(ctx, s.ID, LogQuery{Tail: -1, Follow: true}, func(l LogLine) error {
		got = append(got, string(l.Line))
		in.Write([]byte("go\n")) // the next line is an answer to this one
		return nil
	})
	if err != nil || strings.Join(got, "|") != "one\n|two\n|three\n" {
		t.Errorf("%q, %v", got, err)
	}
	in.Close()
	// Of one that runs, a query that does not follow ends at once; one that follows ends with its context.
	s = n.spec(`printf unfinished; exec sleep 1000`)
	n.start(s)
	for range 5000 {
		if got = n.lines(s.ID, LogQuery{}); len(got) > 0 {
			break
		}
		time.Sleep(2 * time.Millisecond)
	}
	if strings.Join(got, "") != "stdout:unfinished..." {
		t.Errorf("%q", got)
	}
	short, cancel2 := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel2()
	if err := n.Logs(short, s.ID, LogQuery{Follow: true}, func(LogLine) error { return nil }); err == nil {
		t.Error("following ended although it runs")
	}
}

// Deleted containers keep their log until they are forgotten.
func TestLogAfterDelete(t *testing.T) {
	n := newNode(t)
	s := n.spec(`echo kept; exit 3`)
	n.start(s)
	n.wait(s.ID)
	if err := n.Delete(context.Background(), s.ID); err != nil {
		t.Fatal(err)
	}
	if got := n.lines(s.ID, LogQuery{Follow: true}); strings.Join(got, "") != "stdout:kept" {
		t.Errorf("%q", got)
	}
	if e := n.wait(s.ID); e.Code != 3 {
		t.Errorf("%+v", e)
	}
}

// A container that never stops writing: a query that does not follow ends.
func TestLogOfFlatOutWriter(t *testing.T) {
	n := newNode(t)
	s := n.spec(`exec yes written flat out`)
	s.LogMaxSize, s.LogMaxFiles = 1<<20, 2
	n.start(s)
	rotated := func() bool {
		_, err := os.Stat(filepath.Join(n.dir.Logs(s.ID), "1.idx"))
		return os.IsNotExist(err)
	}
	for deadline := time.Now().Add(patience); len(n.lines(s.ID, LogQuery{Tail: 1})) == 0 || !rotated(); {
		if time.Now().After(deadline) {
			t.Fatal("the log did not rotate")
		}
	}
	for _, tail := range []int{1, 3} {
		got := n.lines(s.ID, LogQuery{Tail: tail})
		if len(got) != tail {
			t.Errorf("tail %d: %d lines", tail, len(got))
		}
		for _, l := range got {
			if text, _ := strings.CutSuffix(l, "..."); !strings.HasPrefix("stdout:written flat out", text) {
				t.Errorf("tail %d: %q", tail, l)
			}
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var size int
	err := n.Logs(ctx, s.ID, LogQuery{}, func(l LogLine) error { size += len(l.Line); return nil })
	if most := 2*(1<<20+128<<10) + 128<<10; err != nil || size == 0 || size > most {
		t.Errorf("all of it: %d bytes, at most %d, %v", size, most, err)
	}
	// Following counts its tail from the request as well, and goes on.
	var followed int
	err = n.Logs(ctx, s.ID, LogQuery{Tail: 1, Follow: true}, func(LogLine) error {
		if followed++; followed == 1000 {
			return errEnough
		}
		return nil
	})
	if err != nil || followed != 1000 {
		t.Errorf("followed %d lines, %v", followed, err)
	}
}
