// SPDX-License-Identifier: BSD-2-Clause

package shim

import (
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Console is a socket on which a runtime sends the master of a terminal that
// it made in a container.
type Console struct {
	Path string // for the runtime's command line; good while it is open
	file string
	dir  *os.File
	l    *net.UnixListener
}

// ListenConsole makes the socket in dir.
func ListenConsole(dir string) (*Console, error) {
	const name = "console.sock"
	os.Remove(dir + "/" + name)
	f, path, err := short(dir, name)
	if err != nil {
		return nil, err
	}
	l, err := listen(dir, name)
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("listen for the console: %w", err)
	}
	l.SetUnlinkOnClose(false)
	return &Console{Path: path, file: dir + "/" + name, dir: f, l: l}, nil
}

// Receive returns the master. The runtime sends it before its command ends.
func (c *Console) Receive() (*os.File, error) {
	c.l.SetDeadline(time.Now().Add(5 * time.Second))
	cn, err := c.l.AcceptUnix()
	if err != nil {
		return nil, fmt.Errorf("receive the console: %w", err)
	}
	defer cn.Close()
	cn.SetDeadline(time.Now().Add(5 * time.Second))
	_, files, err := readFiles(cn, make([]byte, 4096))
	if err != nil {
		return nil, fmt.Errorf("receive the console: %w", err)
	}
	if len(files) != 1 {
		closeAll(files)
		return nil, errors.New("receive the console: no file came with the message")
	}
	return files[0], nil
}

// Close removes the socket.
func (c *Console) Close() {
	c.l.Close()
	c.dir.Close()
	os.Remove(c.file)
}

// readFiles reads once, bytes and the files that come with them, which are
// not blocking.
func readFiles(cn *net.UnixConn, buf []byte) (n int, files []*os.File, err error) {
	oob := make([]byte, unix.CmsgSpace(4*8))
	n, on, _, _, err := cn.ReadMsgUnix(buf, oob)
	if err != nil || on == 0 {
		return n, nil, err
	}
	msgs, err := unix.ParseSocketControlMessage(oob[:on])
	if err != nil {
		return n, nil, err
	}
	for i := range msgs {
		fds, err := unix.ParseUnixRights(&msgs[i])
		if err != nil {
			continue
		}
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			unix.SetNonblock(fd, true)
			files = append(files, os.NewFile(uintptr(fd), "received"))
		}
	}
	return n, files, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}
