// SPDX-License-Identifier: BSD-2-Clause

package image

import (
	"context"
	"sync"
)

// keyLock is a lock for each key, waited for no longer than a context.
type keyLock struct {
	mu    sync.Mutex
	locks map[string]*keyed
}

type keyed struct {
	held chan struct{} // holds one token while locked
	refs int           // holder and waiters
}

// lock waits until key is free, or fails with ctx's error. The caller calls
// unlock once.
func (k *keyLock) lock(ctx context.Context, key string) (unlock func(), err error) {
	k.mu.Lock()
	if k.locks == nil {
		k.locks = map[string]*keyed{}
	}
	l := k.locks[key]
	if l == nil {
		l = &keyed{held: make(chan struct{}, 1)}
		k.locks[key] = l
	}
	l.refs++
	k.mu.Unlock()

	forget := func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		if l.refs--; l.refs == 0 {
			delete(k.locks, key)
		}
	}
	if err := ctx.Err(); err != nil {
		forget()
		return nil, err
	}
	select {
	case l.held <- struct{}{}:
		return func() { <-l.held; forget() }, nil
	case <-ctx.Done():
		forget()
		return nil, ctx.Err()
	}
}
