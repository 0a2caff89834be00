// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
)

// TestReload: a HUP takes up the log level, names what takes a restart, and
// changes nothing where the configuration is wrong.
func TestReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &safeBuffer{}
		l := &logs{level: new(slog.LevelVar)}
		l.Logger = slog.New(newHandler(out, "text", &slog.HandlerOptions{Level: l.level}))
		running := defaults("linux")
		next, nextErr := running, error(nil)
		ctx, cancel := context.WithCancel(t.Context())
		hup := make(chan os.Signal, 1)
		done := make(chan error)
		go func() {
			done <- reloads(ctx, hup, running, func() (Config, error) { return next, nextErr }, l)
		}()
		reload := func() string {
			before := len(out.String())
			hup <- syscall.SIGHUP
			synctest.Wait()
			return out.String()[before:]
		}
		next.LogLevel = "debug"
		if said := reload(); l.level.Level() != slog.LevelDebug || !strings.Contains(said, "configuration reloaded") || strings.Contains(said, "restart") {
			t.Errorf("level %v, said %s", l.level, said)
		}
		next.LogLevel, next.Socket, next.ZFSRoot = "warn", "/other", "tank/satl"
		if said := reload(); l.level.Level() != slog.LevelWarn || !strings.Contains(said, "keys=socket,zfs_root") {
			t.Errorf("level %v, said %s", l.level, said)
		}
		next.LogLevel, nextErr = "debug", errors.New("unknown key sokcet")
		if said := reload(); l.level.Level() != slog.LevelWarn || !strings.Contains(said, "unknown key sokcet") {
			t.Errorf("level %v, said %s", l.level, said)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
