// SPDX-License-Identifier: BSD-2-Clause

package raft

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	hraft "github.com/hashicorp/raft"
	"github.com/moby/swarmkit/v2/api"
)

// An entry's Data is an api.InternalRaftRequest; its Extensions hold what we
// say about it: a version byte, the index of the state it was computed on
// (u64), and a CRC-32C over both that index and Data (u32), big endian.
const (
	extVersion = 1
	extSize    = 1 + 8 + 4
	// maxEntry bounds one entry, in bytes; SwarmKit splits its transactions at
	// 1.5 MiB, so this is met only by a single huge object.
	maxEntry = 16 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// newEntry makes a log entry of a transaction computed on the state of index base.
func newEntry(id, base uint64, actions []api.StoreAction) (hraft.Log, error) {
	req := api.InternalRaftRequest{ID: id, Action: actions}
	data, err := req.Marshal()
	if err != nil {
		return hraft.Log{}, fmt.Errorf("encode a store transaction: %w", err)
	}
	if len(data) > maxEntry {
		return hraft.Log{}, fmt.Errorf("store transaction of %d bytes exceeds the limit of %d", len(data), maxEntry)
	}
	ext := make([]byte, extSize)
	ext[0] = extVersion
	binary.BigEndian.PutUint64(ext[1:], base)
	binary.BigEndian.PutUint32(ext[9:], entrySum(ext, data))
	return hraft.Log{Data: data, Extensions: ext}, nil
}

func entrySum(ext, data []byte) uint32 {
	return crc32.Update(crc32.Checksum(ext[1:9], castagnoli), castagnoli, data)
}

// entryBase returns the index an entry was computed on and whether its
// checksum holds.
func entryBase(l *hraft.Log) (base uint64, err error) {
	if len(l.Extensions) != extSize || l.Extensions[0] != extVersion {
		return 0, fmt.Errorf("entry %d has a header of an unknown kind", l.Index)
	}
	if binary.BigEndian.Uint32(l.Extensions[9:]) != entrySum(l.Extensions, l.Data) {
		return 0, fmt.Errorf("entry %d: checksum mismatch", l.Index)
	}
	return binary.BigEndian.Uint64(l.Extensions[1:]), nil
}

// checkLog reads the log from its first to its last entry and returns what is
// wrong with it: hashicorp/raft panics on an entry it cannot read.
func checkLog(logs hraft.LogStore) error {
	first, err := logs.FirstIndex()
	if err != nil {
		return err
	}
	last, err := logs.LastIndex()
	if err != nil {
		return err
	}
	if last == 0 {
		return nil
	}
	var term uint64
	for i := first; i <= last; i++ {
		var l hraft.Log
		if err := logs.GetLog(i, &l); errors.Is(err, hraft.ErrLogNotFound) {
			return fmt.Errorf("entry %d of %d to %d is missing", i, first, last)
		} else if err != nil {
			return fmt.Errorf("entry %d: %w", i, err)
		}
		if l.Index != i || l.Term < term {
			return fmt.Errorf("entry %d is out of order", i)
		}
		term = l.Term
		if l.Type == hraft.LogCommand {
			if _, err := entryBase(&l); err != nil {
				return err
			}
		}
	}
	return nil
}
