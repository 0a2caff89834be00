// SPDX-License-Identifier: BSD-2-Clause

package raft

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
)

// The bbolt file format, version 2 (go.etcd.io/bbolt page.go and db.go). The
// file is checked by reading it, before bbolt maps it: bbolt panics on a
// damaged page in a goroutine of its own, where nobody can recover it, and a
// file cut short ends in SIGBUS.
const (
	boltMagic       = 0xED0CDAED
	boltVersion     = 2
	boltHeader      = 16 // id u64, flags u16, count u16, overflow u32
	boltMetaSize    = 64 // after the header: up to and with the checksum
	boltElement     = 16 // of a branch and of a leaf alike
	boltBranch      = 0x01
	boltLeaf        = 0x02
	boltFreelist    = 0x10
	boltSubBucket   = 0x01
	boltNoFreelist  = ^uint64(0)
	boltMaxDepth    = 64
	boltMinPageSize = 1024
	boltMaxPageSize = 64 << 10
)

// CheckDB reads the whole bbolt file at path and returns what is wrong with
// it, or nil: a file that does not exist or is empty is right. It does not
// lock the file, so nobody may be writing to it.
func CheckDB(path string) error {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if st.Size() == 0 {
		return nil
	}
	return checkBolt(f, st.Size())
}

// boltMeta is what a meta page says.
type boltMeta struct {
	pageSize uint64
	root     uint64
	freelist uint64
	pages    uint64 // high water mark: pages in use are below it
	txid     uint64
}

// boltCheck is one walk over the pages of a file.
type boltCheck struct {
	r    io.ReaderAt
	size int64
	meta boltMeta
	seen map[uint64]bool
}

// checkBolt is CheckDB on any reader.
func checkBolt(r io.ReaderAt, size int64) error {
	meta, err := readBoltMeta(r)
	if err != nil {
		return err
	}
	c := &boltCheck{r: r, size: size, meta: meta, seen: map[uint64]bool{0: true, 1: true}}
	if want := meta.pages * meta.pageSize; uint64(size) < want {
		return fmt.Errorf("cut short: %d bytes where at least %d are in use", size, want)
	}
	if meta.freelist != boltNoFreelist {
		if _, _, err := c.page(meta.freelist, boltFreelist); err != nil {
			return fmt.Errorf("free list: %w", err)
		}
	}
	return c.tree(meta.root, nil, nil, 0)
}

// readBoltMeta returns the newer valid one of the two meta pages.
func readBoltMeta(r io.ReaderAt) (boltMeta, error) {
	best, err0 := parseBoltMeta(r, 0)
	if err0 == nil {
		if m, err := parseBoltMeta(r, int64(best.pageSize)); err == nil && m.txid > best.txid {
			best = m
		}
		return best, nil
	}
	for size := int64(boltMinPageSize); size <= boltMaxPageSize; size *= 2 {
		if m, err := parseBoltMeta(r, size); err == nil && int64(m.pageSize) == size {
			return m, nil
		}
	}
	return boltMeta{}, fmt.Errorf("no valid meta page: %w", err0)
}

func parseBoltMeta(r io.ReaderAt, off int64) (boltMeta, error) {
	var b [boltMetaSize]byte
	if _, err := r.ReadAt(b[:], off+boltHeader); err != nil {
		return boltMeta{}, err
	}
	le := binary.LittleEndian
	m := boltMeta{
		pageSize: uint64(le.Uint32(b[8:])),
		root:     le.Uint64(b[16:]),
		freelist: le.Uint64(b[32:]),
		pages:    le.Uint64(b[40:]),
		txid:     le.Uint64(b[48:]),
	}
	h := fnv.New64a()
	h.Write(b[:56])
	switch {
	case le.Uint32(b[0:]) != boltMagic:
		return m, errors.New("not a bbolt database")
	case le.Uint32(b[4:]) != boltVersion:
		return m, fmt.Errorf("bbolt file version %d", le.Uint32(b[4:]))
	case le.Uint64(b[56:]) != h.Sum64():
		return m, errors.New("meta page checksum")
	case m.pageSize < boltMinPageSize || m.pageSize > boltMaxPageSize:
		return m, fmt.Errorf("page size %d", m.pageSize)
	}
	return m, nil
}

// page reads a page with its overflow, checks its header and marks it as seen.
func (c *boltCheck) page(id uint64, kinds ...uint16) (flags uint16, body []byte, err error) {
	if id < 2 || id >= c.meta.pages {
		return 0, nil, fmt.Errorf("page %d is outside the file", id)
	}
	var h [boltHeader]byte
	off := int64(id * c.meta.pageSize)
	if _, err := c.r.ReadAt(h[:], off); err != nil {
		return 0, nil, fmt.Errorf("page %d: %w", id, err)
	}
	le := binary.LittleEndian
	if got := le.Uint64(h[0:]); got != id {
		return 0, nil, fmt.Errorf("page %d calls itself %d", id, got)
	}
	flags = le.Uint16(h[8:])
	known := false
	for _, k := range kinds {
		known = known || flags == k
	}
	if !known {
		return 0, nil, fmt.Errorf("page %d is of kind %#x", id, flags)
	}
	overflow := uint64(le.Uint32(h[12:]))
	if id+overflow >= c.meta.pages {
		return 0, nil, fmt.Errorf("page %d runs over the end of the file", id)
	}
	for i := id; i <= id+overflow; i++ {
		if c.seen[i] {
			return 0, nil, fmt.Errorf("page %d is used twice", i)
		}
		c.seen[i] = true
	}
	body = make([]byte, (overflow+1)*c.meta.pageSize)
	if _, err := c.r.ReadAt(body, off); err != nil {
		return 0, nil, fmt.Errorf("page %d: %w", id, err)
	}
	return flags, body, nil
}

// tree checks the pages under id, whose keys are to lie in [low, high).
func (c *boltCheck) tree(id uint64, low, high []byte, depth int) error {
	if depth > boltMaxDepth {
		return fmt.Errorf("page %d: tree too deep", id)
	}
	flags, body, err := c.page(id, boltBranch, boltLeaf)
	if err != nil {
		return err
	}
	return c.elements(id, flags, body, low, high, depth)
}

// elements checks the elements of a page, or of an inline bucket's page.
func (c *boltCheck) elements(id uint64, flags uint16, body, low, high []byte, depth int) error {
	count := int(binary.LittleEndian.Uint16(body[10:]))
	if boltHeader+count*boltElement > len(body) {
		return fmt.Errorf("page %d: %d elements do not fit", id, count)
	}
	keys := make([][]byte, count)
	for i := range count {
		key, _, err := boltItem(flags, body, i)
		if err != nil {
			return fmt.Errorf("page %d: element %d: %w", id, i, err)
		}
		switch {
		case i > 0 && bytes.Compare(keys[i-1], key) >= 0,
			i == 0 && low != nil && bytes.Compare(key, low) < 0,
			high != nil && bytes.Compare(key, high) >= 0:
			return fmt.Errorf("page %d: key %d is out of order", id, i)
		}
		keys[i] = key
	}
	le := binary.LittleEndian
	for i := range count {
		at := body[boltHeader+i*boltElement:]
		if flags == boltBranch {
			next := high
			if i+1 < count {
				next = keys[i+1]
			}
			if err := c.tree(le.Uint64(at[8:]), keys[i], next, depth+1); err != nil {
				return err
			}
			continue
		}
		if le.Uint32(at) != boltSubBucket {
			continue
		}
		_, value, _ := boltItem(flags, body, i)
		if len(value) < 16 {
			return fmt.Errorf("page %d: bucket %d is too short", id, i)
		}
		if root := le.Uint64(value); root != 0 {
			if err := c.tree(root, nil, nil, depth+1); err != nil {
				return err
			}
		} else if len(value) < 16+boltHeader || le.Uint16(value[16+8:]) != boltLeaf {
			return fmt.Errorf("page %d: inline bucket %d is damaged", id, i)
		} else if err := c.elements(id, boltLeaf, value[16:], nil, nil, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// boltItem returns key and value of element i; a branch element has no value.
func boltItem(flags uint16, body []byte, i int) (key, value []byte, err error) {
	le := binary.LittleEndian
	off := boltHeader + i*boltElement
	at := body[off:]
	var pos, ksize, vsize uint64
	if flags == boltBranch {
		pos, ksize = uint64(le.Uint32(at)), uint64(le.Uint32(at[4:]))
	} else {
		pos, ksize, vsize = uint64(le.Uint32(at[4:])), uint64(le.Uint32(at[8:])), uint64(le.Uint32(at[12:]))
	}
	start := uint64(off) + pos
	if start+ksize+vsize > uint64(len(body)) {
		return nil, nil, errors.New("runs over the end of its page")
	}
	return body[start : start+ksize], body[start+ksize : start+ksize+vsize], nil
}
