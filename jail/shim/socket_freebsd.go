// SPDX-License-Identifier: BSD-2-Clause

package shim

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/unix"
)

// short gives the path of name in dir for a runtime's command line: ocijail
// takes one of any length.
func short(dir, name string) (*os.File, string, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, "", err
	}
	return f, filepath.Join(dir, name), nil
}

// listen listens on the socket name in dir. The address in a socket holds 103
// bytes; bindat(2) takes a name below a directory, so that dir can be long.
func listen(dir, name string) (*net.UnixListener, error) {
	f, fd, err := socketAt(dir, name, unix.SYS_BINDAT)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	file := os.NewFile(uintptr(fd), filepath.Join(dir, name))
	defer file.Close()
	if err := unix.Listen(fd, 128); err != nil {
		return nil, fmt.Errorf("listen on %s: %w", file.Name(), err)
	}
	l, err := net.FileListener(file)
	if err != nil {
		return nil, err
	}
	return l.(*net.UnixListener), nil
}

// dial connects to the shim; it is on this machine and has room, or it is not
// there: there is nothing to wait for.
func dial(_ context.Context, dir string) (net.Conn, error) {
	f, fd, err := socketAt(dir, socketName, unix.SYS_CONNECTAT)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	file := os.NewFile(uintptr(fd), filepath.Join(dir, socketName))
	defer file.Close()
	return net.FileConn(file)
}

// socketAt makes a socket and binds or connects it by bindat(2), connectat(2).
func socketAt(dir, name string, call uintptr) (dirFile *os.File, fd int, err error) {
	if dirFile, err = os.Open(dir); err != nil {
		return nil, -1, err
	}
	defer func() {
		if err != nil {
			dirFile.Close()
		}
	}()
	fd, err = unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, -1, fmt.Errorf("socket: %w", err)
	}
	var addr unix.RawSockaddrUnix
	if len(name) >= len(addr.Path) {
		unix.Close(fd)
		return nil, -1, fmt.Errorf("socket name %s: %w", name, unix.ENAMETOOLONG)
	}
	addr.Family = unix.AF_UNIX
	addr.Len = uint8(unsafe.Offsetof(addr.Path)) + uint8(len(name)) + 1
	for i := range len(name) {
		addr.Path[i] = int8(name[i])
	}
	for {
		_, _, errno := unix.Syscall6(call, dirFile.Fd(), uintptr(fd), uintptr(unsafe.Pointer(&addr)), uintptr(addr.Len), 0, 0)
		if errno == unix.EINTR {
			continue
		}
		if errno != 0 {
			unix.Close(fd)
			return nil, -1, &os.PathError{Op: "bind or connect", Path: filepath.Join(dir, name), Err: errno}
		}
		return dirFile, fd, nil
	}
}

// peerPid is not told: golang.org/x/sys knows xucred(4) without it.
func peerPid(*net.UnixConn) int { return 0 }
