// SPDX-License-Identifier: BSD-2-Clause

package logfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"
)

// Piece is output as it arrived.
type Piece struct {
	Time   time.Time
	Stream Stream
	Data   []byte // valid until the next call
}

// Reader reads the pieces of a log in order, also while it is written.
type Reader struct {
	dir  string
	snap *Snapshot // its segments are read first; nil: of the directory alone
	// bounded ends the reading where the snapshot ends.
	bounded bool

	n    int // current segment; 0 before the first
	idx  *os.File
	raw  [3]*os.File
	off  [3]int64 // read of each stream, by Stream
	pos  int64    // in the index
	part int64    // handed out of the record at pos
	buf  []byte
}

// NewReader reads the log in dir from its beginning.
func NewReader(dir string) *Reader { return &Reader{dir: dir} }

// maxPiece bounds what one call of Next holds in memory.
const maxPiece = 64 << 10

// Next returns the next piece, or io.EOF where the log ends for now: calling
// it again later goes on from there.
func (r *Reader) Next() (Piece, error) {
	for {
		if r.idx == nil {
			if err := r.openAfter(r.n); err != nil {
				return Piece{}, err
			}
		}
		rec, err := r.record()
		if err == nil {
			return r.piece(rec)
		}
		if !errors.Is(err, io.EOF) {
			return Piece{}, err
		}
		if r.bounded && r.snap.last(r.n) {
			return Piece{}, io.EOF
		}
		// The segment ends here for good only if there is a later one, and
		// then a last record may have come in between.
		later, err := r.hasAfter(r.n)
		if err != nil {
			return Piece{}, err
		}
		if !later {
			return Piece{}, io.EOF
		}
		if rec, err := r.record(); err == nil {
			return r.piece(rec)
		}
		r.Close()
	}
}

// SkipToEnd goes to where the log ends now.
func (r *Reader) SkipToEnd() error {
	for {
		if r.idx == nil {
			if err := r.openAfter(r.n); err != nil {
				if errors.Is(err, io.EOF) {
					return nil
				}
				return err
			}
		}
		for {
			rec, err := r.record()
			if errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return err
			}
			r.advance(rec, int64(rec.length))
		}
		later, err := r.hasAfter(r.n)
		if err != nil {
			return err
		}
		if !later {
			return nil
		}
		r.Close()
	}
}

// record is what remains to be read of the record at pos.
func (r *Reader) record() (record, error) {
	if r.bounded && r.snap.last(r.n) && r.pos+recordSize > r.snap.end {
		return record{}, io.EOF
	}
	var b [recordSize]byte
	n, err := r.idx.ReadAt(b[:], r.pos)
	if n < recordSize {
		if err == nil || errors.Is(err, io.EOF) {
			return record{}, io.EOF
		}
		return record{}, fmt.Errorf("read log index: %w", err)
	}
	rec := decodeRecord(b[:])
	if !rec.valid() {
		return record{}, io.EOF
	}
	rec.length -= uint32(r.part)
	return rec, nil
}

// advance notes that n bytes of what remains of the record were handed out.
func (r *Reader) advance(rec record, n int64) {
	r.off[rec.stream] += n
	r.part += n
	if n == int64(rec.length) {
		r.pos, r.part = r.pos+recordSize, 0
	}
}

func (r *Reader) piece(rec record) (Piece, error) {
	f := r.raw[rec.stream]
	if f == nil {
		var err error
		if f, err = os.Open(streamPath(r.dir, r.n, rec.stream)); err != nil {
			if errors.Is(err, fs.ErrNotExist) { // rotated away under us
				r.Close()
				return r.Next()
			}
			return Piece{}, fmt.Errorf("open log: %w", err)
		}
		r.raw[rec.stream] = f
	}
	n := min(int64(rec.length), maxPiece)
	if int64(cap(r.buf)) < n {
		r.buf = make([]byte, n)
	}
	b := r.buf[:n]
	m, err := f.ReadAt(b, r.off[rec.stream])
	if int64(m) < n {
		if err == nil || errors.Is(err, io.EOF) {
			return Piece{}, io.EOF
		}
		return Piece{}, fmt.Errorf("read log: %w", err)
	}
	r.advance(rec, n)
	return Piece{Time: rec.at, Stream: rec.stream, Data: b}, nil
}

// openAfter opens the first segment after n; io.EOF when there is none.
func (r *Reader) openAfter(n int) error {
	if seg, ok := r.snap.after(n); ok {
		r.n, r.idx, r.raw, r.pos, r.part, r.off = seg.n, seg.idx, seg.raw, 0, 0, [3]int64{}
		return nil
	}
	if r.bounded {
		return io.EOF
	}
	for {
		nums, err := segments(r.dir)
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				return io.EOF
			}
			return fmt.Errorf("list log segments: %w", err)
		}
		next := 0
		for _, num := range nums {
			if num > n {
				next = num
				break
			}
		}
		if next == 0 {
			return io.EOF
		}
		f, err := os.Open(indexPath(r.dir, next))
		if errors.Is(err, fs.ErrNotExist) {
			continue // rotated away under us
		}
		if err != nil {
			return fmt.Errorf("open log index: %w", err)
		}
		r.n, r.idx, r.pos, r.part, r.off = next, f, 0, 0, [3]int64{}
		return nil
	}
}

func (r *Reader) hasAfter(n int) (bool, error) {
	_, err := os.Lstat(indexPath(r.dir, n+1))
	if err == nil {
		return true, nil
	}
	nums, err := segments(r.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return len(nums) > 0 && nums[len(nums)-1] > n, err
}

// Close closes the files of the current segment, but for those of a snapshot.
func (r *Reader) Close() {
	for _, f := range []*os.File{r.idx, r.raw[Stdout], r.raw[Stderr]} {
		if f != nil && !r.snap.holds(f) {
			f.Close()
		}
	}
	r.idx, r.raw = nil, [3]*os.File{}
}
