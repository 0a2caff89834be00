// SPDX-License-Identifier: BSD-2-Clause

package executor

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
)

func TestRecordsRoundTrip(t *testing.T) {
	dir := t.TempDir()
	want := Record{ID: "a1", Name: "web.1.x", TaskID: "x", State: Running, Started: time.Unix(5, 6).UTC(), Config: &container.Config{Image: "app:1"}}
	if err := saveRecord(dir, want); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "stray"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := saveRecord(dir, Record{ID: "torn"}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(recordFile(dir, "torn"), []byte(`{"Version":1,"ID":"to`), 0o600); err != nil {
		t.Fatal(err)
	}
	records, strays, damaged, err := loadRecords(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(records) != 1 || records[0].Name != want.Name || !records[0].Started.Equal(want.Started) || records[0].State != Running {
		t.Errorf("records %+v", records)
	}
	if len(strays) != 2 || damaged == nil {
		t.Errorf("strays %q, damaged %v", strays, damaged)
	}
}

func TestRecordOfANewerDaemonIsRefused(t *testing.T) {
	dir := t.TempDir()
	if err := saveRecord(dir, Record{ID: "a"}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(recordFile(dir, "a"), []byte(`{"Version":99,"ID":"a"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := loadRecords(dir); err == nil {
		t.Error("a record that this daemon cannot understand was accepted")
	}
}

// However many changes at a time, the file holds the last state.
func TestSavesAtATimeLeaveTheLastState(t *testing.T) {
	n := &Node{dir: t.TempDir(), cfg: Config{write: saveRecord}}
	c := newContainer(Record{ID: "a"})
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			if err := n.update(c, func(r *Record) { r.Restarts++; r.Name = fmt.Sprint(r.Restarts) }); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	records, _, _, err := loadRecords(n.dir)
	if err != nil || len(records) != 1 || records[0].Restarts != 50 || records[0].Name != "50" {
		t.Errorf("%+v, %v", records, err)
	}
}

func TestStatesAdvance(t *testing.T) {
	for _, tc := range []struct {
		from, to State
		ok       bool
	}{
		{Created, Running, true}, {Running, Exited, true}, {Exited, Running, true}, {Paused, Exited, true},
		{Running, Removing, false}, {Removing, Running, false}, {Created, Paused, false}, {Dead, Removing, true},
	} {
		if _, err := tc.from.Advance(tc.to); (err == nil) != tc.ok {
			t.Errorf("%s to %s: %v", tc.from, tc.to, err)
		}
	}
}
