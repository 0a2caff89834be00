// SPDX-License-Identifier: BSD-2-Clause

package image

import (
	"errors"
	"io"
	"sync"
	"time"
)

// serial makes a Progress that may be nil into one that can be called by
// several goroutines.
func serial(p Progress) Progress {
	if p == nil {
		return func(string, string, int64, int64) {}
	}
	var mu sync.Mutex
	return func(status, id string, current, total int64) {
		mu.Lock()
		defer mu.Unlock()
		p(status, id, current, total)
	}
}

// progressReader tells how much of a layer was read, at most every
// progressEvery and at the end.
type progressReader struct {
	r      io.Reader
	status string
	id     string
	total  int64
	tell   Progress

	read int64
	last time.Time
}

const progressEvery = 100 * time.Millisecond

func (p *progressReader) Read(b []byte) (int, error) {
	n, err := p.r.Read(b)
	p.read += int64(n)
	if now := time.Now(); errors.Is(err, io.EOF) || n > 0 && now.Sub(p.last) >= progressEvery {
		p.last = now
		p.tell(p.status, p.id, p.read, p.total)
	}
	return n, err
}
