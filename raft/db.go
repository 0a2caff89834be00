// SPDX-License-Identifier: BSD-2-Clause

package raft

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	hraft "github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
)

const (
	// openTimeout bounds the wait for another process's lock on the file.
	openTimeout = time.Second
	// patience is the wait between two attempts to store a term or a vote.
	patience = 250 * time.Millisecond
)

// openDB opens the log at path after it was found whole.
//
// The free list is not synced (it is rebuilt at each start), which makes a
// commit's cost independent of how much was ever deleted; writes always are.
func openDB(path string) (db *raftboltdb.BoltStore, err error) {
	advice := fmt.Sprintf("put a good copy of the file in its place, or start once with "+
		"--force-new-cluster to go on from the newest snapshot in %s, without what was written since",
		filepath.Join(filepath.Dir(path), "snapshots"))
	// A fault in the mapped file (it was cut short under us) becomes a panic.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			db, err = nil, &DamagedError{Path: path, Advice: advice, Err: fmt.Errorf("%v", p)}
		}
	}()
	if err := CheckDB(path); err != nil {
		if isIO(err) {
			return nil, fmt.Errorf("read %s: %w", path, err)
		}
		return nil, &DamagedError{Path: path, Advice: advice, Err: err}
	}
	db, err = raftboltdb.New(raftboltdb.Options{
		Path: path,
		BoltOptions: &bbolt.Options{
			Timeout:        openTimeout,
			NoFreelistSync: true,
			FreelistType:   bbolt.FreelistMapType,
		},
		MsgpackUseNewTimeFormat: true,
	})
	if errors.Is(err, bbolt.ErrTimeout) {
		return nil, fmt.Errorf("open %s: another process holds it", path)
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	if err := checkLog(db); err != nil {
		db.Close()
		return nil, &DamagedError{Path: path, Advice: advice, Err: err}
	}
	return db, nil
}

// isIO tells an error of the system (permissions, a failing disk) from one of
// the file's content.
func isIO(err error) bool {
	var pe *fs.PathError
	return errors.As(err, &pe)
}

// setAside moves a damaged file out of the way and returns its new name.
func setAside(path string, now time.Time) (string, error) {
	to := fmt.Sprintf("%s.damaged-%d", path, now.Unix())
	if err := os.Rename(path, to); err != nil {
		return "", err
	}
	return to, nil
}

// stableStore stores terms and votes and does not take no for an answer:
// hashicorp/raft panics when the term cannot be stored, and a full disk is no
// reason to die. Until there is room again the node neither votes nor leads.
type stableStore struct {
	hraft.StableStore
	path   string
	log    *slog.Logger
	closed chan struct{}
	once   sync.Once

	mu      sync.Mutex
	trouble error // of the write that is being tried again; nil if none is
}

func newStableStore(s hraft.StableStore, path string, log *slog.Logger) *stableStore {
	return &stableStore{StableStore: s, path: path, log: log, closed: make(chan struct{})}
}

// close makes every waiting caller end its goroutine: whatever it was about to
// do must not happen without what it wanted to store.
func (s *stableStore) close() { s.once.Do(func() { close(s.closed) }) }

func (s *stableStore) Set(key, val []byte) error {
	return s.insist(func() error { return s.StableStore.Set(key, val) })
}

func (s *stableStore) SetUint64(key []byte, val uint64) error {
	return s.insist(func() error { return s.StableStore.SetUint64(key, val) })
}

// Trouble is what keeps the store from being written right now, or nil.
func (s *stableStore) Trouble() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.trouble
}

func (s *stableStore) insist(write func() error) error {
	for n := 0; ; n++ {
		err := write()
		s.mu.Lock()
		s.trouble = err
		s.mu.Unlock()
		if err == nil {
			if n > 0 {
				s.log.Info("the cluster store can be written again", "file", s.path)
			}
			return nil
		}
		if n == 0 {
			s.log.Error("the cluster store cannot be written; waiting until it can", "file", s.path, "error", err)
		}
		select {
		case <-s.closed:
			runtime.Goexit()
		case <-time.After(patience):
		}
	}
}
