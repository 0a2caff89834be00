// SPDX-License-Identifier: BSD-2-Clause

package network

import (
	"testing"
	"time"

	"satld/internal/stalled"
)

// While a container is attached on a disk that stands still, nobody waits who
// only asks what there is: traffic does with each change that it makes.
func TestReadsOnAStalledDisk(t *testing.T) {
	m := open(t, t.TempDir(), newFakeLinks())
	_, before, err := m.Attach(t.Context(), "c1", Anywhere(DefaultID))
	if err != nil {
		t.Fatal(err)
	}
	goOn := stalled.File(t, m.file)
	attached, detached := make(chan error, 1), make(chan error, 1)
	go func() {
		_, _, err := m.Attach(t.Context(), "c2", Anywhere(DefaultID))
		attached <- err
	}()
	for len(m.Attachments("c2")) == 0 { // being written
		time.Sleep(time.Millisecond)
	}
	go func() { detached <- m.Detach(t.Context(), "c1") }()
	if n := len(m.List()); n != 1 {
		t.Errorf("%d networks", n)
	}
	if _, ok := m.Get(DefaultID); !ok {
		t.Error("the node's own network is not known")
	}
	if at := m.Attachments("c1"); len(at) != 1 || at[0] != before[0] {
		t.Errorf("c1 has %v", at)
	}
	select {
	case err := <-attached:
		t.Errorf("attached before that was written: %v", err)
	case err := <-detached:
		t.Errorf("detached before that was written: %v", err)
	default:
	}
	goOn()
	if err := <-attached; err != nil {
		t.Error(err)
	}
	if err := <-detached; err != nil {
		t.Error(err)
	}
	onDisk, _, err := loadLeases(m.file, m.state.Boot)
	if err != nil || len(onDisk.Leases["c2"]) != 1 || onDisk.Leases["c1"] != nil {
		t.Errorf("%+v, %v", onDisk, err)
	}
}
