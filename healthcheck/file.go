// SPDX-License-Identifier: BSD-2-Clause

package healthcheck

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Rules of the status file (spec/application-health.txt, "health_status_file").
const (
	// StatusAge is how old a status may be: an older one is a failure, so that
	// an application which hangs does not stay healthy for ever.
	StatusAge = 60 * time.Second
	// StatusAhead is how far in the future its time may be: a clock that was
	// set, or rounded up. Further ahead it would not grow old in time.
	StatusAhead = 5 * time.Second
	maxStatus   = 256 // bytes of the file
	// A file that is written in place is empty or cut short for a moment, and for
	// longer where its writer waits for a processor: one that makes no sense is
	// read again, each time after twice as long, 620 ms in all.
	statusReads  = 6
	statusReread = 20 * time.Millisecond
	maxLinks     = 40 // symbolic links in a path, as on Linux
)

// FileProbe reads a status file of the task: two lines, the word healthy or
// unhealthy in any case, and the Unix time in seconds at which the task wrote
// it. It may be written in place, or beside it and renamed.
//
// It must be a regular file; symbolic links are followed as the task would
// follow them and do not leave its root. What it holds is never quoted.
type FileProbe struct {
	root string
	path string
}

// Attempt implements Probe. A file that says healthy, not too long ago, passes.
func (p *FileProbe) Attempt(ctx context.Context, timeout time.Duration) Result {
	r := Result{Start: time.Now(), ExitCode: 1}
	rereads, cancel := context.WithTimeout(ctx, timeout/2) // what it says is an answer, not a timeout
	defer cancel()
	word, problem := ReadStatus(rereads, p.root, p.path)
	r.End = time.Now()
	switch r.Word = word; {
	case r.End.Sub(r.Start) > timeout:
		r.ExitCode, r.Word, r.Output = -1, "timed_out", fmt.Sprintf("Health check exceeded timeout (%v): read the status file", timeout)
	case problem == "":
		r.ExitCode, r.Output = 0, "the status file says healthy"
	default:
		r.Output = "status file: " + problem
	}
	return r
}

// The words of a status file in Evidence.ProbeSequence.
const (
	wordHealthy   = "healthy"
	wordUnhealthy = "unhealthy"
	wordStale     = "stale"
	wordMalformed = "malformed"
	wordMissing   = "missing"
	wordRefused   = "not_regular"
	wordFailed    = "failed"
)

// ReadStatus reads a status file below root and judges it as of now. problem is
// "" where it passes, else the rule that failed; neither it nor word quotes
// anything of the file. One that makes no sense is read again, a few times.
func ReadStatus(ctx context.Context, root, name string) (word, problem string) {
	wait := statusReread
	for reads := 1; ; reads++ {
		word, problem = readStatus(root, name, time.Now())
		if word != wordMalformed || reads == statusReads || !pause(ctx, wait) {
			return word, problem
		}
		wait *= 2
	}
}

// readStatus reads a status file once.
func readStatus(root, name string, now time.Time) (word, problem string) {
	file, err := openIn(root, name)
	if err == nil {
		defer file.Close()
		var data []byte
		if data, err = io.ReadAll(io.LimitReader(file, maxStatus+1)); err == nil {
			return parseStatus(data, now)
		}
	}
	switch {
	case errors.Is(err, errNotRegular):
		return wordRefused, "it is not a regular file"
	case errors.Is(err, fs.ErrNotExist):
		return wordMissing, "it does not exist"
	}
	return wordFailed, "it cannot be read: " + reasonOf(err)
}

// parseStatus judges what a status file holds.
func parseStatus(data []byte, now time.Time) (word, problem string) {
	if len(data) > maxStatus {
		return wordMalformed, fmt.Sprintf("it is longer than %d bytes", maxStatus)
	}
	lines := bytes.Split(bytes.TrimSuffix(data, []byte("\n")), []byte("\n"))
	if len(lines) != 2 {
		return wordMalformed, "it has not two lines"
	}
	state := string(bytes.TrimSpace(lines[0]))
	healthy := strings.EqualFold(state, wordHealthy)
	if !healthy && !strings.EqualFold(state, wordUnhealthy) {
		return wordMalformed, "line 1 is neither healthy nor unhealthy"
	}
	seconds, err := strconv.ParseUint(string(bytes.TrimSpace(lines[1])), 10, 62)
	if err != nil {
		return wordMalformed, "line 2 is not a Unix time in seconds"
	}
	// In seconds, which do not overflow: a file may name any time.
	age := now.Unix() - int64(seconds)
	switch {
	case !healthy:
		return wordUnhealthy, "line 1 says unhealthy"
	case age > int64(StatusAge/time.Second):
		return wordStale, fmt.Sprintf("line 2 is older than %d s", StatusAge/time.Second)
	case -age > int64(StatusAhead/time.Second):
		return wordStale, fmt.Sprintf("line 2 is more than %d s in the future", StatusAhead/time.Second)
	}
	return wordHealthy, ""
}

var errNotRegular = errors.New("not a regular file")

// openIn opens a regular file below root as a process whose root it is would:
// symbolic links, absolute ones too, stay inside. Nothing else than a regular
// file is opened, and should one take its place meanwhile, the open does not
// wait for a FIFO's writer and what was opened is let go of.
func openIn(root, name string) (*os.File, error) {
	dir, err := os.OpenRoot(root)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	name, err = resolve(dir, name)
	if err != nil {
		return nil, err
	}
	if info, err := dir.Lstat(name); err != nil {
		return nil, err
	} else if !info.Mode().IsRegular() {
		return nil, errNotRegular
	}
	file, err := dir.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		file.Close()
		return nil, cmp.Or(err, errNotRegular)
	}
	return file, nil
}

// resolve is a path with its symbolic links followed, dir being the root.
// Whatever is exchanged meanwhile, dir lets no use of the result leave it.
func resolve(dir *os.Root, name string) (string, error) {
	done, links := "", 0
	rest := strings.Split(name, "/")
	for len(rest) > 0 {
		part := rest[0]
		rest = rest[1:]
		switch part {
		case "", ".":
			continue
		case "..":
			if done = path.Dir(done); done == "." {
				done = ""
			}
			continue
		}
		at := path.Join(done, part)
		info, err := dir.Lstat(at)
		if err != nil {
			return "", err
		}
		if info.Mode().Type() != fs.ModeSymlink {
			done = at
			continue
		}
		if links++; links > maxLinks {
			return "", syscall.ELOOP
		}
		target, err := dir.Readlink(at)
		if err != nil {
			return "", err
		}
		if strings.HasPrefix(target, "/") {
			done = ""
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	if done == "" {
		done = "."
	}
	return done, nil
}

// pause waits for d, and tells whether ctx did not end before.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
