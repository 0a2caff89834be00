// SPDX-License-Identifier: BSD-2-Clause

//go:build !fakefreebsd

package jail

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// A daemon that ends while it asks the shim starts no second one, which would
// wait for the first one's end and then stay.
func TestNoShimIsStartedAtTheEnd(t *testing.T) {
	n := newNode(t)
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if err := n.ensureShim(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("asked at the end: %v", err)
	}
	if _, err := n.Create(ended, n.spec("true")); err == nil {
		t.Error("a container was made at the end")
	}
	shims := 0
	cmdlines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range cmdlines {
		if data, err := os.ReadFile(path); err == nil && bytes.Contains(data, []byte(n.state)) && bytes.Contains(data, []byte("--state-dir")) {
			shims++
		}
	}
	if shims != 1 {
		t.Errorf("%d shims run", shims)
	}
}
