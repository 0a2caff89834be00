// SPDX-License-Identifier: BSD-2-Clause

package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"
)

// What is normal at a stop is no error in the log; what is not stays one.
func TestLinesOfAStop(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, nil))
	bridged := newBridged(func() *slog.Logger { return log })
	bridged.WithError(fmt.Errorf("write status: %w", bolt.ErrDatabaseNotOpen)).Error("failed writing status to disk")
	bridged.WithError(errors.New("x509: expired")).Error("agent: session failed")
	if out.Len() > 0 {
		t.Errorf("logged %q", &out)
	}
	bridged.WithError(errors.New("no space left on device")).Error("failed writing status to disk")
	if !strings.Contains(out.String(), "level=ERROR") {
		t.Errorf("logged %q", &out)
	}
}
