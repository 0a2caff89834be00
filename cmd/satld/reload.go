// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"context"
	"os"
	"reflect"
	"strings"
)

// reloads acts on each SIGHUP until ctx ends: the configuration is read again
// and its log level taken up. Nothing else of it changes while the daemon runs;
// what differs is named. One that cannot be read or is wrong changes nothing.
func reloads(ctx context.Context, hup <-chan os.Signal, running Config, read func() (Config, error), l *logs) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-hup:
		}
		next, err := read()
		if err != nil {
			l.Error("configuration not reloaded", "err", err)
			continue
		}
		level, err := logLevel(next.LogLevel)
		if err != nil {
			l.Error("configuration not reloaded", "err", err)
			continue
		}
		l.level.Set(level)
		l.Info("configuration reloaded", "log_level", next.LogLevel)
		if keys := differing(running, next); len(keys) > 0 {
			l.Warn("settings that take a restart have changed", "keys", strings.Join(keys, ","))
		}
	}
}

// differing are the keys, besides the log level, in which two configurations
// differ.
func differing(a, b Config) (keys []string) {
	was, is := reflect.ValueOf(a), reflect.ValueOf(b)
	for i := range was.NumField() {
		key := was.Type().Field(i).Tag.Get("toml")
		if key != "-" && key != "" && key != "log_level" && !was.Field(i).Equal(is.Field(i)) {
			keys = append(keys, key)
		}
	}
	return keys
}
