// SPDX-License-Identifier: BSD-2-Clause

package shim

import (
	"context"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// short gives a path to name in dir that fits into a socket address (108
// bytes) however long dir's own path is. It is good in this process and, by
// way of pid, in others, until the file is closed.
func short(dir, name string) (*os.File, string, error) {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, "", &os.PathError{Op: "open", Path: dir, Err: err}
	}
	return os.NewFile(uintptr(fd), dir), fmt.Sprintf("/proc/%d/fd/%d/%s", os.Getpid(), fd, name), nil
}

// listen listens on the socket name in dir.
func listen(dir, name string) (*net.UnixListener, error) {
	f, path, err := short(dir, name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
}

func dial(ctx context.Context, dir string) (net.Conn, error) {
	f, path, err := short(dir, socketName)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return new(net.Dialer).DialContext(ctx, "unix", path)
}

// peerPid is the process that listens at the other end, 0 where it is not told.
func peerPid(c *net.UnixConn) (pid int) {
	rc, err := c.SyscallConn()
	if err != nil {
		return 0
	}
	rc.Control(func(fd uintptr) {
		if cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			pid = int(cred.Pid)
		}
	})
	return pid
}
