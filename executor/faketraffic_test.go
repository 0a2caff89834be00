// SPDX-License-Identifier: BSD-2-Clause

package executor

import (
	"context"
	"sync"
	"time"

	"satld/traffic"
)

type fakeTraffic struct {
	j          *journal
	mu         sync.Mutex
	members    map[string]traffic.Member
	stuckUntil time.Time // Withdraw fails to confirm before

	removeStuck bool // Remove never confirms
	putStuck    bool // nor does Put of who serves
}

func (f *fakeTraffic) Put(ctx context.Context, m traffic.Member) error {
	f.mu.Lock()
	f.members[m.ContainerID] = m
	f.j.add("put serving=%t", m.Serving)
	f.mu.Unlock()
	if f.putStuck && m.Serving {
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

func (f *fakeTraffic) Withdraw(ctx context.Context, id string) error {
	f.mu.Lock()
	m := f.members[id]
	m.Serving, m.Unhealthy = false, false
	f.members[id] = m
	stuck := time.Until(f.stuckUntil)
	f.mu.Unlock()
	if stuck > 0 {
		select {
		case <-time.After(stuck):
		case <-ctx.Done():
			f.j.add("withdraw unconfirmed")
			return ctx.Err()
		}
	}
	f.j.add("withdraw")
	return nil
}

func (f *fakeTraffic) Remove(ctx context.Context, id string) error {
	if f.removeStuck {
		<-ctx.Done()
		return ctx.Err()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.members, id)
	f.j.add("remove")
	return nil
}

func (f *fakeTraffic) member(id string) traffic.Member {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.members[id]
}

func (f *fakeTraffic) serving(id string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.members[id].Serving
}
