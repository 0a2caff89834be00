// SPDX-License-Identifier: BSD-2-Clause

package raft

import (
	"errors"
	"log/slog"
	"runtime"
	"sync"
	"time"

	hraft "github.com/hashicorp/raft"
)

const (
	// patience is the wait between two attempts to store a term or a vote.
	patience = 250 * time.Millisecond
	// probeSize is how much must be writable before a node stands for
	// election after its log could not be written: room for a few entries.
	probeSize = 64 << 10
)

var probeKey = []byte("satl-probe")

// patientStore keeps a node whose disk is full alive and quiet. A failed write
// of the log is reported to its proposer and costs the leadership; the next
// election's term is stored only once there is room again, so until then the
// node neither votes nor leads. (hashicorp/raft by itself would elect the node
// ten times a second, and panic once the term cannot be stored either.)
//
// A disk may also stand still: then a write neither fails nor is done. One that
// takes longer than the limit is such trouble too, until it is done.
type patientStore struct {
	db   diskStore
	path string
	log  *slog.Logger
	// limit is how long a write of the log may take on a disk that works.
	limit time.Duration

	closed chan struct{}
	once   sync.Once

	mu      sync.Mutex
	trouble error     // of the last write; nil if it succeeded
	writing int       // of the log, at this moment
	since   time.Time // somebody has been without a break
}

// errStill is the trouble of a disk that stands still.
var errStill = errors.New("the disk stands still: a write has not been done for so long that it is not waited for")

// diskStore is a log and a store of terms and votes in one file.
type diskStore interface {
	hraft.LogStore
	hraft.StableStore
}

func newPatientStore(db diskStore, path string, limit time.Duration, log *slog.Logger) *patientStore {
	return &patientStore{db: db, path: path, limit: limit, log: log, closed: make(chan struct{})}
}

// close makes every waiting caller end its goroutine: whatever it was about to
// do must not happen without what it wanted to store.
func (s *patientStore) close() { s.once.Do(func() { close(s.closed) }) }

// Trouble is what keeps the file from being written right now, or nil.
func (s *patientStore) Trouble() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.trouble == nil && s.still() {
		return errStill
	}
	return s.trouble
}

// Still tells whether the disk stands still.
func (s *patientStore) Still() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.still()
}

func (s *patientStore) still() bool { return s.writing > 0 && time.Since(s.since) >= s.limit }

// timed does a write of the log.
func (s *patientStore) timed(write func() error) error {
	s.mu.Lock()
	if s.writing == 0 {
		s.since = time.Now()
	}
	s.writing++
	s.mu.Unlock()
	err := write()
	s.mu.Lock()
	still := s.still()
	s.writing--
	took := time.Since(s.since)
	s.mu.Unlock()
	if still {
		s.log.Warn("the disk of the cluster store stood still", "file", s.path, "for", took.String())
	}
	return s.note(err)
}

// failed is the error of the last write.
func (s *patientStore) failed() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.trouble
}

// note records the outcome of a write and logs where it changed.
func (s *patientStore) note(err error) error {
	s.mu.Lock()
	was := s.trouble
	s.trouble = err
	s.mu.Unlock()
	switch {
	case was == nil && err != nil:
		s.log.Error("the cluster store cannot be written; no changes until it can", "file", s.path, "error", err)
	case was != nil && err == nil:
		s.log.Info("the cluster store can be written again", "file", s.path)
	}
	return err
}

// StoreLog implements hraft.LogStore.
func (s *patientStore) StoreLog(l *hraft.Log) error {
	return s.timed(func() error { return s.db.StoreLog(l) })
}

// StoreLogs implements hraft.LogStore.
func (s *patientStore) StoreLogs(l []*hraft.Log) error {
	return s.timed(func() error { return s.db.StoreLogs(l) })
}

// Set implements hraft.StableStore: it returns once the value is stored.
func (s *patientStore) Set(key, val []byte) error {
	s.insist(func() error { return s.db.Set(key, val) })
	return nil
}

// SetUint64 implements hraft.StableStore: it returns once the value is stored.
func (s *patientStore) SetUint64(key []byte, val uint64) error {
	s.insist(func() error { return s.db.SetUint64(key, val) })
	return nil
}

func (s *patientStore) insist(write func() error) {
	for {
		var err error
		if s.failed() != nil {
			err = s.probe()
		}
		if err == nil {
			err = write()
		}
		if s.note(err) == nil {
			return
		}
		select {
		case <-s.closed:
			runtime.Goexit()
		case <-time.After(patience):
		}
	}
}

// probe finds out whether there is room for some entries, and leaves it behind
// as free pages of the file.
func (s *patientStore) probe() error {
	if err := s.db.Set(probeKey, make([]byte, probeSize)); err != nil {
		return err
	}
	return s.db.Set(probeKey, nil)
}

// The rest is the database's.

func (s *patientStore) FirstIndex() (uint64, error)          { return s.db.FirstIndex() }
func (s *patientStore) LastIndex() (uint64, error)           { return s.db.LastIndex() }
func (s *patientStore) GetLog(i uint64, l *hraft.Log) error  { return s.db.GetLog(i, l) }
func (s *patientStore) DeleteRange(low, high uint64) error   { return s.db.DeleteRange(low, high) }
func (s *patientStore) Get(key []byte) ([]byte, error)       { return s.db.Get(key) }
func (s *patientStore) GetUint64(key []byte) (uint64, error) { return s.db.GetUint64(key) }
