// SPDX-License-Identifier: BSD-2-Clause

package raft

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
)

const (
	// openTimeout bounds the wait for another process's lock on the file.
	openTimeout = time.Second
)

// openDB opens the log at path after it was found whole.
//
// The free list is not synced (it is rebuilt at each start), which makes a
// commit's cost independent of how much was ever deleted; writes always are.
func openDB(path string) (db *raftboltdb.BoltStore, err error) {
	advice := advise(path)
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

// checkPresent returns a DamagedError if the log at path is missing or empty,
// which a log in use never is.
func checkPresent(path string) error {
	st, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		err = errMissing
	case err != nil:
		return err
	case st.Size() == 0:
		err = errEmpty
	default:
		return nil
	}
	return &DamagedError{Path: path, Advice: advise(path), Err: err}
}

var (
	errMissing = errors.New("the file is missing, but this node was part of a cluster")
	errEmpty   = errors.New("the file is empty, but this node was part of a cluster")
)

// advise says what an operator can do about a damaged log at path.
func advise(path string) string {
	dir := filepath.Dir(path)
	snapshots := filepath.Join(dir, "snapshots")
	if list, err := os.ReadDir(snapshots); err == nil && len(list) == 0 || errors.Is(err, os.ErrNotExist) {
		return fmt.Sprintf("put a good copy of the file in its place; there is no snapshot in %s "+
			"from which --force-new-cluster could go on; "+
			"without a copy, move %s away to start a new cluster without services, which stops this node's tasks", snapshots, dir)
	}
	return fmt.Sprintf("put a good copy of the file in its place, or start once with "+
		"--force-new-cluster to go on from the newest snapshot in %s, without what was written since", snapshots)
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
