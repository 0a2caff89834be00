// SPDX-License-Identifier: BSD-2-Clause

package atomicfile

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
)

// writerEnv makes of the test program a writer of the file that it names, which
// writes on and on, or the given number of times.
const (
	writerEnv = "ATOMICFILE_TEST_WRITES"
	timesEnv  = "ATOMICFILE_TEST_TIMES"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(writerEnv); path != "" {
		if err := writeOn(path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// content is one of many contents, each of a size of its own, that show by
// themselves whether they are whole.
func content(i int) []byte {
	fill := bytes.Repeat([]byte{'a' + byte(i%26)}, 1+i%7*40_000)
	return fmt.Appendf(nil, "%d\n%s\n", len(fill), fill)
}

// whole tells whether data is one content and no part or mixture of some.
func whole(data []byte) bool {
	size, fill, ok := bytes.Cut(data, []byte{'\n'})
	n, err := strconv.Atoi(string(size))
	return ok && err == nil && len(fill) == n+1 && fill[n] == '\n' && bytes.Count(fill, fill[:1]) == n
}

// writeOn is the writer's process. It says so when it has written once.
func writeOn(path string) error {
	times, err := strconv.Atoi(os.Getenv(timesEnv))
	if err != nil {
		return err
	}
	for i := 0; i != times; i++ {
		if err := Write(path, content(os.Getpid()+i), 0o600); err != nil {
			return err
		}
		if i == 0 {
			fmt.Println("written")
		}
	}
	return nil
}

func writer(t *testing.T, path string, times int) (cmd *exec.Cmd, out *bufio.Reader) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd = exec.Command(self)
	cmd.Env = append(os.Environ(), writerEnv+"="+path, timesEnv+"="+strconv.Itoa(times))
	cmd.Stderr = os.Stderr
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, bufio.NewReader(pipe)
}

// Writers of one file, in this process and in others, follow each other: all
// succeed, a reader finds a whole content whenever it looks, and nothing is left
// beside the file.
func TestWritersOverlap(t *testing.T) {
	const each = 40
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	if err := Write(path, content(0), 0o600); err != nil {
		t.Fatal(err)
	}
	var others []*exec.Cmd
	for range 2 {
		cmd, out := writer(t, path, each)
		others = append(others, cmd)
		go io.Copy(io.Discard, out)
	}
	var writers sync.WaitGroup
	for w := range 4 {
		writers.Go(func() {
			for i := range each {
				if err := Write(path, content(w*each+i), 0o600); err != nil {
					t.Errorf("writer %d: %v", w, err)
				}
			}
		})
	}
	done := make(chan struct{})
	var reader sync.WaitGroup
	reader.Go(func() {
		for {
			data, err := os.ReadFile(path)
			if err != nil || !whole(data) {
				t.Errorf("read %d bytes that are no whole content, %v", len(data), err)
			}
			select {
			case <-done:
				return
			default:
			}
		}
	})
	writers.Wait()
	for _, cmd := range others {
		if err := cmd.Wait(); err != nil {
			t.Errorf("the writer in another process: %v", err)
		}
	}
	close(done)
	reader.Wait()
	holds(t, dir, "f")
}

// awaitUnfinished returns while a writer is at work.
func awaitUnfinished(t *testing.T, path string, gone <-chan struct{}) {
	t.Helper()
	for {
		_, err := os.Lstat(Unfinished(path))
		if err == nil {
			return
		}
		if !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		select {
		case <-gone:
			t.Fatal("the writer ended by itself")
		default:
		}
	}
}

// A writer is killed, mostly in the middle: the file is whole, and the next
// writer neither waits for the dead one nor leaves anything of it.
func TestKilledWriter(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	halves := 0
	for i := range 20 {
		cmd, out := writer(t, path, -1)
		if _, err := out.ReadString('\n'); err != nil {
			t.Fatalf("the writer said nothing: %v", err)
		}
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			io.Copy(io.Discard, out)
		}()
		awaitUnfinished(t, path, gone)
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		<-gone
		if err := cmd.Wait(); cmd.ProcessState.Exited() {
			t.Fatalf("the writer ended by itself: %v", err)
		}
		if !whole([]byte(read(t, path))) {
			t.Fatalf("round %d: what is left is no whole content", i)
		}
		if _, err := os.Lstat(Unfinished(path)); err == nil {
			halves++
		} else if !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		if err := Write(path, content(i), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := read(t, path); got != string(content(i)) {
			t.Fatalf("round %d: the next writer's content is not there", i)
		}
		holds(t, dir, "f")
	}
	t.Logf("%d of 20 were killed in the middle of a write", halves)
}
