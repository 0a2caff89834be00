// SPDX-License-Identifier: BSD-2-Clause

package raft

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/bbolt"
)

// usedDir makes a state directory with a log of some entries, large and
// small, and returns it.
func usedDir(t testing.TB, snapshot bool) string {
	dir := memDir(t)
	m := solo(t, Config{Dir: dir})
	fill(t, m, 40)
	if snapshot {
		if err := m.raft.Snapshot().Error(); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.create("big", strings.Repeat("n", 20_000)); err != nil {
		t.Fatal(err)
	}
	m.stop()
	return dir
}

// TestCheckDBFindsEveryGarbledPage garbles each page of a log in turn: every
// page in use is found, and nothing is found in a good file or a free page.
func TestCheckDBFindsEveryGarbledPage(t *testing.T) {
	dir := usedDir(t, false)
	path := dbPath(dir)
	if err := CheckDB(path); err != nil {
		t.Fatalf("a good file: %v", err)
	}
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	reachable := reachablePages(t, path)
	page := os.Getpagesize()
	rng := rand.New(rand.NewPCG(1, 2))
	found := 0
	for id := 2; id < len(good)/page; id++ {
		bad := bytes.Clone(good)
		for i := range page {
			bad[id*page+i] = byte(rng.Uint32())
		}
		err := checkBolt(bytes.NewReader(bad), int64(len(bad)))
		if err != nil {
			found++
		}
		if reachable[id] && err == nil {
			t.Errorf("garbled page %d was not found", id)
		}
		if !reachable[id] && err != nil {
			t.Errorf("free page %d: %v", id, err)
		}
	}
	t.Logf("%d pages, %d in use", len(good)/page, found)
	for _, both := range []bool{false, true} {
		bad := bytes.Clone(good)
		copy(bad[20:], "garbage garbage")
		if both {
			copy(bad[page+20:], "garbage garbage")
		}
		if err := checkBolt(bytes.NewReader(bad), int64(len(bad))); (err != nil) != both {
			t.Errorf("meta pages garbled (both: %v): %v", both, err)
		}
	}
}

// reachablePages are the first pages of every node that bbolt itself walks;
// overflow pages hold bytes of values, which the entries' checksums are for.
func reachablePages(t *testing.T, path string) map[int]bool {
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{NoFreelistSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	out := map[int]bool{}
	err = db.View(func(tx *bbolt.Tx) error {
		for id := 2; ; {
			p, err := tx.Page(id)
			if err != nil || p == nil {
				return err
			}
			if p.Type == "leaf" || p.Type == "branch" {
				out[id] = true
			}
			id += 1 + p.OverflowCount
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestDamagedLog is case store-4: the error names the file and what to do, the
// process lives, and the forced start goes on from the snapshot.
func TestDamagedLog(t *testing.T) {
	page := int64(os.Getpagesize())
	damages := map[string]func(t *testing.T, path string){
		"a page in use": func(t *testing.T, path string) {
			for id := range reachablePages(t, path) {
				overwrite(t, path, int64(id)*page, bytes.Repeat([]byte{0xa5}, int(page)))
				return
			}
		},
		"bytes of an entry": func(t *testing.T, path string) {
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			at := bytes.LastIndex(b, bytes.Repeat([]byte("n"), 1000))
			if at < 0 {
				t.Fatal("no entry with the text")
			}
			overwrite(t, path, int64(at), []byte("X"))
		},
		"cut short by a page": func(t *testing.T, path string) {
			st, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			// down to the last page in use, and that one
			if err := os.Truncate(path, min(st.Size(), highWater(t, path))-page); err != nil {
				t.Fatal(err)
			}
		},
		"not a database": func(t *testing.T, path string) {
			overwrite(t, path, 0, bytes.Repeat([]byte("text"), 3*int(page)))
		},
		"an entry missing": func(t *testing.T, path string) {
			db, err := bbolt.Open(path, 0o600, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			err = db.Update(func(tx *bbolt.Tx) error {
				c := tx.Bucket([]byte("logs")).Cursor()
				c.Last()
				c.Prev()
				return c.Delete()
			})
			if err != nil {
				t.Fatal(err)
			}
		},
	}
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			dir := usedDir(t, true)
			damage(t, dbPath(dir))
			_, err := open(t, Config{Dir: dir, Bootstrap: true})
			damaged := new(DamagedError)
			if !errors.As(err, &damaged) {
				t.Fatalf("open: %v", err)
			}
			for _, want := range []string{dbPath(dir), "--force-new-cluster", filepath.Join(dir, "snapshots")} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not name %s", err, want)
				}
			}
			t.Log(err)
			m := solo(t, Config{Dir: dir, ForceNewCluster: true})
			if got := names(m.Store()); len(got) != 40 || got["id00007"] != "name00007" {
				t.Errorf("%d services of the snapshot's 40", len(got))
			}
			if err := m.create("after", "after"); err != nil {
				t.Error(err)
			}
			aside, err := filepath.Glob(dbPath(dir) + ".damaged-*")
			if err != nil || len(aside) != 1 {
				t.Errorf("the damaged file was not kept: %v %v", aside, err)
			}
			m.stop()
			m = solo(t, Config{Dir: dir})
			if got := names(m.Store()); len(got) != 41 {
				t.Errorf("%d services after the next start", len(got))
			}
		})
	}
}

func TestDamagedLogWithoutSnapshot(t *testing.T) {
	dir := usedDir(t, false)
	overwrite(t, dbPath(dir), 0, make([]byte, 64<<10))
	_, err := open(t, Config{Dir: dir, ForceNewCluster: true})
	if err == nil || !strings.Contains(err.Error(), "no snapshot") {
		t.Errorf("forced: %v", err)
	}
	if _, err := os.Stat(dbPath(dir)); err != nil {
		t.Errorf("the file was moved away for nothing: %v", err)
	}
}

// TestLostLog: a log that is missing or empty is no new cluster where there was
// one; the forced start goes on from the snapshot.
func TestLostLog(t *testing.T) {
	for name, lose := range map[string]func(path string) error{
		"missing": os.Remove,
		"empty":   func(path string) error { return os.Truncate(path, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := usedDir(t, true)
			if err := lose(dbPath(dir)); err != nil {
				t.Fatal(err)
			}
			_, herr := HasState(dir, false)
			_, oerr := open(t, Config{Dir: dir, Bootstrap: true})
			for _, err := range []error{herr, oerr} {
				if !errors.As(err, new(*DamagedError)) {
					t.Fatalf("beside a snapshot: %v", err)
				}
				for _, want := range []string{dbPath(dir), name, "copy", "--force-new-cluster"} {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("%q does not name %s", err, want)
					}
				}
			}
			m := solo(t, Config{Dir: dir, ForceNewCluster: true})
			if got := names(m.Store()); len(got) != 40 {
				t.Errorf("%d services of the snapshot's 40", len(got))
			}
			m.stop()

			dir = usedDir(t, false)
			if err := lose(dbPath(dir)); err != nil {
				t.Fatal(err)
			}
			if exists, err := HasState(dir, false); exists || err != nil {
				t.Errorf("a directory without a trace: %v, %v", exists, err)
			}
			if _, err := HasState(dir, true); !errors.As(err, new(*DamagedError)) || !strings.Contains(err.Error(), dbPath(dir)) {
				t.Errorf("of a node that was used: %v", err)
			}
			if _, err := open(t, Config{Dir: dir, Bootstrap: true, ForceNewCluster: true}); err == nil || !strings.Contains(err.Error(), "no snapshot") {
				t.Errorf("forced without a snapshot: %v", err)
			}
			if exists, err := HasState(filepath.Join(dir, "gone"), true); exists || err != nil {
				t.Errorf("without the directory: %v, %v", exists, err)
			}
		})
	}
}

func overwrite(t *testing.T, path string, at int64, b []byte) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(b, at); err != nil {
		t.Fatal(err)
	}
}

func highWater(t *testing.T, path string) int64 {
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	m, err := readBoltMeta(f)
	if err != nil {
		t.Fatal(err)
	}
	return int64(m.pages * m.pageSize)
}

// FuzzCheckBolt: no input makes the check panic or run away.
func FuzzCheckBolt(f *testing.F) {
	path := filepath.Join(f.TempDir(), "db")
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		f.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		b, err := tx.CreateBucket([]byte("b"))
		for i := 0; err == nil && i < 300; i++ {
			err = b.Put(fmt.Appendf(nil, "%05d", i), make([]byte, 50))
		}
		return err
	})
	if err = errors.Join(err, db.Close()); err != nil {
		f.Fatal(err)
	}
	good, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(uint32(0), []byte{})
	f.Add(uint32(3*4096+10), []byte{0xff, 0xff})
	f.Fuzz(func(t *testing.T, at uint32, patch []byte) {
		b := bytes.Clone(good)
		copy(b[int(at)%len(b):], patch)
		checkBolt(bytes.NewReader(b), int64(len(b)))
	})
}
