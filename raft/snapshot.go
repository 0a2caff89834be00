// SPDX-License-Identifier: BSD-2-Clause

package raft

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	hraft "github.com/hashicorp/raft"
	"github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/manager/state/store"
)

// A snapshot is a header (magic, index of the last command in it) and chunks,
// each a length (u32) and the encoding of an api.StoreSnapshot with some of
// the objects; a length of 0 ends it. Chunks of protobuf messages merge by
// being decoded one after the other into the same message. The file's own
// checksum is kept by hashicorp/raft's snapshot store.
const (
	snapshotMagic = "satlsnap"
	// chunkObjects is how many objects of a kind a chunk holds at most.
	chunkObjects = 256
	maxChunk     = 256 << 20
)

// snapshot is the store as of one index. The read transaction is an immutable
// view, so that writing it out does not hold up the log.
type snapshot struct {
	store *store.MemoryStore
	view  store.ReadTx
	index uint64
}

// Snapshot implements hraft.FSM.
func (f *fsm) Snapshot() (hraft.FSMSnapshot, error) {
	s := &snapshot{store: f.store, index: f.version()}
	f.store.View(func(tx store.ReadTx) { s.view = tx })
	return s, nil
}

// Release implements hraft.FSMSnapshot.
func (s *snapshot) Release() {}

// Persist implements hraft.FSMSnapshot.
func (s *snapshot) Persist(sink hraft.SnapshotSink) error {
	all, err := s.store.Save(s.view)
	if err != nil {
		return fmt.Errorf("read the store: %w", err)
	}
	return writeSnapshot(sink, s.index, all)
}

func writeSnapshot(w io.Writer, index uint64, all *api.StoreSnapshot) error {
	out := bufio.NewWriterSize(w, 64<<10)
	head := binary.BigEndian.AppendUint64([]byte(snapshotMagic), index)
	if _, err := out.Write(head); err != nil {
		return err
	}
	for _, part := range split(all) {
		b, err := part.Marshal()
		if err != nil {
			return fmt.Errorf("encode the store: %w", err)
		}
		if len(b) == 0 {
			continue
		}
		if _, err := out.Write(binary.BigEndian.AppendUint32(nil, uint32(len(b)))); err != nil {
			return err
		}
		if _, err := out.Write(b); err != nil {
			return err
		}
	}
	if _, err := out.Write(make([]byte, 4)); err != nil {
		return err
	}
	return out.Flush()
}

// split makes chunks of at most chunkObjects tasks, of which there are many,
// and one chunk of everything else.
func split(all *api.StoreSnapshot) []*api.StoreSnapshot {
	rest := *all
	rest.Tasks = nil
	parts := []*api.StoreSnapshot{&rest}
	for tasks := all.Tasks; len(tasks) > 0; {
		n := min(chunkObjects, len(tasks))
		parts = append(parts, &api.StoreSnapshot{Tasks: tasks[:n]})
		tasks = tasks[n:]
	}
	return parts
}

func readSnapshot(r io.Reader) (index uint64, all *api.StoreSnapshot, err error) {
	in := bufio.NewReaderSize(r, 64<<10)
	head := make([]byte, len(snapshotMagic)+8)
	if _, err := io.ReadFull(in, head); err != nil {
		return 0, nil, fmt.Errorf("read the snapshot's header: %w", err)
	}
	if string(head[:len(snapshotMagic)]) != snapshotMagic {
		return 0, nil, errors.New("not a snapshot of ours")
	}
	index = binary.BigEndian.Uint64(head[len(snapshotMagic):])
	all = &api.StoreSnapshot{}
	for {
		var size [4]byte
		if _, err := io.ReadFull(in, size[:]); err != nil {
			return 0, nil, fmt.Errorf("read a snapshot's chunk: %w", err)
		}
		n := binary.BigEndian.Uint32(size[:])
		if n == 0 {
			return index, all, nil
		}
		if n > maxChunk {
			return 0, nil, fmt.Errorf("a snapshot's chunk of %d bytes", n)
		}
		b := make([]byte, n)
		if _, err := io.ReadFull(in, b); err != nil {
			return 0, nil, fmt.Errorf("read a snapshot's chunk: %w", err)
		}
		if err := all.Unmarshal(b); err != nil {
			return 0, nil, fmt.Errorf("decode a snapshot's chunk: %w", err)
		}
	}
}

// Restore implements hraft.FSM.
func (f *fsm) Restore(r io.ReadCloser) error {
	defer r.Close()
	index, all, err := readSnapshot(r)
	if err != nil {
		return err
	}
	// As with another's entry: whoever waits holds the lock Restore needs.
	f.mu.Lock()
	f.applying = true
	for id, p := range f.waiting {
		delete(f.waiting, id)
		f.undecided[id] = struct{}{}
		p.done <- &WriteError{Reason: ErrStale}
	}
	f.mu.Unlock()
	err = f.store.Restore(all)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.applying = false
	if err != nil {
		return fmt.Errorf("restore the store: %w", err)
	}
	f.applied = index
	return nil
}
