// SPDX-License-Identifier: BSD-2-Clause

package executor

import (
	"context"
	"net/netip"
	"sync"
	"time"
)

// fakeLeader answers as the test says.
type fakeLeader struct {
	mu      sync.Mutex
	may     bool
	err     error
	hangs   bool
	takes   time.Duration // to answer
	asked   []time.Time
	reports map[string][]byte
	addrs   map[string]netip.Addr // by network/container
}

func (f *fakeLeader) MayReplace(ctx context.Context, _ string) (bool, error) {
	f.mu.Lock()
	f.asked = append(f.asked, time.Now())
	may, err, hangs := f.may, f.err, f.hangs
	f.mu.Unlock()
	if hangs {
		<-ctx.Done()
		return false, ctx.Err()
	}
	time.Sleep(f.takes)
	return may, err
}

func (f *fakeLeader) AttachContainer(_ context.Context, networkID, containerID string) (netip.Addr, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return netip.Addr{}, f.err
	}
	if f.addrs == nil {
		f.addrs = map[string]netip.Addr{}
	}
	key := networkID + "/" + containerID
	if !f.addrs[key].IsValid() {
		f.addrs[key] = netip.AddrFrom4([4]byte{10, 89, 16, byte(10 + len(f.addrs))})
	}
	return f.addrs[key], nil
}

func (f *fakeLeader) DetachContainer(_ context.Context, networkID, containerID string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		delete(f.addrs, networkID+"/"+containerID)
	}
	return f.err
}

func (f *fakeLeader) KeepReport(_ context.Context, taskID string, report []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return f.err
	}
	if f.reports == nil {
		f.reports = map[string][]byte{}
	}
	f.reports[taskID] = report
	return nil
}

func (f *fakeLeader) set(may bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.may, f.err = may, err
}

func (f *fakeLeader) times() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.asked)
}
