// SPDX-License-Identifier: BSD-2-Clause

// Package logfile is a container's output on disk: written by the shim, read
// by the daemon while it is being written.
//
// Output is kept as it came, so that nothing has to be looked at, copied or
// held back when it is written, and a shim that is killed loses nothing. A
// directory holds segments. Segment n is up to three files: n.out and n.err,
// the raw bytes of the two streams, and n.idx, a record of 16 bytes for each
// piece of them in the order of its arrival: unix time in nanoseconds (8),
// length (4), stream (1), zeros (3), little endian. A piece is appended to its
// stream first and to the index second; what a stream holds beyond its index
// was written by a shim that died in between, and the next writer indexes it.
// When the two streams of a segment together reach the size limit the next
// segment begins, and the oldest goes. Lines are found when reading.
package logfile

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"time"
)

// Stream is one of a container's two outputs.
type Stream uint8

// The streams. Everything of a terminal is Stdout.
const (
	Stdout Stream = 1
	Stderr Stream = 2
)

// String is Docker's name of the stream.
func (s Stream) String() string {
	if s == Stderr {
		return "stderr"
	}
	return "stdout"
}

// Defaults of the rotation: what a container without limits of its own may
// keep is 30 MiB, which a node with a hundred of them can afford.
const (
	DefaultMaxSize  = 10 << 20
	DefaultMaxFiles = 3
)

const recordSize = 16

// record is one piece of output in the index.
type record struct {
	at     time.Time
	length uint32
	stream Stream
}

func (r record) encode() []byte {
	b := make([]byte, recordSize)
	binary.LittleEndian.PutUint64(b, uint64(r.at.UnixNano()))
	binary.LittleEndian.PutUint32(b[8:], r.length)
	b[12] = byte(r.stream)
	return b
}

func decodeRecord(b []byte) record {
	return record{
		at:     time.Unix(0, int64(binary.LittleEndian.Uint64(b))),
		length: binary.LittleEndian.Uint32(b[8:]),
		stream: Stream(b[12]),
	}
}

// valid tells a record from the zeros that a power cut may leave.
func (r record) valid() bool { return r.stream == Stdout || r.stream == Stderr }

func indexPath(dir string, n int) string { return filepath.Join(dir, strconv.Itoa(n)+".idx") }

func streamPath(dir string, n int, s Stream) string {
	ext := ".out"
	if s == Stderr {
		ext = ".err"
	}
	return filepath.Join(dir, strconv.Itoa(n)+ext)
}

// segments lists the numbers of the segments of dir, oldest first.
func segments(dir string) ([]int, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var nums []int
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), ".idx")
		if !ok {
			continue
		}
		if n, err := strconv.Atoi(name); err == nil {
			nums = append(nums, n)
		}
	}
	sort.Ints(nums)
	return nums, nil
}
