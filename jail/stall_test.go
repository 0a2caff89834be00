// SPDX-License-Identifier: BSD-2-Clause

//go:build linux || freebsdhost

package jail

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"time"

	"satld/internal/stalled"
)

// That a container's first process is gone is known at once, while how it ended
// waits for the disk. Nothing of that is lost.
func TestGoneOnAStalledDisk(t *testing.T) {
	n := newNode(t)
	s := n.spec("exec sleep 1000")
	n.start(s)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	gone := make(chan error, 1)
	go func() { gone <- n.AwaitGone(ctx, s.ID) }()
	select {
	case err := <-gone:
		t.Fatalf("gone while it runs: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	goOn := stalled.File(t, n.dir.Container(s.ID)+"/ended.json")
	if err := n.Kill(ctx, s.ID, int(syscall.SIGKILL)); err != nil {
		t.Fatal(err)
	}
	if err := <-gone; err != nil {
		t.Errorf("not known to be gone: %v", err)
	}
	short, stop := context.WithTimeout(ctx, 50*time.Millisecond)
	defer stop()
	if _, err := n.Wait(short, s.ID); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("its end is on a disk that stands still: %v", err)
	}
	goOn()
	if e := n.wait(s.ID); e.Code != 128+9 {
		t.Errorf("exit %+v", e)
	}
}
