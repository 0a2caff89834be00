// SPDX-License-Identifier: BSD-2-Clause

package raft

import (
	"errors"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	hraft "github.com/hashicorp/raft"

	"satld/internal/stalled"
)

// stillDisk is a disk that can stand still.
type stillDisk struct {
	diskStore
	gate stalled.Gate
}

func (d *stillDisk) StoreLog(l *hraft.Log) error    { d.gate.Pass(); return d.diskStore.StoreLog(l) }
func (d *stillDisk) StoreLogs(l []*hraft.Log) error { d.gate.Pass(); return d.diskStore.StoreLogs(l) }
func (d *stillDisk) Set(key, val []byte) error      { d.gate.Pass(); return d.diskStore.Set(key, val) }
func (d *stillDisk) SetUint64(key []byte, val uint64) error {
	d.gate.Pass()
	return d.diskStore.SetUint64(key, val)
}
func (d *stillDisk) DeleteRange(low, high uint64) error {
	d.gate.Pass()
	return d.diskStore.DeleteRange(low, high)
}

// A leader whose disk stands still is followed by another one, and follows it
// once its disk goes on: the cluster does not wait for one disk of three.
func TestStillLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var disks []*stillDisk
		x := newTrioWith(t, Config{disk: func(d diskStore) diskStore {
			disks = append(disks, &stillDisk{diskStore: d})
			return disks[len(disks)-1]
		}})
		defer x.close()
		l := x.leader(0, 1, 2)
		if err := x.nodes[l].create("a", "before"); err != nil {
			t.Fatal(err)
		}
		x.agree()
		goOn := disks[l].gate.Close()
		begun := time.Now()
		if err := x.nodes[l].create("b", "under way"); !errors.Is(err, ErrUnknown) {
			t.Errorf("a write on a disk that stands still: %v", err)
		}
		next := x.leader((l+1)%3, (l+2)%3)
		if took := time.Since(begun); took > DefaultProposeTimeout+10*time.Second {
			t.Errorf("another leader after %v", took)
		}
		if err := x.nodes[next].create("c", "meanwhile"); err != nil {
			t.Errorf("a write meanwhile: %v", err)
		}
		if x.nodes[l].Leads() || x.nodes[l].Trouble() == nil {
			t.Errorf("the old leader: leads %t, trouble %v", x.nodes[l].Leads(), x.nodes[l].Trouble())
		}
		if id, _ := x.nodes[l].Leader(); id == x.nodes[l].cfg.ID {
			t.Error("the old leader takes itself for one")
		}
		if err := x.nodes[l].create("d", "refused"); !errors.Is(err, ErrStorage) {
			t.Errorf("its next write: %v", err)
		}
		goOn()
		want := map[string]string{"a": "before", "c": "meanwhile"}
		if got := x.agree(); !maps.Equal(got, want) {
			t.Errorf("services %v, want %v", got, want)
		}
		if err := x.nodes[l].Trouble(); err != nil {
			t.Errorf("its disk goes on, and %v", err)
		}
		if err := x.nodes[x.leader(0, 1, 2)].create("e", "after"); err != nil {
			t.Error(err)
		}
		x.agree()
	})
}
