// SPDX-License-Identifier: BSD-2-Clause

//go:build !linux

package shim

import (
	"context"
	"net"
	"os"
	"path/filepath"
)

// short gives the path of name in dir. It must fit into a socket address (104
// bytes on FreeBSD); the error of bind and connect says so where it does not.
func short(dir, name string) (*os.File, string, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, "", err
	}
	return f, filepath.Join(dir, name), nil
}

func dial(ctx context.Context, dir string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(dir, socketName))
}
