// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"io"
	"log/slog"
)

// newLogger is the daemon's log: one line a record on w, text or JSON.
func newLogger(w io.Writer, level, format string) (*slog.Logger, error) {
	l, err := logLevel(level)
	if err != nil {
		return nil, err
	}
	options := &slog.HandlerOptions{Level: l}
	if format == "json" {
		return slog.New(slog.NewJSONHandler(w, options)), nil
	}
	return slog.New(slog.NewTextHandler(w, options)), nil
}
